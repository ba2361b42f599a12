// SPDX-License-Identifier: MIT
// What calls answer that a program may meet on its way, as an H200 does: limits beyond what there is, sizes of 0,
// devices that are not there, memory of another kind than the call is for, things that were never given anything to do.
#include <cstdlib>

#include "driver.h"

__device__ int variable[4];
__global__ void __launch_bounds__(64) bounded(int* p) { *p = 1; }

struct Driver {
    DRIVER_FUNCTION(cuCtxGetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxSetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxGetLimit, 3010)
    DRIVER_FUNCTION(cuCtxSetLimit, 3010)
    DRIVER_FUNCTION(cuCtxEnablePeerAccess, 4000)
    DRIVER_FUNCTION(cuDevicePrimaryCtxReset, 11000)
    DRIVER_FUNCTION(cuDevicePrimaryCtxGetState, 7000)
    DRIVER_FUNCTION(cuFuncGetModule, 11000)
    DRIVER_FUNCTION(cuFuncGetName, 12030)
    DRIVER_FUNCTION(cuFuncGetAttribute, 2020)
    DRIVER_FUNCTION(cuFuncGetParamInfo, 12040)
    DRIVER_FUNCTION(cuFuncIsLoaded, 12040)
    DRIVER_FUNCTION(cuKernelGetParamInfo, 12040)
    DRIVER_FUNCTION(cuKernelGetFunction, 12000)
    DRIVER_FUNCTION(cuLaunchHostFunc, 10000)
    DRIVER_FUNCTION(cuLaunchKernel, 4000)
    DRIVER_FUNCTION(cuMemAlloc, 3020)
    DRIVER_FUNCTION(cuMemAllocAsync, 11020)
    DRIVER_FUNCTION(cuMemFreeAsync, 11020)
    DRIVER_FUNCTION(cuMemFreeHost, 2000)
    DRIVER_FUNCTION(cuMemHostGetFlags, 2030)
    DRIVER_FUNCTION(cuMemHostRegister, 6050)
    DRIVER_FUNCTION(cuMemHostUnregister, 4000)
    DRIVER_FUNCTION(cuMemcpyDtoH, 3020)
    DRIVER_FUNCTION(cuMemcpyDtoHAsync, 3020)
    DRIVER_FUNCTION(cuMemsetD8Async, 3020)
    DRIVER_FUNCTION(cuEventRecord, 2000)
    DRIVER_FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)
    DRIVER_FUNCTION(cuStreamCreate, 2000)
    DRIVER_FUNCTION(cuStreamSynchronize, 2000)
    DRIVER_FUNCTION(cuStreamWriteValue32, 11070)
    DRIVER_FUNCTION(cuMemFree, 3020)
    DRIVER_FUNCTION(cuMemAllocHost, 3020)
    DRIVER_FUNCTION(cuMemHostAlloc, 2020)
    DRIVER_FUNCTION(cuMemcpyPeer, 4000)
    DRIVER_FUNCTION(cuMemGetAddressRange, 3020)
    DRIVER_FUNCTION(cuPointerGetAttribute, 4000)
    DRIVER_FUNCTION(cuStreamBatchMemOp, 11070)
    DRIVER_FUNCTION(cuStreamGetCtx, 9020)
    DRIVER_FUNCTION(cuStreamGetDevice, 12080)
    DRIVER_FUNCTION(cuStreamGetFlags, 5050)
    DRIVER_FUNCTION(cuStreamGetId, 12000)
    DRIVER_FUNCTION(cuStreamGetPriority, 5050)
    DRIVER_FUNCTION(cuStreamIsCapturing, 10000)
    DRIVER_FUNCTION(cuStreamQuery, 2000)
};

#define WRONG(call) ANSWERS(CUDA_ERROR_INVALID_VALUE, call)

static std::size_t limit(const Driver& d, CUlimit which) {
    std::size_t value = 7;
    DRIVER(d.cuCtxGetLimit(&value, which));
    return value;
}
// What a limit is after it was set.
static std::size_t limit(const Driver& d, CUlimit which, std::size_t value) {
    DRIVER(d.cuCtxSetLimit(which, value));
    return limit(d, which);
}

