// SPDX-License-Identifier: MIT
// What programs do wrong gets an error of CUDA's and harms nothing: memory that is freed twice or used afterwards, things
// of another context, null pointers and handles, and sizes of 0, which are no mistake. See also stale_handles.cpp.
#include <cstring>

#include "driver.h"

__global__ void put(int* p, int value) { *p = value; }

struct Driver {
    DRIVER_FUNCTION(cuCtxCreate, 3020)
    DRIVER_FUNCTION(cuCtxDestroy, 4000)
    DRIVER_FUNCTION(cuCtxSetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxGetCurrent, 4000)
    DRIVER_FUNCTION(cuStreamCreate, 2000)
    DRIVER_FUNCTION(cuStreamSynchronize, 2000)
    DRIVER_FUNCTION(cuStreamWaitEvent, 3020)
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
    DRIVER_FUNCTION(cuPointerGetAttribute, 4000)
    DRIVER_FUNCTION(cuDeviceGet, 2000)
    DRIVER_FUNCTION(cuDeviceGetAttribute, 2000)
    DRIVER_FUNCTION(cuDeviceGetName, 2000)
    DRIVER_FUNCTION(cuGraphLaunch, 10000)
    DRIVER_FUNCTION(cuGraphExecDestroy, 10000)
    DRIVER_FUNCTION(cuGraphDestroy, 10000)
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
static void handles(const Driver& d) {
    CUevent event, second;
    CUmodule module;
    CUfunction function, other;
    CUdeviceptr memory, address;
    int value;
    float time;
    DRIVER(d.cuMemAlloc(&memory, 64));
    DRIVER(d.cuEventCreate(&event, 0));
    DRIVER(d.cuEventCreate(&second, 0));
    BAD(d.cuEventElapsedTime(&time, event, second));  // never recorded
    BAD(d.cuEventRecord(nullptr, nullptr));
    BAD(d.cuEventQuery(nullptr));
    BAD(d.cuEventSynchronize(nullptr));
    BAD(d.cuEventElapsedTime(&time, event, nullptr));
    BAD(d.cuStreamWaitEvent(nullptr, nullptr, 0));
    BAD(d.cuEventDestroy(nullptr));
    DRIVER(d.cuEventDestroy(second));
    DRIVER(d.cuEventDestroy(event));

    void* arguments[] = {&memory};
    DRIVER(d.cuModuleLoadData(&module, text));
    DRIVER(d.cuModuleGetFunction(&function, module, "count"));
    DRIVER(d.cuModuleUnload(module));
    for (const CUmodule gone : {module, CUmodule{}}) {
        BAD(d.cuModuleGetFunction(&other, gone, "count"));
        BAD(d.cuModuleGetGlobal(&address, nullptr, gone, "counter"));
        BAD(d.cuModuleUnload(gone));
    }
    for (const CUfunction gone : {function, CUfunction{}}) {
        BAD(d.cuLaunchKernel(gone, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
        BAD(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, gone));
    }

    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    WRONG(d.cuGraphDestroy(graph));
    FAILS(cudaErrorInvalidValue, cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUDA(cudaGraphExecDestroy(exec));
    WRONG(d.cuGraphLaunch(exec, nullptr));
    WRONG(d.cuGraphExecDestroy(exec));
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
    DRIVER(d.cuMemAllocAsync(&p, 0, nullptr));
    DRIVER(d.cuMemFreeAsync(p, nullptr));
    WRONG(d.cuMemAllocHost(nullptr, 4));
    WRONG(d.cuMemHostAlloc(nullptr, 4, 0));
    WRONG(d.cuMemAllocManaged(nullptr, 4, CU_MEM_ATTACH_GLOBAL));
    WRONG(d.cuMemAllocManaged(&p, 4, 77));
    DRIVER(d.cuMemGetInfo(nullptr, nullptr));
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
    CUDA(cudaMalloc(&r, 4));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(r, &host, ~std::size_t{0}, cudaMemcpyHostToDevice));
    CUDA(cudaFree(r));
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
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    put<<<1, dim3(1, 1, 65)>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    put<<<1, 1, 1 << 20>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaDeviceSynchronize());
}

// Things of one context in another.
static void contexts(const Driver& d) {
    CUcontext first, second, now;
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
    DRIVER(d.cuCtxGetCurrent(&now));
    EXPECT(now == first);
    // Its memory ended with it.
    WRONG(d.cuMemcpyHtoD(p, &value, 4));
    WRONG(d.cuMemFree(p));
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
