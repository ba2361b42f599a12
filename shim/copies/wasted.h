// SPDX-License-Identifier: MIT
// What the program's own copies and allocations waste, for the report's call stacks: bytes that were there already (by
// a hash of what was moved, XXH3), memory that is allocated again and again, memory that is not pinned. What was
// brought and never looked at: unread_copies.h. The same classes as OMPDataPerf's (PPoPP 2026), by what moved and not
// by what a compiler knows.
//
// What is known of device memory is what last went there, or came from there, by a copy: a kernel may have changed it
// meanwhile. Then the same bytes sent once more were needed; that they are the same is true all the same.
//
// Long copies are hashed in pieces, by helper threads where there are any (copiers.h).
//
// Bytes. Threads: any, outside the fault path, while call stacks are counted; costs go to the calling thread's Event.
// The time that hashing takes is left out of it. Memory is the program's and is read after the copy. Errors: none;
// where there is no room to remember, nothing is found.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace hpe::wasted {

struct Copy {
    bool to_device;
    CUdeviceptr device;
    const void* host;
    std::size_t width, rows, host_pitch;
    bool done;  // when the call returns the bytes have arrived
};
// A copy between the program's memory and the device that was made.
void copied(const Copy& copy) noexcept;

void allocated(CUdeviceptr address, std::size_t bytes) noexcept;
void freed(CUdeviceptr address) noexcept;

}  // namespace hpe::wasted
