// SPDX-License-Identifier: MIT
// What programs do wrong gets an error of CUDA's and harms nothing: handles that are gone or never were, memory that is
// freed twice or used afterwards, things of another context, null pointers, and sizes of 0, which are no mistake.
#include <cstring>

#include "driver.h"

__global__ void put(int* p, int value) { *p = value; }

struct Driver {
    DRIVER_FUNCTION(cuCtxCreate, 3020)
    DRIVER_FUNCTION(cuCtxDestroy, 4000)
    DRIVER_FUNCTION(cuCtxSetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxGetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxPushCurrent, 4000)
    DRIVER_FUNCTION(cuStreamCreate, 2000)
    DRIVER_FUNCTION(cuStreamDestroy, 4000)
    DRIVER_FUNCTION(cuStreamSynchronize, 2000)
    DRIVER_FUNCTION(cuStreamQuery, 2000)
    DRIVER_FUNCTION(cuStreamWaitEvent, 3020)
    DRIVER_FUNCTION(cuStreamGetFlags, 5050)
    DRIVER_FUNCTION(cuEventCreate, 2000)
    DRIVER_FUNCTION(cuEventDestroy, 4000)
    DRIVER_FUNCTION(cuEventRecord, 2000)
    DRIVER_FUNCTION(cuEventQuery, 2000)
    DRIVER_FUNCTION(cuEventSynchronize, 2000)
    DRIVER_FUNCTION(cuEventElapsedTime, 2000)
    DRIVER_FUNCTION(cuModuleLoadData, 2000)
    DRIVER_FUNCTION(cuModuleUnload, 2000)
    DRIVER_FUNCTION(cuModuleGetFunction, 2000)
    DRIVER_FUNCTION(cuModuleGetGlobal, 3020)
    DRIVER_FUNCTION(cuFuncGetAttribute, 2020)
    DRIVER_FUNCTION(cuLaunchKernel, 4000)
    DRIVER_FUNCTION(cuMemAlloc, 3020)
    DRIVER_FUNCTION(cuMemAllocPitch, 3020)
    DRIVER_FUNCTION(cuMemAllocAsync, 11020)
    DRIVER_FUNCTION(cuMemFree, 3020)
    DRIVER_FUNCTION(cuMemFreeAsync, 11020)
    DRIVER_FUNCTION(cuMemAllocHost, 3020)
    DRIVER_FUNCTION(cuMemHostAlloc, 2020)
    DRIVER_FUNCTION(cuMemFreeHost, 2000)
    DRIVER_FUNCTION(cuMemHostRegister, 6050)
    DRIVER_FUNCTION(cuMemHostUnregister, 4000)
    DRIVER_FUNCTION(cuMemAllocManaged, 6000)
    DRIVER_FUNCTION(cuMemGetInfo, 3020)
    DRIVER_FUNCTION(cuMemcpy, 4000)
    DRIVER_FUNCTION(cuMemcpyHtoD, 3020)
    DRIVER_FUNCTION(cuMemcpyDtoH, 3020)
    DRIVER_FUNCTION(cuMemcpyDtoD, 3020)
    DRIVER_FUNCTION(cuMemcpyHtoDAsync, 3020)
    DRIVER_FUNCTION(cuMemcpyDtoHAsync, 3020)
    DRIVER_FUNCTION(cuMemcpy2D, 3020)
    DRIVER_FUNCTION(cuMemcpy3D, 3020)
    DRIVER_FUNCTION(cuMemsetD8, 3020)
    DRIVER_FUNCTION(cuMemsetD32, 3020)
    DRIVER_FUNCTION(cuMemsetD2D8, 3020)
    DRIVER_FUNCTION(cuMemsetD32Async, 3020)
    DRIVER_FUNCTION(cuPointerGetAttribute, 4000)
    DRIVER_FUNCTION(cuDeviceGet, 2000)
    DRIVER_FUNCTION(cuDeviceGetAttribute, 2000)
    DRIVER_FUNCTION(cuDeviceGetName, 2000)
    DRIVER_FUNCTION(cuGraphLaunch, 10000)
    DRIVER_FUNCTION(cuGraphExecDestroy, 10000)
    DRIVER_FUNCTION(cuGraphDestroy, 10000)
    DRIVER_FUNCTION(cuGraphDestroyNode, 10000)
    DRIVER_FUNCTION(cuMemPoolDestroy, 11020)
    DRIVER_FUNCTION(cuMemRelease, 10020)
    DRIVER_FUNCTION(cuMemMap, 10020)
    DRIVER_FUNCTION(cuLibraryUnload, 12000)
    DRIVER_FUNCTION(cuKernelGetFunction, 12000)
};

static const char text[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .u32 counter;
.visible .entry count (.param .u64 p) { .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1; ret; }
)";