static void limits(const Driver& d) {
    EXPECT(limit(d, CU_LIMIT_STACK_SIZE, 0) == 0);
    EXPECT(limit(d, CU_LIMIT_STACK_SIZE, 1) == 16);
    WRONG(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 20));
    EXPECT(limit(d, CU_LIMIT_STACK_SIZE, 1024) == 1024);
    EXPECT(limit(d, CU_LIMIT_PRINTF_FIFO_SIZE, std::size_t{1} << 40) == std::size_t{2} << 30);
    EXPECT(limit(d, CU_LIMIT_PRINTF_FIFO_SIZE, 1) == 512 << 10);
    EXPECT(limit(d, CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20) == 1 << 20);
    EXPECT(limit(d, CU_LIMIT_MALLOC_HEAP_SIZE, 1) == 4 << 20);
    EXPECT(limit(d, CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20) == 8 << 20);
    EXPECT(limit(d, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1) == 32);
    EXPECT(limit(d, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1000) == 1000);
    std::size_t value = 7;
    ANSWERS(CUDA_ERROR_UNSUPPORTED_LIMIT, d.cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
    ANSWERS(CUDA_ERROR_UNSUPPORTED_LIMIT, d.cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2));
    int shared = 0;
    CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(value == 7 && limit(d, CU_LIMIT_SHMEM_SIZE) == static_cast<std::size_t>(shared));
    EXPECT(limit(d, CU_LIMIT_CIG_ENABLED) == 0);
    for (const CUlimit which : {CU_LIMIT_SHMEM_SIZE, CU_LIMIT_CIG_ENABLED})
        ANSWERS(CUDA_ERROR_NOT_PERMITTED, d.cuCtxSetLimit(which, 0));
}

static void host_memory(const Driver& d) {
    void* p = &p;
    DRIVER(d.cuMemAllocHost(&p, 0));
    DRIVER(d.cuMemHostAlloc(&p, 0, 0));
    void *pinned, *managed;
    CUDA(cudaMallocHost(&pinned, 4096));
    CUDA(cudaMallocManaged(&managed, 4096));
    unsigned flags = 0;
    CUDA(cudaHostGetFlags(&flags, pinned));
    EXPECT(flags == cudaHostAllocMapped);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    WRONG(d.cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, reinterpret_cast<CUdeviceptr>(pinned)));

    char* own = static_cast<char*>(std::aligned_alloc(4096, 1 << 16));
    FAILS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));
    CUDA(cudaHostRegister(own, 8192, 0));
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own + 4096, 8192, 0));
    FAILS(cudaErrorInvalidValue, cudaHostUnregister(own + 16));
    CUDA(cudaHostUnregister(own));
    FAILS(cudaErrorInvalidValue, cudaHostRegister(own, 4096, cudaHostRegisterIoMemory));
    for (void* other : {pinned, managed}) FAILS(cudaErrorInvalidValue, cudaHostRegister(other, 4096, 0));
    FAILS(cudaErrorInvalidValue, cudaHostUnregister(managed));
    std::free(own);

    FAILS(cudaErrorNotSupported, cudaFreeAsync(managed, nullptr));
    const cudaMemLocation nine = {cudaMemLocationTypeDevice, 9};
    FAILS(cudaErrorInvalidDevice, cudaMemPrefetchAsync(managed, 4096, nine, 0, nullptr));
    FAILS(cudaErrorInvalidValue, cudaMemAdvise(managed, 4096, cudaMemAdviseSetPreferredLocation, nine));
    CUDA(cudaMemAdvise(managed, 4096, cudaMemAdviseSetReadMostly, nine));
    CUDA(cudaFree(managed));
    CUDA(cudaFreeHost(pinned));
}

