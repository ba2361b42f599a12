// SPDX-License-Identifier: MIT
// The numbers.
#include "shim/driver/primary_contexts.h"

#include "shim/base/thread.h"
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

CUresult primary_is_active(CUdevice device, int& active) noexcept {
    const Inside inside;
    unsigned flags = 0;
    return driver.cuDevicePrimaryCtxGetState(device, &flags, &active);
}

CUresult primary_context(CUdevice device, CUcontext& context) noexcept {
    context = nullptr;
    int active = 0;
    const CUresult asked = primary_is_active(device, active);
    if (asked != CUDA_SUCCESS || active == 0) return asked == CUDA_ERROR_INVALID_DEVICE ? CUDA_SUCCESS : asked;
    const Inside inside;
    const CUresult retained = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (retained == CUDA_SUCCESS) driver.cuDevicePrimaryCtxRelease_v2(device);
    return lost_context(retained) ? driver.cuCtxGetCurrent(&context) : retained;
}

}  // namespace hpe
