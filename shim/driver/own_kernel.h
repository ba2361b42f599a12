// SPDX-License-Identifier: MIT
// A kernel of libhpe's own in one context: compiled from PTX by the driver when it is first needed, which takes up to
// 0.1 s, and not tried again in a context where the driver refused.
//
// The kernel belongs to its context and dies with it. Threads: one at a time. Errors: nullptr; a refusal is said once
// for each context.
#pragma once

#include <cuda.h>

#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe {

class OwnKernel {
public:
    CUfunction loaded() const noexcept { return function_; }
    // The context is current. Only where the device is idle, since loading waits for it; outside the fault path.
    CUfunction load(const char* ptx, const char* name) noexcept {
        if (function_ != nullptr || refused_ || !in_flight.idle()) return function_;
        const Inside inside;
        const CaptureRelaxed relaxed;
        CUmodule module = nullptr;
        auto result = driver.cuModuleLoadData(&module, ptx);
        if (result == CUDA_SUCCESS) result = driver.cuModuleGetFunction(&function_, module, name);
        if (result != CUDA_SUCCESS) {
            log::warn("the driver does not load libhpe's kernel {}: {}; other ways take its place, which are slower",
                      name, error_name(result));
            function_ = nullptr;
            refused_ = true;
        }
        return function_;
    }
    // The context has ended.
    void forget() noexcept { *this = {}; }

private:
    CUfunction function_ = nullptr;
    bool refused_ = false;
};

}  // namespace hpe
