// SPDX-License-Identifier: MIT
// The set of kernels, by context.
#include "shim/runtime/loaded_kernels.h"

#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "shim/runtime/inflight.h"
#include "shim/runtime/real.h"

namespace hpe::loaded_kernels {

namespace detail {
constinit std::array<std::atomic<CUfunction>, kPlaces> latest{};
}

namespace {

constinit std::mutex mutex;
std::set<std::pair<CUcontext, CUfunction>>& kernels() {
    static auto* set = new std::set<std::pair<CUcontext, CUfunction>>;
    return *set;
}

CUcontext current() noexcept {
    CUcontext context = nullptr;
    driver.cuCtxGetCurrent(&context);
    return context;
}

}  // namespace

void detail::add(CUfunction kernel) noexcept {
    // A launch that is captured is none yet.
    if (in_flight.capturing_anywhere()) return;
    const auto context = current();
    std::scoped_lock lock(mutex);
    try {
        kernels().emplace(context, kernel);
    } catch (const std::bad_alloc&) {
        return;
    }
    place(kernel).store(kernel, std::memory_order_relaxed);
}

bool known(CUfunction kernel) noexcept {
    const auto context = current();
    std::scoped_lock lock(mutex);
    return kernels().contains({context, kernel});
}

void forget() noexcept {
    std::scoped_lock lock(mutex);
    kernels().clear();
    for (auto& place : detail::latest) place.store(nullptr, std::memory_order_relaxed);
}

}  // namespace hpe::loaded_kernels
