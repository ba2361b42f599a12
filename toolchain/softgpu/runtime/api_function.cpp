// SPDX-License-Identifier: MIT
// What can be asked and set about a kernel, and the occupancy calculator.
#include "api.h"
#include "code.h"

using namespace hpe::soft::cudart;

namespace {

// With the kernel that `function` names, and the current device.
template <class Work>
cudaError_t with_kernel(const void* function, Work&& work) {
    return with_context([&](const Driver& d) {
        CUkernel kernel = nullptr;
        CUdevice device{};
        if (cudaError_t e = find_kernel(d, function, kernel)) return e;
        if (CUresult r = d.cuCtxGetDevice(&device)) return as_error(r);
        return as_error(work(d, kernel, device));
    });
}

// The driver takes a kernel wherever it takes a function.
CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

CUlaunchConfig driver_config(const cudaLaunchConfig_t& config) {
    CUlaunchConfig c{};
    c.gridDimX = config.gridDim.x, c.gridDimY = config.gridDim.y, c.gridDimZ = config.gridDim.z;
    c.blockDimX = config.blockDim.x, c.blockDimY = config.blockDim.y, c.blockDimZ = config.blockDim.z;
    c.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
    c.hStream = config.stream;
    c.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
    c.numAttrs = config.numAttrs;
    return c;
}

}  // namespace

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice device) {
        if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *a = {};
        CUresult failed = CUDA_SUCCESS;
        const auto get = [&](CUfunction_attribute which) {
            int value = 0;
            const CUresult r = d.cuKernelGetAttribute(&value, which, kernel, device);
            // Newer attributes may be unknown to the driver: their field stays 0.
            if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE) failed = r;
            return r == CUDA_SUCCESS ? value : 0;
        };
        a->sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
        a->constSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
        a->localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
        a->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        a->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
        a->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
        a->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
        a->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
        a->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        a->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
        a->clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
        a->requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
        a->requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
        a->requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
        a->nonPortableClusterSizeAllowed = get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
        a->clusterSchedulingPolicyPreference = get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
        return failed;
    });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice device) {
        return d.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel, device);
    });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device) {
    return with_context([&](const Driver& d) {
        CUdevice handle{};
        if (cudaError_t e = device_handle(d, device, handle)) return e;
        return as_error(d.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel, handle));
    });
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice device) {
        return d.cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(config), device);
    });
}

// The width of shared-memory banks can be set on no device that CUDA 13 supports.
cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig) {
    return with_kernel(function, [](const Driver&, CUkernel, CUdevice) { return CUDA_SUCCESS; });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
    return with_kernel(function,
                       [&](const Driver& d, CUkernel kernel, CUdevice) { return d.cuKernelGetName(name, kernel); });
}

cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* size) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice) {
        return d.cuKernelGetParamInfo(kernel, index, offset, size);
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_size,
                                                                   size_t shared_bytes, unsigned flags) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice) {
        return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, as_function(kernel), block_size,
                                                                      shared_bytes, flags);
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size,
                                                          size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes,
                                                                  cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int block_size) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice) {
        return d.cuOccupancyAvailableDynamicSMemPerBlock(bytes, as_function(kernel), blocks, block_size);
    });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* function, const cudaLaunchConfig_t* config) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice) {
        if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUlaunchConfig c = driver_config(*config);
        return d.cuOccupancyMaxPotentialClusterSize(size, as_function(kernel), &c);
    });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function, const cudaLaunchConfig_t* config) {
    return with_kernel(function, [&](const Driver& d, CUkernel kernel, CUdevice) {
        if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUlaunchConfig c = driver_config(*config);
        return d.cuOccupancyMaxActiveClusters(clusters, as_function(kernel), &c);
    });
}
}
