// SPDX-License-Identifier: MIT
// The set of kernels, by context.
#include "shim/driver/loaded_kernels.h"

#include <new>
#include <set>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::loaded_kernels {

namespace detail {
constinit std::array<std::atomic<std::uint64_t>, kPlaces> latest{};
}

namespace {

constinit Mutex mutex;
std::set<std::pair<CUcontext, CUfunction>>& kernels() HPE_REQUIRES(mutex) {
    static NeverDestroyed<std::set<std::pair<CUcontext, CUfunction>>> set;
    return *set;
}

}  // namespace

void launched(CUfunction kernel) noexcept {
    // A launch that is captured is none yet.
    if (in_flight.capturing_anywhere()) return;
    const auto context = current_context();
    const Locked lock(mutex);
    try {
        kernels().emplace(context, kernel);
    } catch (const std::bad_alloc&) {
        return;
    }
    std::uint64_t parameters = 0;
    for (std::size_t bytes = 0; parameter(kernel, parameters, bytes);) ++parameters;
    detail::place(kernel).store(reinterpret_cast<std::uintptr_t>(kernel) | parameters << detail::kAddressBits,
                                std::memory_order_relaxed);
}

// The driver tells of a CUkernel, which is what the CUDA runtime launches, by a function of its own.
bool parameter(CUfunction kernel, std::size_t index, std::size_t& bytes) noexcept {
    std::size_t offset = 0;
    Inside inside;
    auto told = driver.cuFuncGetParamInfo(kernel, index, &offset, &bytes);
    if (told == CUDA_ERROR_INVALID_HANDLE) {
        told = driver.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(kernel), index, &offset, &bytes);
    }
    return told == CUDA_SUCCESS;
}

bool known(CUfunction kernel) noexcept {
    const auto context = current_context();
    const Locked lock(mutex);
    return kernels().contains({context, kernel});
}

void forget() noexcept {
    const Locked lock(mutex);
    kernels().clear();
    for (auto& place : detail::latest) place.store(0, std::memory_order_relaxed);
}

}  // namespace hpe::loaded_kernels
