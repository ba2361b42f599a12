// SPDX-License-Identifier: MIT
// The kernel of each context.
#include "shim/transfer/across.h"

#include <algorithm>
#include <atomic>

#include "shim/base/mutex.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/own_kernel.h"

namespace hpe::across {

namespace {

constexpr char kKernel[] =
#include "shim/transfer/copy_kernel.inc"
    ;

struct Kernel {
    std::atomic<CUcontext> context{nullptr};
    Mutex loading;
    OwnKernel own HPE_GUARDED_BY(loading);
    std::atomic<CUfunction> function{nullptr};
};
constinit ByContext<Kernel> kernels;

// The kernel is given the host's addresses of pinned memory.
bool same_addresses() noexcept {
    CUdevice device = 0;
    int same = 0;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           driver.cuDeviceGetAttribute(&same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device) ==
               CUDA_SUCCESS &&
           same != 0;
}

}  // namespace

void prepare(CUcontext context) noexcept {
    Kernel* const kernel = kernels.of(context);
    if (kernel == nullptr || ready(context)) return;
    const Locked lock(kernel->loading);
    if (same_addresses()) kernel->function.store(kernel->own.load(kKernel, "hpe_copy"), std::memory_order_release);
}

bool ready(CUcontext context) noexcept {
    Kernel* const kernel = kernels.known(context);
    return kernel != nullptr && kernel->function.load(std::memory_order_acquire) != nullptr;
}

CUresult copy(CUcontext context, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) noexcept {
    constexpr std::size_t kWord = 16;
    constexpr unsigned kThreads = 256, kMostBlocks = 512;
    Kernel* const kernel = kernels.known(context);
    const CUfunction function = kernel != nullptr ? kernel->function.load(std::memory_order_acquire) : nullptr;
    if (function == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::size_t words = bytes / kWord;
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>((words + kThreads - 1) / kThreads, kMostBlocks));
    void* parameters[] = {&to, &from, &words};
    return driver.cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr);
}

void forget(CUcontext context) noexcept {
    Kernel* const kernel = kernels.known(context);
    if (kernel == nullptr) return;
    const Locked lock(kernel->loading);
    kernel->function.store(nullptr, std::memory_order_release);
    kernel->own.forget();
}

}  // namespace hpe::across
