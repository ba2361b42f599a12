// SPDX-License-Identifier: MIT
// Handles that are gone or never were are told from good ones by the soft device alone: each use gets an error and harms
// nothing. CUDA leaves it undefined, and NVIDIA's driver crashes at many of these. See also misuse.cu.
#include <cstring>

#include "driver.h"

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
    DRIVER_FUNCTION(cuMemFree, 3020)
    DRIVER_FUNCTION(cuMemcpyHtoD, 3020)
    DRIVER_FUNCTION(cuMemcpyHtoDAsync, 3020)
    DRIVER_FUNCTION(cuMemsetD32Async, 3020)
    DRIVER_FUNCTION(cuGraphLaunch, 10000)
    DRIVER_FUNCTION(cuGraphExecDestroy, 10000)
    DRIVER_FUNCTION(cuGraphDestroy, 10000)
    DRIVER_FUNCTION(cuGraphDestroyNode, 10000)
    DRIVER_FUNCTION(cuMemPoolDestroy, 11020)
    DRIVER_FUNCTION(cuMemRelease, 10020)
    DRIVER_FUNCTION(cuMemMap, 10020)
    DRIVER_FUNCTION(cuLibraryUnload, 12000)
    DRIVER_FUNCTION(cuKernelGetFunction, 12000)
    DRIVER_FUNCTION(cuArrayCreate, 3020)
    DRIVER_FUNCTION(cuArrayDestroy, 2000)
    DRIVER_FUNCTION(cuMemcpyHtoA, 3020)
    DRIVER_FUNCTION(cuLinkCreate, 6050)
    DRIVER_FUNCTION(cuLinkAddData, 6050)
    DRIVER_FUNCTION(cuLinkComplete, 5050)
    DRIVER_FUNCTION(cuLinkDestroy, 5050)
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
    DRIVER(d.cuEventDestroy(second));
    for (const CUevent gone : {second, reinterpret_cast<CUevent>(rubbish), reinterpret_cast<CUevent>(0x1234)}) {
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
    for (const CUmodule gone : {module, reinterpret_cast<CUmodule>(rubbish)}) {
        BAD(d.cuModuleGetFunction(&other, gone, "count"));
        BAD(d.cuModuleGetGlobal(&address, nullptr, gone, "counter"));
        BAD(d.cuModuleUnload(gone));
    }
    for (const CUfunction gone : {function, reinterpret_cast<CUfunction>(rubbish)}) {
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
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUDA(cudaGraphDestroy(graph));
    WRONG(d.cuGraphDestroyNode(node));
    WRONG(d.cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(rubbish)));
    WRONG(d.cuMemRelease(reinterpret_cast<CUmemGenericAllocationHandle>(rubbish)));
    WRONG(d.cuMemMap(2 << 20, 2 << 20, 0, 77, 0));
    DRIVER(d.cuMemFree(memory));
}

// A context that has ended, and what was in it.
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
    DRIVER(d.cuCtxDestroy(second));
    for (int round = 0; round < 2; round++) {
        EXPECT(d.cuStreamSynchronize(stream) != CUDA_SUCCESS);
        EXPECT(d.cuEventQuery(event) != CUDA_SUCCESS);
        EXPECT(d.cuModuleUnload(module) != CUDA_SUCCESS);
        EXPECT(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) != CUDA_SUCCESS);
        WRONG(d.cuMemcpyHtoD(p, &value, 4));
        WRONG(d.cuMemFree(p));
        // It can be made current; what is done in it fails.
        DRIVER(d.cuCtxSetCurrent(second));
        ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, d.cuMemAlloc(&p, 4));
        DRIVER(d.cuCtxSetCurrent(first));
        ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, d.cuCtxDestroy(second));
    }
    DRIVER(d.cuMemAlloc(&p, 4));
    DRIVER(d.cuMemFree(p));
}

static void arrays(const Driver& d) {
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR descriptor{300, 0, CU_AD_FORMAT_UNSIGNED_INT16, 1};
    DRIVER(d.cuArrayCreate(&array, &descriptor));
    DRIVER(d.cuArrayDestroy(array));
    char bytes[10] = {};
    BAD(d.cuArrayDestroy(array));
    BAD(d.cuMemcpyHtoA(array, 0, bytes, sizeof bytes));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = reinterpret_cast<cudaArray_t>(array);
    const cudaTextureDesc reading{};
    cudaTextureObject_t texture;
    FAILS(cudaErrorInvalidResourceHandle, cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
}

static void links(const Driver& d) {
    CUlinkState state;
    void* image;
    DRIVER(d.cuLinkCreate(0, nullptr, nullptr, &state));
    DRIVER(d.cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text), sizeof text, nullptr, 0, nullptr, nullptr));
    DRIVER(d.cuLinkComplete(state, &image, nullptr));
    DRIVER(d.cuLinkDestroy(state));
    for (const CUlinkState gone : {state, CUlinkState{}}) {
        BAD(d.cuLinkDestroy(gone));
        BAD(d.cuLinkComplete(gone, &image, nullptr));
        BAD(d.cuLinkAddData(gone, CU_JIT_INPUT_PTX, const_cast<char*>(text), sizeof text, nullptr, 0, nullptr, nullptr));
    }
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    handles(d);
    contexts(d);
    arrays(d);
    links(d);
    std::printf("stale handles: ok\n");
}