static void device_memory(const Driver& d) {
    CUdeviceptr base;
    std::size_t size = 99, pitch;
    ANSWERS(CUDA_ERROR_NOT_FOUND, d.cuMemGetAddressRange(&base, &size, 0));
    EXPECT(size == 0);
    void* p;
    const std::size_t side = std::size_t{1} << 40;  // no 64 bits hold its square
    FAILS(cudaErrorInvalidValue, cudaMallocPitch(&p, &pitch, side, side));
    int four[4] = {};
    CUDA(cudaMemcpyToSymbol(variable, four, 0, 17));
    FAILS(cudaErrorInvalidValue, cudaMemcpyToSymbol(variable, four, 1, 16));
    int* a;
    CUDA(cudaMalloc(&a, 64));
    CUcontext context;
    DRIVER(d.cuCtxGetCurrent(&context));
    const auto address = reinterpret_cast<CUdeviceptr>(a);
    DRIVER(d.cuMemcpyPeer(address, nullptr, address + 16, context, 4));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(a));
}

static void streams(const Driver& d) {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    cudaLaunchAttributeValue value = {};
    value.syncPolicy = static_cast<cudaSynchronizationPolicy>(99);
    FAILS(cudaErrorInvalidValue, cudaStreamSetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
    value.syncPolicy = cudaSyncPolicySpin;
    CUDA(cudaStreamSetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));

    unsigned* p;
    CUDA(cudaMalloc(&p, 64));
    static CUstreamBatchMemOpParams operations[256];
    for (auto& operation : operations) {
        operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        operation.writeValue.address = reinterpret_cast<CUdeviceptr>(p);
        operation.writeValue.value = 7;
    }
    WRONG(d.cuStreamBatchMemOp(stream, 256, operations, 0));
    DRIVER(d.cuStreamBatchMemOp(stream, 255, operations, 0));
    CUDA(cudaStreamSynchronize(stream));
    unsigned got = 0;
    CUDA(cudaMemcpy(&got, p, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(got == 7);
    CUDA(cudaFree(p));
    CUDA(cudaStreamDestroy(stream));
}

static void pools() {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 9};
    cudaMemPool_t pool, first;
    FAILS(cudaErrorInvalidValue, cudaMemPoolCreate(&pool, &properties));
    FAILS(cudaErrorInvalidDevice, cudaDeviceGetDefaultMemPool(&pool, 9));
    properties.location.id = 0;
    for (const int type : {2, 0x40}) {  // a Windows handle, and none at all
        properties.handleTypes = static_cast<cudaMemAllocationHandleType>(type);
        FAILS(cudaErrorInvalidValue, cudaMemPoolCreate(&pool, &properties));
    }
    properties.handleTypes = cudaMemHandleTypeNone;
    CUDA(cudaMemPoolCreate(&pool, &properties));
    cudaMemLocation here = {cudaMemLocationTypeDevice, 0}, nine = {cudaMemLocationTypeDevice, 9};
    cudaMemAccessFlags flags;
    FAILS(cudaErrorInvalidValue, cudaMemPoolGetAccess(&flags, pool, &nine));
    cudaMemAccessDesc access = {here, cudaMemAccessFlagsProtNone};
    FAILS(cudaErrorInvalidDevice, cudaMemPoolSetAccess(pool, &access, 1));
    access = {nine, cudaMemAccessFlagsProtReadWrite};
    FAILS(cudaErrorInvalidDevice, cudaMemPoolSetAccess(pool, &access, 1));
    CUDA(cudaMemPoolSetAccess(pool, &access, 0));
    CUDA(cudaMemPoolGetAccess(&flags, pool, &here));
    EXPECT(flags == cudaMemAccessFlagsProtReadWrite);
    CUDA(cudaDeviceGetMemPool(&first, 0));
    FAILS(cudaErrorInvalidValue, cudaDeviceSetMemPool(9, pool));
    CUDA(cudaDeviceGetMemPool(&pool, 0));
    EXPECT(pool == first);
}

static void kernels(const Driver& d) {
    // What a kernel was compiled for is looked at when it is launched.
    int blocks = 0;
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 65, 0));
    EXPECT(blocks > 1);
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 1025, 0));
    EXPECT(blocks == 0);
    bounded<<<1, 65>>>(nullptr);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    cudaKernel_t kernel;
    static const int nothing = 0;
    FAILS(cudaErrorInvalidDeviceFunction, cudaGetKernel(&kernel, &nothing));
    CUmodule module;
    WRONG(d.cuFuncGetModule(&module, nullptr));
    // A kernel can be launched like a function, but not be asked like one.
    CUDA(cudaGetKernel(&kernel, bounded));
    const auto as_function = reinterpret_cast<CUfunction>(kernel);
    const char* name;
    int registers;
    auto state = CU_FUNCTION_LOADING_STATE_UNLOADED;
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuFuncGetModule(&module, as_function));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuFuncGetName(&name, as_function));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, as_function));
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuFuncIsLoaded(&state, as_function));
    std::size_t offset = 7, size = 0;
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuFuncGetParamInfo(as_function, 0, &offset, &size));
    DRIVER(d.cuKernelGetParamInfo(kernel, 0, &offset, &size));
    EXPECT(offset == 0 && size == 8);
    CUfunction function;
    DRIVER(d.cuKernelGetFunction(&function, kernel));
    EXPECT(function != as_function);
    DRIVER(d.cuFuncIsLoaded(&state, function));
    EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
    DRIVER(d.cuFuncGetModule(&module, function));
}

