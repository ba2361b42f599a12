// SPDX-License-Identifier: MIT
// The start of the driver, and what a forked child finds: no device, as with NVIDIA's driver.
#include <pthread.h>

#include <memory>
#include <utility>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {
namespace {

pthread_mutex_t start_mutex = PTHREAD_MUTEX_INITIALIZER;

// The child has neither the device's threads nor its memory, and every lock may be held by a thread it does not have.
// So nothing is repaired: the gate refuses each call, and what belongs to the parent is left alone.
void in_child() {
    if (life() == Life::TornDown) return;
    if (life() == Life::Ready) set_life(Life::Forked);
    forget_workers();
    start_mutex = PTHREAD_MUTEX_INITIALIZER;
}

// Its per-thread default streams are nobody's from now on.
void end_thread(ThreadState& state) {
    for (auto& [id, stream] : state.streams) {
        leave_capture(*stream);
        retire(*stream);
    }
}

}  // namespace

CUresult api::cuInit(unsigned flags) {
    require(flags == 0);
    if (life() == Life::Ready) return CUDA_SUCCESS;
    struct Lock {
        Lock() { pthread_mutex_lock(&start_mutex); }
        ~Lock() { pthread_mutex_unlock(&start_mutex); }
    } const lock;
    if (life() == Life::Ready) return CUDA_SUCCESS;
    auto made = std::make_unique<Driver>();
    require(read_options(made->options), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < made->options.devices; ++i)
        made->devices.push_back(std::make_unique<Device>(static_cast<int>(i), made->options));
    set_worker_threads(made->options.threads);
    if (made->options.races) check_races([](const char* line) { complain("%s", line); });
    make_thread_key(end_thread);
    require(pthread_atfork(nullptr, nullptr, in_child) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    set_driver(std::move(made));
    set_life(Life::Ready);
    return CUDA_SUCCESS;
}

CUresult api::cuDriverGetVersion(int* version) {
    require(version != nullptr);
    *version = driver_version;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