#define BAD(call) ANSWERS(CUDA_ERROR_INVALID_HANDLE, call)
#define WRONG(call) ANSWERS(CUDA_ERROR_INVALID_VALUE, call)
#define FAILS(error, call) EXPECT((call) == (error) && cudaGetLastError() == (error))

template <class Handle>
static void all_streams(const Driver& d, Handle stream, CUevent event, CUfunction function, CUdeviceptr memory) {
    unsigned flags;
    BAD(d.cuStreamSynchronize(stream));
    BAD(d.cuStreamQuery(stream));
    BAD(d.cuStreamGetFlags(stream, &flags));
    BAD(d.cuStreamWaitEvent(stream, event, 0));
    BAD(d.cuEventRecord(event, stream));
    BAD(d.cuMemsetD32Async(memory, 0, 1, stream));
    BAD(d.cuMemcpyHtoDAsync(memory, &flags, 4, stream));
    BAD(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    BAD(d.cuStreamDestroy(stream));
}

static void handles(const Driver& d) {
    CUstream stream;
    CUevent event, second;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    DRIVER(d.cuMemAlloc(&memory, 64));
    DRIVER(d.cuStreamCreate(&stream, 0));
    DRIVER(d.cuEventCreate(&event, 0));
    DRIVER(d.cuEventCreate(&second, 0));
    DRIVER(d.cuModuleLoadData(&module, text));
    DRIVER(d.cuModuleGetFunction(&function, module, "count"));
    char rubbish[256];
    std::memset(rubbish, 0x5a, sizeof rubbish);
    DRIVER(d.cuStreamDestroy(stream));
    all_streams(d, stream, event, function, memory);
    all_streams(d, reinterpret_cast<CUstream>(rubbish), event, function, memory);
    all_streams(d, reinterpret_cast<CUstream>(0x1234), event, function, memory);

    float time;
    BAD(d.cuEventElapsedTime(&time, event, second));  // never recorded
    DRIVER(d.cuEventDestroy(second));
    for (const CUevent gone : {second, reinterpret_cast<CUevent>(rubbish), reinterpret_cast<CUevent>(0x1234), CUevent{}}) {
        BAD(d.cuEventRecord(gone, nullptr));
        BAD(d.cuEventQuery(gone));
        BAD(d.cuEventSynchronize(gone));
        BAD(d.cuEventElapsedTime(&time, event, gone));
        BAD(d.cuStreamWaitEvent(nullptr, gone, 0));
        BAD(d.cuEventDestroy(gone));
    }
    DRIVER(d.cuEventDestroy(event));

    int value;
    CUfunction other;
    CUdeviceptr address;
    void* arguments[] = {&memory};
    DRIVER(d.cuModuleUnload(module));
    for (const CUmodule gone : {module, reinterpret_cast<CUmodule>(rubbish), CUmodule{}}) {
        BAD(d.cuModuleGetFunction(&other, gone, "count"));
        BAD(d.cuModuleGetGlobal(&address, nullptr, gone, "counter"));
        BAD(d.cuModuleUnload(gone));
    }
    for (const CUfunction gone : {function, reinterpret_cast<CUfunction>(rubbish), CUfunction{}}) {
        BAD(d.cuLaunchKernel(gone, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
        BAD(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, gone));
    }
    BAD(d.cuLibraryUnload(reinterpret_cast<CUlibrary>(rubbish)));
    BAD(d.cuKernelGetFunction(&other, reinterpret_cast<CUkernel>(rubbish)));

    WRONG(d.cuGraphLaunch(reinterpret_cast<CUgraphExec>(rubbish), nullptr));
    WRONG(d.cuGraphExecDestroy(reinterpret_cast<CUgraphExec>(rubbish)));
    WRONG(d.cuGraphDestroy(reinterpret_cast<CUgraph>(rubbish)));
    WRONG(d.cuGraphDestroyNode(reinterpret_cast<CUgraphNode>(rubbish)));
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    WRONG(d.cuGraphDestroy(graph));
    WRONG(d.cuGraphDestroyNode(node));
    FAILS(cudaErrorInvalidValue, cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUDA(cudaGraphExecDestroy(exec));
    WRONG(d.cuGraphLaunch(exec, nullptr));
    WRONG(d.cuGraphExecDestroy(exec));
    WRONG(d.cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(rubbish)));
    WRONG(d.cuMemRelease(reinterpret_cast<CUmemGenericAllocationHandle>(rubbish)));
    WRONG(d.cuMemMap(2 << 20, 2 << 20, 0, 77, 0));
    DRIVER(d.cuMemFree(memory));
}

static void memory(const Driver& d) {
    CUdeviceptr p;
    int host[16] = {};
    void* q;
    DRIVER(d.cuMemAlloc(&p, 64));
    WRONG(d.cuMemFree(p + 4));
    WRONG(d.cuMemFreeHost(reinterpret_cast<void*>(p)));
    // Far beyond its end: some driver may round its size up.
    WRONG(d.cuMemcpyHtoD(p + (1ull << 36), host, 8));
    WRONG(d.cuMemsetD8(p, 0, 1ull << 36));
    DRIVER(d.cuMemFree(p));
    WRONG(d.cuMemFree(p));
    WRONG(d.cuMemFreeAsync(p, nullptr));
    WRONG(d.cuMemcpyHtoD(p, host, 4));
    WRONG(d.cuMemcpyDtoH(host, p, 4));
    WRONG(d.cuMemsetD32(p, 0, 1));
    WRONG(d.cuMemFree(reinterpret_cast<CUdeviceptr>(host)));
    unsigned type;
    WRONG(d.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    DRIVER(d.cuMemFree(0));

    DRIVER(d.cuMemAllocAsync(&p, 64, nullptr));
    DRIVER(d.cuMemFreeAsync(p, nullptr));
    WRONG(d.cuMemFreeAsync(p, nullptr));
    WRONG(d.cuMemFree(p));

    DRIVER(d.cuMemAllocHost(&q, 64));
    WRONG(d.cuMemFreeHost(static_cast<char*>(q) + 4));
    WRONG(d.cuMemFree(reinterpret_cast<CUdeviceptr>(q)));
    DRIVER(d.cuMemFreeHost(q));
    WRONG(d.cuMemFreeHost(q));
    WRONG(d.cuMemFreeHost(host));

    DRIVER(d.cuMemAllocManaged(&p, 64, CU_MEM_ATTACH_GLOBAL));
    DRIVER(d.cuMemFree(p));
    WRONG(d.cuMemFree(p));

    DRIVER(d.cuMemHostRegister(host, sizeof host, 0));
    ANSWERS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, d.cuMemHostRegister(host, sizeof host, 0));
    DRIVER(d.cuMemHostUnregister(host));
    ANSWERS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, d.cuMemHostUnregister(host));

    // The same through the runtime.
    void* r;
    CUDA(cudaMalloc(&r, 64));
    CUDA(cudaFree(r));
    FAILS(cudaErrorInvalidValue, cudaFree(r));
    FAILS(cudaErrorInvalidValue, cudaFree(host));
    FAILS(cudaErrorInvalidValue, cudaFreeHost(host));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(host, r, 4, cudaMemcpyDeviceToHost));
    FAILS(cudaErrorInvalidValue, cudaMemset(r, 0, 4));
    CUDA(cudaFree(nullptr));
    CUDA(cudaFreeHost(nullptr));
}

