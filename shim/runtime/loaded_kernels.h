// SPDX-License-Identifier: MIT
// Kernels that are known to be on the device: they were launched. CUDA loads a kernel at its first launch, which holds
// up every stream (cuda_launch.h), and the driver does not say of a CUkernel, which is what the CUDA runtime launches,
// whether it is loaded: to ask for its function loads it (seen on an H200).
//
// Threads: any, outside the fault path. Handles are the program's. Errors: none; a kernel for which there is no memory
// stays unknown.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe::loaded_kernels {

namespace detail {
// What was launched last in each place: most launches are of a kernel that stands there, and end here.
inline constexpr std::size_t kPlaces = 1024;
extern std::array<std::atomic<CUfunction>, kPlaces> latest;
inline std::atomic<CUfunction>& place(CUfunction kernel) noexcept {
    constexpr unsigned kShift = 64 - 10;
    return latest[(reinterpret_cast<std::uintptr_t>(kernel) * 0x9e3779b97f4a7c15u) >> kShift];
}
void add(CUfunction kernel) noexcept;
}  // namespace detail

// It was launched in the current context.
inline void launched(CUfunction kernel) noexcept {
    if (detail::place(kernel).load(std::memory_order_relaxed) != kernel) [[unlikely]] {
        detail::add(kernel);
    }
}
// Whether it was, in the current context.
bool known(CUfunction kernel) noexcept;
// A module was unloaded, or a context ended: handles may come back as others.
void forget() noexcept;

}  // namespace hpe::loaded_kernels
