// SPDX-License-Identifier: MIT
// Kernels are named by host stubs in the runtime and by handles in the driver; copies count elements or bytes.
#include "node_params.h"

#include <cstring>

#include "code.h"
#include "copy_params.h"

namespace hpe::soft::cudart {

static_assert(sizeof(CUgraphNodeParams) == sizeof(cudaGraphNodeParams));
static_assert(sizeof(CUDA_HOST_NODE_PARAMS) == sizeof(cudaHostNodeParams));
static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == sizeof(cudaMemAllocNodeParams));

cudaError_t describe_kernel(const Driver& d, CUDA_KERNEL_NODE_PARAMS& to, const cudaKernelNodeParams& from) {
    to = {};
    if (cudaError_t e = find_kernel(d, from.func, to.kern)) return e;
    to.gridDimX = from.gridDim.x, to.gridDimY = from.gridDim.y, to.gridDimZ = from.gridDim.z;
    to.blockDimX = from.blockDim.x, to.blockDimY = from.blockDim.y, to.blockDimZ = from.blockDim.z;
    to.sharedMemBytes = from.sharedMemBytes;
    to.kernelParams = from.kernelParams;
    to.extra = from.extra;
    return cudaSuccess;
}

cudaError_t describe_variable_copy(const Driver& d, CUDA_MEMCPY3D& to, const void* symbol, const void* other,
                                   size_t size, size_t offset, cudaMemcpyKind kind, bool into_variable) {
    CUdeviceptr address = 0;
    size_t whole = 0;
    if (cudaError_t e = find_variable(d, symbol, address, whole)) return e;
    if (offset > whole || size > whole - offset) return cudaErrorInvalidValue;
    void* part = reinterpret_cast<void*>(address + offset);
    return into_variable ? describe_1d(to, part, other, size, kind)
                         : describe_1d(to, const_cast<void*>(other), part, size, kind);
}

CUDA_MEMSET_NODE_PARAMS describe_memset(const cudaMemsetParams& from) {
    CUDA_MEMSET_NODE_PARAMS to{};
    to.dst = reinterpret_cast<CUdeviceptr>(from.dst);
    to.pitch = from.pitch;
    to.value = from.value;
    to.elementSize = from.elementSize;
    to.width = from.width;
    to.height = from.height;
    return to;
}

cudaError_t describe_node(const Driver& d, CUgraphNodeParams& to, const cudaGraphNodeParams& from) {
    to = {};
    CUcontext context = nullptr;
    if (CUresult r = d.cuCtxGetCurrent(&context)) return static_cast<cudaError_t>(r);
    switch (from.type) {
        case cudaGraphNodeTypeKernel: {
            const auto& k = from.kernel;
            const cudaKernelNodeParams plain{k.func, k.gridDim, k.blockDim, k.sharedMemBytes, k.kernelParams, k.extra};
            CUDA_KERNEL_NODE_PARAMS described;
            if (cudaError_t e = describe_kernel(d, described, plain)) return e;
            static_assert(sizeof described == sizeof to.kernel);
            std::memcpy(&to.kernel, &described, sizeof described);
            break;
        }
        case cudaGraphNodeTypeMemcpy:
            if (cudaError_t e = describe_3d(d, to.memcpy.copyParams, from.memcpy.copyParams)) return e;
            to.memcpy.flags = from.memcpy.flags;
            to.memcpy.copyCtx = context;
            break;
        case cudaGraphNodeTypeMemset:
            to.memset.dst = reinterpret_cast<CUdeviceptr>(from.memset.dst);
            to.memset.pitch = from.memset.pitch;
            to.memset.value = from.memset.value;
            to.memset.elementSize = from.memset.elementSize;
            to.memset.width = from.memset.width;
            to.memset.height = from.memset.height;
            to.memset.ctx = context;
            break;
        case cudaGraphNodeTypeHost:
        case cudaGraphNodeTypeGraph:
        case cudaGraphNodeTypeEmpty:
        case cudaGraphNodeTypeWaitEvent:
        case cudaGraphNodeTypeEventRecord:
        case cudaGraphNodeTypeMemAlloc:
        case cudaGraphNodeTypeMemFree:
            // The same layout in both.
            std::memcpy(static_cast<void*>(&to), &from, sizeof to);
            break;
        case cudaGraphNodeTypeConditional:
            to.conditional.handle = from.conditional.handle;
            to.conditional.type = static_cast<CUgraphConditionalNodeType>(from.conditional.type);
            to.conditional.size = from.conditional.size;
            to.conditional.ctx = context;
            break;
        case cudaGraphNodeTypeExtSemaphoreSignal:
        case cudaGraphNodeTypeExtSemaphoreWait:
            return static_cast<cudaError_t>(not_supported("a graph node of this type"));
        default: return cudaErrorInvalidValue;
    }
    to.type = static_cast<CUgraphNodeType>(from.type);
    return cudaSuccess;
}

}  // namespace hpe::soft::cudart
