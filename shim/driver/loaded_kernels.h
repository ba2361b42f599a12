// SPDX-License-Identifier: MIT
// Kernels that are known to be on the device: they were launched. CUDA loads a kernel at its first launch, which holds
// up every stream (cuda_launch.h), and the driver does not say of a CUkernel, which is what the CUDA runtime launches,
// whether it is loaded: to ask for its function loads it (seen on an H200). And how many parameters they have.
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
// What was launched last in each place: most launches are of a kernel that stands there, and end here. Above the bits
// of an address the number of its parameters.
inline constexpr std::size_t kPlaces = 1024;
inline constexpr unsigned kAddressBits = 48;
extern std::array<std::atomic<std::uint64_t>, kPlaces> latest;
inline std::atomic<std::uint64_t>& place(CUfunction kernel) noexcept {
    constexpr unsigned kShift = 64 - 10;
    return latest[(reinterpret_cast<std::uintptr_t>(kernel) * 0x9e3779b97f4a7c15u) >> kShift];
}
inline bool is(std::uint64_t known, CUfunction kernel) noexcept {
    return ((known ^ reinterpret_cast<std::uintptr_t>(kernel)) & ((std::uint64_t{1} << kAddressBits) - 1)) == 0;
}
}  // namespace detail

// The number of parameters of a kernel that was launched lately; kUnknown: of another.
inline constexpr unsigned kUnknown = ~0u;
inline unsigned parameters_of(CUfunction kernel) noexcept {
    const auto known = detail::place(kernel).load(std::memory_order_relaxed);
    return detail::is(known, kernel) ? static_cast<unsigned>(known >> detail::kAddressBits) : kUnknown;
}
// It was launched in the current context; parameters_of() has said kUnknown.
void launched(CUfunction kernel) noexcept;
// The size of a parameter, in bytes; false: it has no such parameter, or the driver does not say.
bool parameter(CUfunction kernel, std::size_t index, std::size_t& bytes) noexcept;
// Whether it was, in the current context.
bool known(CUfunction kernel) noexcept;
// A module was unloaded, or a context ended: handles may come back as others.
void forget() noexcept;

}  // namespace hpe::loaded_kernels