static void contexts(const Driver& d) {
    CUcontext context;
    DRIVER(d.cuCtxGetCurrent(&context));
    ANSWERS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, d.cuCtxEnablePeerAccess(context, 0));
    FAILS(cudaErrorPeerAccessUnsupported, cudaDeviceEnablePeerAccess(0, 0));
    CUDA(cudaInitDevice(0, 0, 9));  // flags that it does not know
    DRIVER(d.cuCtxSetCurrent(nullptr));
    DRIVER(d.cuMemFree(0));
    WRONG(d.cuMemFree(16));
    DRIVER(d.cuCtxSetCurrent(context));
    // A reset through the driver: the runtime goes on in a new context.
    void* p;
    CUDA(cudaMalloc(&p, 4));
    DRIVER(d.cuDevicePrimaryCtxReset(0));
    CUDA(cudaMalloc(&p, 4));
    unsigned flags;
    int active = 0;
    DRIVER(d.cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 1);
    CUDA(cudaMemset(p, 0, 4));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(p));
}

// Asked while one stream is captured, whatever the mode and whoever asks: the answer, and whether the capture goes on.
template <class Question>
static void asked(cudaStream_t captured, CUstream stream, CUresult answer, bool goes_on, Question question) {
    cudaGraph_t graph = nullptr;
    CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    ANSWERS(answer, question(stream));
    if (goes_on) {
        CUDA(cudaStreamEndCapture(captured, &graph));
        CUDA(cudaGraphDestroy(graph));
    } else {
        FAILS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(captured, &graph));
    }
}
static void captures(const Driver& d) {
    cudaStream_t captured = nullptr, other = nullptr;
    CUDA(cudaStreamCreate(&captured));
    CUDA(cudaStreamCreate(&other));
    const auto capturing = [&](CUstream s) {
        CUstreamCaptureStatus status{};
        return d.cuStreamIsCapturing(s, &status);
    };
    const auto context = [&](CUstream s) {
        CUcontext value = nullptr;
        return d.cuStreamGetCtx(s, &value);
    };
    const auto priority = [&](CUstream s) {
        int value = 0;
        return d.cuStreamGetPriority(s, &value);
    };
    const auto flags = [&](CUstream s) {
        unsigned value = 0;
        return d.cuStreamGetFlags(s, &value);
    };
    const auto id = [&](CUstream s) {
        unsigned long long value = 0;
        return d.cuStreamGetId(s, &value);
    };
    const auto device = [&](CUstream s) {
        CUdevice value = 0;
        return d.cuStreamGetDevice(s, &value);
    };
    const auto unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, implicit = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    asked(captured, captured, CUDA_SUCCESS, true, capturing);
    asked(captured, captured, CUDA_SUCCESS, true, context);
    asked(captured, captured, CUDA_SUCCESS, true, priority);
    asked(captured, captured, unsupported, false, flags);
    asked(captured, captured, unsupported, false, id);
    asked(captured, captured, unsupported, false, device);
    asked(captured, captured, unsupported, false, d.cuStreamQuery);
    asked(captured, CU_STREAM_LEGACY, implicit, true, capturing);
    asked(captured, CU_STREAM_LEGACY, implicit, false, context);
    asked(captured, CU_STREAM_LEGACY, implicit, false, priority);
    asked(captured, CU_STREAM_LEGACY, implicit, false, flags);
    asked(captured, CU_STREAM_LEGACY, implicit, false, id);
    asked(captured, CU_STREAM_LEGACY, implicit, false, device);
    asked(captured, CU_STREAM_LEGACY, implicit, false, d.cuStreamQuery);
    asked(captured, other, CUDA_SUCCESS, true, context);
    asked(captured, other, CUDA_SUCCESS, true, priority);
    asked(captured, other, CUDA_SUCCESS, true, flags);
    asked(captured, other, CUDA_SUCCESS, true, id);
    asked(captured, other, CUDA_SUCCESS, true, device);
    asked(captured, other, CUDA_SUCCESS, true, d.cuStreamQuery);
    CUDA(cudaStreamDestroy(captured));
    CUDA(cudaStreamDestroy(other));
}