static void nothing(const Driver& d) {
    CUdeviceptr p;
    std::size_t pitch;
    int host = 5;
    WRONG(d.cuMemAlloc(nullptr, 64));
    WRONG(d.cuMemAlloc(&p, 0));
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, d.cuMemAlloc(&p, std::size_t{1} << 60));
    WRONG(d.cuMemAllocPitch(&p, &pitch, 0, 4, 4));
    WRONG(d.cuMemAllocPitch(&p, nullptr, 4, 4, 4));
    WRONG(d.cuMemAllocPitch(&p, &pitch, 4, 4, 5));
    WRONG(d.cuMemAllocAsync(nullptr, 4, nullptr));
    WRONG(d.cuMemAllocAsync(&p, 0, nullptr));
    WRONG(d.cuMemAllocHost(nullptr, 4));
    WRONG(d.cuMemHostAlloc(nullptr, 4, 0));
    WRONG(d.cuMemAllocManaged(nullptr, 4, CU_MEM_ATTACH_GLOBAL));
    WRONG(d.cuMemAllocManaged(&p, 4, 77));
    WRONG(d.cuMemGetInfo(nullptr, nullptr));
    WRONG(d.cuStreamCreate(nullptr, 0));
    WRONG(d.cuEventCreate(nullptr, 0));
    WRONG(d.cuModuleLoadData(nullptr, text));
    CUmodule module;
    WRONG(d.cuModuleLoadData(&module, nullptr));
    WRONG(d.cuDeviceGet(nullptr, 0));
    WRONG(d.cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    WRONG(d.cuDeviceGetName(nullptr, 10, 0));
    WRONG(d.cuCtxGetCurrent(nullptr));
    WRONG(d.cuMemcpy2D(nullptr));
    WRONG(d.cuMemcpy3D(nullptr));

    DRIVER(d.cuMemAlloc(&p, 64));
    // Nothing to do is done at once, wherever the pointers point.
    DRIVER(d.cuMemcpyHtoD(p, &host, 0));
    DRIVER(d.cuMemcpyDtoH(&host, p, 0));
    DRIVER(d.cuMemcpyDtoD(p, p, 0));
    DRIVER(d.cuMemcpyHtoD(p, nullptr, 0));
    DRIVER(d.cuMemsetD8(p, 0, 0));
    DRIVER(d.cuMemsetD2D8(p, 0, 0, 0, 0));
    DRIVER(d.cuMemcpyHtoDAsync(p, nullptr, 0, nullptr));
    DRIVER(d.cuMemcpyDtoHAsync(nullptr, p, 0, nullptr));
    WRONG(d.cuMemcpyHtoD(p, nullptr, 4));
    WRONG(d.cuMemcpyDtoH(nullptr, p, 4));
    WRONG(d.cuMemcpyHtoD(0, &host, 4));
    WRONG(d.cuMemcpyDtoD(p, 0, 4));
    WRONG(d.cuMemcpy(p, 0, 4));
    WRONG(d.cuMemsetD8(0, 0, 4));
    WRONG(d.cuMemsetD32(p + 1, 0, 4));
    EXPECT(host == 5);
    DRIVER(d.cuMemFree(p));

    FAILS(cudaErrorInvalidValue, cudaMalloc(static_cast<void**>(nullptr), 4));
    void* r = &host;
    CUDA(cudaMalloc(&r, 0));
    EXPECT(r == nullptr);
    CUDA(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(nullptr, &host, 4, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(&host, &host, 4, static_cast<cudaMemcpyKind>(9)));
    FAILS(cudaErrorInvalidValue, cudaGetDevice(nullptr));
    FAILS(cudaErrorInvalidValue, cudaGetDeviceCount(nullptr));
    FAILS(cudaErrorInvalidValue, cudaStreamCreate(nullptr));
    FAILS(cudaErrorInvalidValue, cudaEventCreate(static_cast<cudaEvent_t*>(nullptr)));
    FAILS(cudaErrorInvalidDevice, cudaSetDevice(99));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventDestroy(nullptr));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(nullptr));
    FAILS(cudaErrorInvalidDeviceFunction,
          cudaLaunchKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0, nullptr));
    put<<<0, 1>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    put<<<1, dim3(1, 1, 65)>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    put<<<1, 1, 1 << 20>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaDeviceSynchronize());
}

