// SPDX-License-Identifier: MIT
// Copies across the borders of allocations that lie side by side on the device. The driver refuses a copy over two of
// them, and one copy for each takes some microseconds (docs/hardware.md); a kernel of libhpe's own sees no borders. It
// reads and writes pinned host memory as fast as the link.
//
// The kernel needs a free processor of the device, which a copy does not: so it is launched only where no work of the
// program's is under way. Bytes, in multiples of 16. The kernel belongs to its context. Threads: any, also inside the
// fault path, except where it says otherwise. Errors: the driver's.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace hpe::across {

// Fewer allocations are copied one by one sooner than the kernel is made, once in a process.
constexpr std::size_t kWorthAKernel = 64;

// Makes the kernel for the context, which is current, if the device is idle. Outside the fault path.
void prepare(CUcontext context) noexcept;
// Whether there is a kernel for the context.
bool ready(CUcontext context) noexcept;
// Enqueues a copy between device memory and pinned memory, either way. The context has a kernel, and is current.
CUresult copy(CUcontext context, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) noexcept;
inline CUdeviceptr pinned(const std::byte* memory) noexcept { return reinterpret_cast<CUdeviceptr>(memory); }

// The context has ended.
void forget(CUcontext context) noexcept;

}  // namespace hpe::across