// A stream that was created, and memory, are used in their own context: none need be current. Default streams are the
// current one's.
static void without_context(const Driver& d) {
    constexpr auto none = CUDA_ERROR_INVALID_CONTEXT;
    CUcontext context = nullptr;
    CUstream stream = nullptr, made = nullptr;
    CUdeviceptr memory = 0, other = 0;
    void *host = nullptr, *more = nullptr, *const registered = std::aligned_alloc(4096, 4096);
    cudaFunction_t function = nullptr;
    cudaEvent_t event = nullptr;
    DRIVER(d.cuCtxGetCurrent(&context));
    DRIVER(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER(d.cuMemAlloc(&memory, 4096));
    DRIVER(d.cuMemAllocHost(&host, 4096));
    DRIVER(d.cuMemHostRegister(registered, 4096, 0));
    CUDA(cudaEventCreate(&event));
    CUDA(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&bounded)));
    DRIVER(d.cuCtxSetCurrent(nullptr));

    char bytes[4] = {};
    int blocks = 0;
    unsigned flags = 0;
    void* arguments[] = {&memory};
    const auto launch = [&](CUstream in) {
        return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr);
    };
    DRIVER(launch(stream));
    DRIVER(d.cuMemcpyDtoHAsync(bytes, memory, 4, stream));
    DRIVER(d.cuStreamSynchronize(stream));
    EXPECT(bytes[0] == 1);
    DRIVER(d.cuMemsetD8Async(memory, 7, 4, stream));
    DRIVER(d.cuStreamWriteValue32(stream, memory, 5, 0));
    DRIVER(d.cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
    DRIVER(d.cuEventRecord(event, stream));
    DRIVER(d.cuMemAllocAsync(&other, 100, stream));
    DRIVER(d.cuMemFreeAsync(other, stream));
    DRIVER(d.cuStreamSynchronize(stream));

    for (const CUstream in : {CUstream{}, CU_STREAM_PER_THREAD}) {
        ANSWERS(none, launch(in));
        ANSWERS(none, d.cuMemcpyDtoHAsync(bytes, memory, 4, in));
        ANSWERS(none, d.cuStreamSynchronize(in));
        ANSWERS(none, d.cuMemAllocAsync(&other, 100, in));
    }
    ANSWERS(none, d.cuMemAlloc(&other, 4));
    ANSWERS(none, d.cuMemcpyDtoH(bytes, memory, 4));
    ANSWERS(none, d.cuMemAllocHost(&more, 4096));
    ANSWERS(none, d.cuMemHostRegister(bytes, 4, 0));
    ANSWERS(none, d.cuMemHostGetFlags(&flags, host));
    ANSWERS(none, d.cuStreamCreate(&made, 0));
    ANSWERS(none, d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
    WRONG(d.cuMemFree(12345));

    DRIVER(d.cuMemFree(memory));
    DRIVER(d.cuMemFreeHost(host));
    DRIVER(d.cuMemHostUnregister(registered));

    DRIVER(d.cuCtxSetCurrent(context));
    CUDA(cudaEventDestroy(event));
    CUDA(cudaStreamDestroy(stream));
    std::free(registered);
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    limits(d);
    host_memory(d);
    device_memory(d);
    streams(d);
    pools();
    kernels(d);
    captures(d);
    contexts(d);
    without_context(d);
    std::printf("answers: ok\n");
}
