// SPDX-License-Identifier: MIT
// The real functions behind our doors: libc's dlsym, and the driver's entry points that the runtime itself calls.
// Everything here bypasses the doors.
//
// Threads: any. The driver's functions and handles belong to the driver; adopted libraries are never closed. Errors:
// the driver's own, or nullptr and false where something is not there.
#pragma once

#include <cuda.h>

namespace hpe {

// libc's dlsym and dlvsym or the next preload's. Usable before any constructor ran; allocate nothing of their own.
void* real_dlsym(void* handle, const char* name) noexcept;
void* real_dlvsym(void* handle, const char* name, const char* version) noexcept;
// Finds them, for the stubs that jump there.
void prepare_real_dlsym() noexcept;

// The driver functions that the runtime calls. Filled once by adopt_driver(), constant afterwards.
struct Driver {
#define HPE_DRIVER_FUNCTIONS(F)               \
    F(cuCtxGetCurrent)                        \
    F(cuCtxPushCurrent_v2)                    \
    F(cuCtxPopCurrent_v2)                     \
    F(cuStreamCreateWithPriority)             \
    F(cuCtxGetStreamPriorityRange)            \
    F(cuCtxSynchronize)                       \
    F(cuMemHostAlloc)                         \
    F(cuStreamGetCtx)                         \
    F(cuStreamGetFlags)                       \
    F(cuStreamSynchronize)                    \
    F(cuStreamIsCapturing)                    \
    F(cuStreamQuery)                          \
    F(cuStreamWaitEvent)                      \
    F(cuStreamWriteValue32_v2)                \
    F(cuThreadExchangeStreamCaptureMode)      \
    F(cuEventCreate)                          \
    F(cuEventRecord)                          \
    F(cuEventSynchronize)                     \
    F(cuEventQuery)                           \
    F(cuEventElapsedTime)                     \
    F(cuEventDestroy_v2)                      \
    F(cuMemAlloc_v2)                          \
    F(cuMemGetAddressRange_v2)                \
    F(cuPointerGetAttributes)                 \
    F(cuPointerGetAttribute)                  \
    F(cuMemFree_v2)                           \
    F(cuMemcpyHtoD_v2)                        \
    F(cuMemcpyDtoH_v2)                        \
    F(cuMemcpyHtoDAsync_v2)                   \
    F(cuMemcpyDtoHAsync_v2)                   \
    F(cuMemcpyDtoDAsync_v2)                   \
    F(cuMemcpy)                               \
    F(cuMemsetD8_v2)                          \
    F(cuMemcpy_ptds)                          \
    F(cuMemcpyAsync)                          \
    F(cuMemcpyAsync_ptsz)                     \
    F(cuMemcpy2D_v2)                          \
    F(cuMemcpy2D_v2_ptds)                     \
    F(cuMemcpy2DAsync_v2)                     \
    F(cuMemcpy2DAsync_v2_ptsz)                \
    F(cuMemHostRegister_v2)                   \
    F(cuMemHostUnregister)                    \
    F(cuIpcGetMemHandle)                      \
    F(cuMemGetAllocationPropertiesFromHandle) \
    F(cuMemUnmap)                             \
    F(cuIpcOpenMemHandle_v2)                  \
    F(cuIpcCloseMemHandle)                    \
    F(cuLibraryGetModule)                     \
    F(cuModuleLoadData)                       \
    F(cuModuleGetFunction)                    \
    F(cuLaunchKernel)                         \
    F(cuFuncGetParamInfo)                     \
    F(cuKernelGetParamInfo)                   \
    F(cuFuncIsLoaded)                         \
    F(cuCtxGetDevice)                         \
    F(cuDeviceGetCount)                       \
    F(cuDeviceGetPCIBusId)                    \
    F(cuDeviceGetAttribute)                   \
    F(cuCtxEnablePeerAccess)                  \
    F(cuCtxDisablePeerAccess)                 \
    F(cuDeviceCanAccessPeer)                  \
    F(cuDeviceGetP2PAttribute)                \
    F(cuDevicePrimaryCtxGetState)             \
    F(cuDevicePrimaryCtxRetain)               \
    F(cuDevicePrimaryCtxRelease_v2)           \
    F(cuGetErrorName)
#define HPE_MEMBER(symbol) decltype(&::symbol) symbol = nullptr;
    HPE_DRIVER_FUNCTIONS(HPE_MEMBER)
#undef HPE_MEMBER
};
extern constinit Driver driver;

// Remembers the libcuda that the program opened and fills `driver` from it. The first one wins: false when `handle` is
// another library. Any thread.
bool adopt_driver(void* handle) noexcept;
// The adopted libcuda, or one that the program is linked with, or nullptr.
void* libcuda() noexcept;

// "CUDA_ERROR_OUT_OF_MEMORY"; never nullptr.
const char* error_name(CUresult result) noexcept;

// Whether the error says that the context is lost with all its memory: no call will succeed in it, and no work of it
// will run.
constexpr bool lost_context(CUresult result) noexcept {
    switch (result) {
        case CUDA_ERROR_DEINITIALIZED:
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        case CUDA_ERROR_CONTAINED:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED: return true;
        default: return false;
    }
}

// The same of an error to make it current: another one may be that of any call, and says nothing of the context's work.
constexpr bool no_context(CUresult result) noexcept {
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_DEINITIALIZED;
}

// Makes a context current for a scope, whatever the thread had. result() says when the driver refuses.
class ContextScope {
public:
    explicit ContextScope(void* context) noexcept
        : result_(driver.cuCtxPushCurrent_v2(static_cast<CUcontext>(context))) {}
    ~ContextScope() {
        CUcontext popped = nullptr;
        if (result_ == CUDA_SUCCESS) driver.cuCtxPopCurrent_v2(&popped);
    }
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;
    CUresult result() const noexcept { return result_; }

private:
    const CUresult result_;
};

// nullptr: the thread has none, or the driver does not say.
inline CUcontext current_context() noexcept {
    CUcontext context = nullptr;
    return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// Of libhpe's own, in the current context, unless they exist: an event, without times if the flags say nothing else,
// and a stream that waits for no other. Errors leave nullptr.
inline CUresult make_event(CUevent& event, unsigned flags = CU_EVENT_DISABLE_TIMING) noexcept {
    if (event != nullptr) return CUDA_SUCCESS;
    const auto made = driver.cuEventCreate(&event, flags);
    if (made != CUDA_SUCCESS) event = nullptr;
    return made;
}
enum class Priority { Lowest, Usual, Highest };
inline CUresult make_stream(CUstream& stream, Priority priority = Priority::Usual) noexcept {
    if (stream != nullptr) return CUDA_SUCCESS;
    int lowest = 0, highest = 0;
    if (priority != Priority::Usual) driver.cuCtxGetStreamPriorityRange(&lowest, &highest);
    const auto made = driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                                        priority == Priority::Lowest ? lowest : highest);
    if (made != CUDA_SUCCESS) stream = nullptr;
    return made;
}
inline CUresult record(CUevent& event, CUstream stream) noexcept {
    const auto made = make_event(event);
    return made == CUDA_SUCCESS ? driver.cuEventRecord(event, stream) : made;
}

}  // namespace hpe
