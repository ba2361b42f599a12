// SPDX-License-Identifier: MIT
// The primary contexts that the runtime retains, and the current device of each thread.
#include "context.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace hpe::soft::cudart {
namespace {

constexpr int max_devices = 64;

struct Primary {
    CUcontext context = nullptr;
    bool retained = false;
};

std::mutex mutex;  // guards primaries and dead
Primary primaries[max_devices];
// A reset leaves other threads with a dead context current; only then must each call compare. The driver may bring a
// context back under the same handle.
std::vector<CUcontext> dead;
std::atomic<bool> any_reset{false};

thread_local int thread_device = 0;

bool was_reset(CUcontext context) {
    if (!any_reset.load(std::memory_order_acquire)) return false;
    std::lock_guard lock(mutex);
    return std::find(dead.begin(), dead.end(), context) != dead.end();
}

bool is_sticky(CUresult r) {
    switch (r) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        case CUDA_ERROR_NOT_SUPPORTED:
        case CUDA_ERROR_ASSERT: return true;
        default: return false;
    }
}

cudaError_t make_current(const Driver& d, int device) {
    CUcontext context = nullptr;
    if (cudaError_t e = primary_context(d, device, context)) return e;
    return static_cast<cudaError_t>(d.cuCtxSetCurrent(context));
}

}  // namespace

cudaError_t device_handle(const Driver& d, int device, CUdevice& handle) {
    if (device < 0 || device >= max_devices || d.cuDeviceGet(&handle, device) != CUDA_SUCCESS) {
        return cudaErrorInvalidDevice;
    }
    return cudaSuccess;
}

cudaError_t primary_context(const Driver& d, int device, CUcontext& context) {
    CUdevice handle{};
    if (cudaError_t e = device_handle(d, device, handle)) return e;
    std::lock_guard lock(mutex);
    Primary& p = primaries[device];
    if (!p.retained) {
        if (CUresult r = d.cuDevicePrimaryCtxRetain(&p.context, handle)) {
            // What broke the device is told once, and not by those who find it broken.
            return is_sticky(r) ? cudaErrorDevicesUnavailable : static_cast<cudaError_t>(r);
        }
        p.retained = true;
        std::erase(dead, p.context);
    }
    context = p.context;
    return cudaSuccess;
}

cudaError_t ensure_context(const Driver& d) {
    CUcontext current = nullptr;
    if (CUresult r = d.cuCtxGetCurrent(&current)) return static_cast<cudaError_t>(r);
    if (current != nullptr && !was_reset(current)) return cudaSuccess;
    return make_current(d, thread_device);
}

bool renew_context(const Driver& d) {
    CUcontext current = nullptr;
    if (d.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) return false;
    int device = 0;
    {
        std::lock_guard lock(mutex);
        while (device < max_devices && primaries[device].context != current) ++device;
        if (device == max_devices) return false;
        CUdevice handle{};
        unsigned flags = 0;
        int active = 1;
        if (device_handle(d, device, handle) != cudaSuccess) return false;
        if (d.cuDevicePrimaryCtxGetState(handle, &flags, &active) != CUDA_SUCCESS || active != 0) return false;
        primaries[device].retained = false;
    }
    return make_current(d, device) == cudaSuccess;
}

cudaError_t current_device(const Driver& d, int& device) {
    CUcontext current = nullptr;
    if (CUresult r = d.cuCtxGetCurrent(&current)) return static_cast<cudaError_t>(r);
    if (current == nullptr || was_reset(current)) {
        device = thread_device;
        return cudaSuccess;
    }
    // Handles and ordinals of devices are the same numbers.
    CUdevice handle{};
    const CUresult r = d.cuCtxGetDevice(&handle);
    device = handle;
    return static_cast<cudaError_t>(r);
}

cudaError_t set_device(const Driver& d, int device) {
    CUdevice handle{};
    if (cudaError_t e = device_handle(d, device, handle)) return e;
    thread_device = device;
    return make_current(d, device);
}

cudaError_t reset_device(const Driver& d) {
    int device = 0;
    if (cudaError_t e = current_device(d, device)) return e;
    CUdevice handle{};
    if (cudaError_t e = device_handle(d, device, handle)) return e;
    std::lock_guard lock(mutex);
    Primary& p = primaries[device];
    if (CUresult r = d.cuDevicePrimaryCtxReset(handle)) return static_cast<cudaError_t>(r);
    if (p.retained) dead.push_back(p.context);
    p.retained = false;
    any_reset.store(true, std::memory_order_release);
    return cudaSuccess;
}

}  // namespace hpe::soft::cudart
