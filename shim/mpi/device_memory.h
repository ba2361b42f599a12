// SPDX-License-Identifier: MIT
// Device memory of libhpe's own for the bytes of a message that stay on the device: an object as the program's are, so
// that it is sent and received as these are, from device to device where that is possible. Kept for the next messages
// until its context ends, since freeing waits for the device.
//
// Bytes; the memory is the owner's until it is destroyed. Threads: any, outside the fault path and the gate. Errors:
// where there is no memory, or no more of it is to be kept, at() is 0.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace hpe::mpi {

class DeviceMemory {
public:
    DeviceMemory(void* context, std::size_t bytes) noexcept;
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    std::uintptr_t at() const noexcept { return at_; }

    // The context has ended, and its memory with it.
    static void forget(CUcontext context) noexcept;

private:
    void* const context_;
    std::uintptr_t at_ = 0;
};

}  // namespace hpe::mpi