// Things of one context in another, and of one that has ended.
static void contexts(const Driver& d) {
    CUcontext first, second;
    DRIVER(d.cuCtxGetCurrent(&first));
    DRIVER(d.cuCtxCreate(&second, 0, 0));
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUfunction function;
    CUdeviceptr p;
    int value = 3;
    DRIVER(d.cuStreamCreate(&stream, 0));
    DRIVER(d.cuEventCreate(&event, 0));
    DRIVER(d.cuModuleLoadData(&module, text));
    DRIVER(d.cuModuleGetFunction(&function, module, "count"));
    DRIVER(d.cuMemAlloc(&p, 64));
    DRIVER(d.cuCtxSetCurrent(first));
    void* arguments[] = {&p};
    BAD(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    BAD(d.cuEventRecord(event, nullptr));
    DRIVER(d.cuStreamSynchronize(stream));
    DRIVER(d.cuMemcpyHtoD(p, &value, 4));  // addresses are one space
    DRIVER(d.cuCtxDestroy(second));
    for (int round = 0; round < 2; round++) {
        EXPECT(d.cuStreamSynchronize(stream) != CUDA_SUCCESS);
        EXPECT(d.cuEventQuery(event) != CUDA_SUCCESS);
        EXPECT(d.cuModuleUnload(module) != CUDA_SUCCESS);
        EXPECT(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) != CUDA_SUCCESS);
        WRONG(d.cuMemcpyHtoD(p, &value, 4));
        WRONG(d.cuMemFree(p));
        EXPECT(d.cuCtxPushCurrent(second) != CUDA_SUCCESS);
        EXPECT(d.cuCtxSetCurrent(second) != CUDA_SUCCESS);
        ANSWERS(CUDA_ERROR_INVALID_CONTEXT, d.cuCtxDestroy(second));
    }
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, d.cuCtxSetCurrent(reinterpret_cast<CUcontext>(&value)));
    DRIVER(d.cuCtxSetCurrent(nullptr));  // pops one of two
    DRIVER(d.cuCtxSetCurrent(nullptr));
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, d.cuMemAlloc(&p, 4));
    DRIVER(d.cuCtxSetCurrent(first));
    int* q;
    CUDA(cudaMalloc(&q, 4));
    put<<<1, 1>>>(q, 9);
    CUDA(cudaMemcpy(&value, q, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 9);
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    handles(d);
    memory(d);
    nothing(d);
    contexts(d);
    std::printf("misuse: ok\n");
}
