// SPDX-License-Identifier: MIT
// A kernel of libhpe's own in one context: compiled from PTX by the driver when it is first needed, which takes up to
// 0.1 s, and not tried again in a context where the driver refused.
//
// The kernel belongs to its context and dies with it. Threads: any; one kernel is loaded at a time. Errors: nullptr; a
// refusal is said once for each context.
#pragma once

#include <cuda.h>

#include <atomic>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe {

class OwnKernel {
public:
    CUfunction loaded() const noexcept { return function_.load(std::memory_order_acquire); }
    // The context is current. Only where the device is idle, since loading waits for it; outside the fault path.
    CUfunction load(const char* ptx, const char* name) noexcept {
        const Locked lock(loading);
        if (loaded() != nullptr || refused_ || !in_flight.idle()) return loaded();
        const Inside inside;
        const CaptureRelaxed relaxed;
        CUmodule module = nullptr;
        CUfunction function = nullptr;
        auto result = driver.cuModuleLoadData(&module, ptx);
        if (result == CUDA_SUCCESS) result = driver.cuModuleGetFunction(&function, module, name);
        if (result != CUDA_SUCCESS) {
            log::warn("the driver does not load libhpe's kernel {}: {}; other ways take its place, which are slower",
                      name, error_name(result));
            refused_ = true;
            return nullptr;
        }
        function_.store(function, std::memory_order_release);
        return function;
    }
    // The context has ended.
    void forget() noexcept {
        const Locked lock(loading);
        function_.store(nullptr, std::memory_order_release);
        refused_ = false;
    }

private:
    static inline constinit Mutex loading;
    std::atomic<CUfunction> function_{nullptr};
    bool refused_ HPE_GUARDED_BY(loading) = false;
};

}  // namespace hpe
