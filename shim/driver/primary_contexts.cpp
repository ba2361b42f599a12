// SPDX-License-Identifier: MIT
// The numbers.
#include "shim/driver/primary_contexts.h"

#include "shim/driver/driver.h"

namespace hpe {

constinit PrimaryContexts primary_contexts;

void PrimaryContexts::retained(CUdevice device) noexcept {
    const Locked lock(mutex_);
    if (unsigned* const count = count_of(device)) ++*count;
}

void PrimaryContexts::reset(CUdevice device) noexcept {
    const Locked lock(mutex_);
    if (unsigned* const count = count_of(device)) *count = 0;
}

CUcontext active_primary_context(CUdevice device) noexcept {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = 0;
    if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
        driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return nullptr;
    }
    driver.cuDevicePrimaryCtxRelease_v2(device);
    return context;
}

}  // namespace hpe
