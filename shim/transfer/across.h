// SPDX-License-Identifier: MIT
// Copies across the borders of allocations. The driver refuses a copy over two of them, and one copy for each takes
// some microseconds (docs/hardware.md); a kernel of libhpe's own sees no borders. It reads and writes pinned host
// memory as fast as the link. What lies between a region's allocations is left alone either way.
//
// The kernel needs a free processor of the device, which a copy does not: so it is launched only where no work of the
// program's is under way. Bytes; ranges begin at pages. The kernel belongs to its context. Threads: any, also inside
// the fault path, except where it says otherwise. Errors: the driver's.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "shim/memory/object.h"

namespace hpe::across {

// Fewer allocations are copied one by one sooner than the kernel is made, once in a process.
constexpr std::size_t kWorthAKernel = 64;

// Makes the kernel for the context, which is current, if the device is idle. Outside the fault path.
void prepare(CUcontext context) noexcept;
// nullptr: there is none for the context.
CUfunction kernel_of(CUcontext context) noexcept;

// Calls run(offset, bytes), offsets from `device` on, for what is allocated of a range, as long as that succeeds.
// nullptr: it lies in no region, and all of it is.
template <class Run>
CUresult for_allocated(const Object* region, CUdeviceptr device, std::size_t bytes, Run&& run) noexcept {
    if (region == nullptr) return run(std::size_t{0}, bytes);
    auto result = CUDA_SUCCESS;
    const auto first = device - region->base;
    region->for_allocated(first, bytes, [&](std::size_t offset, std::size_t part) {
        result = run(offset - first, part);
        return result == CUDA_SUCCESS;
    });
    return result;
}

inline std::size_t allocated_bytes(const Object* region, CUdeviceptr device, std::size_t bytes) noexcept {
    return region != nullptr ? region->allocated_bytes(device - region->base, bytes) : bytes;
}

// What a range of device memory is to a copy: one allocation, if nothing else is said.
struct Over {
    const Object* region = nullptr;  // it lies in a region, whose gaps are not copied
    CUfunction kernel = nullptr;     // copies several allocations
};
// Enqueues a copy between device memory and pinned memory. The context is current.
CUresult to_device(CUdeviceptr to, const std::byte* from, std::size_t bytes, Over over, CUstream stream) noexcept;
CUresult to_host(std::byte* to, CUdeviceptr from, std::size_t bytes, Over over, CUstream stream) noexcept;

// The context has ended.
void forget(CUcontext context) noexcept;

}  // namespace hpe::across
