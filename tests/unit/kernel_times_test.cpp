// SPDX-License-Identifier: MIT
// Timed launches while contexts end, on the soft device.
#include "shim/observe/kernel_times.h"

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "shim/base/ticks.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "tests/unit/catch.h"

using namespace hpe;
using kernel_times::Launch;

namespace {

std::function<CUresult()> instead_of_record;  // once
unsigned queries = 0;
CUcontext current = nullptr;  // if any, the driver's answer
decltype(driver.cuEventRecord) true_record = nullptr;
decltype(driver.cuEventQuery) true_query = nullptr;
decltype(driver.cuCtxGetCurrent) true_current = nullptr;

CUcontext device() {
    static CUcontext context = nullptr;
    if (context != nullptr) return context;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    REQUIRE(adopt_driver(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)));
    true_record = std::exchange(driver.cuEventRecord, [](CUevent event, CUstream stream) {
        const auto instead = stream == CU_STREAM_LEGACY ? std::exchange(instead_of_record, nullptr) : nullptr;
        return instead ? instead() : true_record(event, stream);
    });
    true_query = std::exchange(driver.cuEventQuery, [](CUevent event) {
        ++queries;
        return true_query(event);
    });
    true_current = std::exchange(driver.cuCtxGetCurrent, [](CUcontext* answer) {
        if (current == nullptr) return true_current(answer);
        *answer = current;
        return CUDA_SUCCESS;
    });
    return context;
}

// As if there had been no launch for long.
Launch launch() {
    kernel_times::affordable_from = 1;
    return Launch(nullptr, Flavour::Legacy, nullptr, ticks::now());
}

unsigned pairs_under_way() {
    kernel_times::affordable_from = 1;
    queries = 0;
    kernel_times::collect();
    return queries;
}

}  // namespace

TEST_CASE("a context ends between a launch's two events, and the next has its place") {
    device();
    auto timed = launch();
    REQUIRE(timed.has_times());
    kernel_times::forget(device());
    auto next = launch();
    REQUIRE(next.has_times());
    timed.launched(CUDA_SUCCESS);
    CHECK(pairs_under_way() == 0);
    next.launched(CUDA_SUCCESS);
    CHECK(pairs_under_way() == 1);
}

TEST_CASE("a context ends while a launch's first event is recorded, and the next has its place") {
    device();
    std::optional<Launch> next;
    instead_of_record = [&] {
        kernel_times::forget(device());
        next.emplace(launch());
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    };
    auto timed = launch();
    CHECK(!timed.has_times());
    REQUIRE((next && next->has_times()));
    next->launched(CUDA_SUCCESS);
    CHECK(pairs_under_way() == 1);
}

TEST_CASE("launches in contexts that are gone take no place of what other parts keep for a context") {
    kernel_times::forget(device());
    context_places.give_back(device());
    for (std::uintptr_t i = 1; i <= ContextPlaces::kMost; ++i) {
        current = reinterpret_cast<CUcontext>(i);
        launch().launched(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    current = nullptr;
    CHECK(context_places.of(device()) != ContextPlaces::kNone);
}
