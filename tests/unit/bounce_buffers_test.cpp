// SPDX-License-Identifier: MIT
// Bounce buffers where the driver makes no events.
#include <cuda.h>

#include <cstddef>

#include "shim/base/mutex.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"
#include "shim/transfer/channel.h"
#include "shim/transfer/staging.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

std::size_t taken = 0;
std::byte memory[64];

void driver_without_events() {
    taken = 0;
    driver.cuCtxGetDevice = [](CUdevice*) { return CUDA_ERROR_INVALID_CONTEXT; };
    driver.cuCtxGetStreamPriorityRange = [](int*, int*) { return CUDA_SUCCESS; };
    driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
        *stream = reinterpret_cast<CUstream>(memory);
        return CUDA_SUCCESS;
    };
    driver.cuMemHostAlloc = [](void** at, std::size_t bytes, unsigned) {
        *at = memory;
        taken += bytes;
        return CUDA_SUCCESS;
    };
    driver.cuEventCreate = [](CUevent*, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
}

}  // namespace

TEST_CASE("a channel takes no memory for buffers that cannot be used") {
    driver_without_events();
    Channel channel;
    for (int attempt = 0; attempt < 3; ++attempt) {
        const Locked lock(channel.lock);
        CHECK_FALSE(channel.open());
    }
    CHECK(taken == 0);
}

TEST_CASE("what was pinned for buffers that cannot be used is given back with their context") {
    driver_without_events();
    constexpr std::size_t kLimit = std::size_t{4} << 20;
    pinned::configure(kLimit);
    staging::configure(0, kLimit / 4);
    auto* const context = reinterpret_cast<CUcontext>(memory);
    CHECK(staging::Lane(context, kLimit, kLimit, [] { return true; }).size() == 0);
    CHECK(taken != 0);
    staging::forget(context);
    CHECK(pinned::take(kLimit));
}
