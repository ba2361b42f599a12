// SPDX-License-Identifier: MIT
// cudaGetDeviceProperties: one struct filled from the driver's device attributes.
#include <initializer_list>

#include "api.h"

using namespace hpe::soft::cudart;

namespace {

// Where in cudaDeviceProp the value of an attribute goes.
struct IntegerField {
    CUdevice_attribute attribute;
    int cudaDeviceProp::*field;
};
struct SizeField {
    CUdevice_attribute attribute;
    size_t cudaDeviceProp::*field;
};
struct UnsignedField {
    CUdevice_attribute attribute;
    unsigned cudaDeviceProp::*field;
};

#define FIELD(attribute, field) \
    { CU_DEVICE_ATTRIBUTE_##attribute, &cudaDeviceProp::field }
constexpr IntegerField integers[] = {
    FIELD(MAX_REGISTERS_PER_BLOCK, regsPerBlock),
    FIELD(WARP_SIZE, warpSize),
    FIELD(MAX_THREADS_PER_BLOCK, maxThreadsPerBlock),
    FIELD(COMPUTE_CAPABILITY_MAJOR, major),
    FIELD(COMPUTE_CAPABILITY_MINOR, minor),
    FIELD(MULTIPROCESSOR_COUNT, multiProcessorCount),
    FIELD(INTEGRATED, integrated),
    FIELD(CAN_MAP_HOST_MEMORY, canMapHostMemory),
    FIELD(MAXIMUM_TEXTURE1D_WIDTH, maxTexture1D),
    FIELD(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, maxTexture1DMipmap),
    FIELD(MAXIMUM_TEXTURECUBEMAP_WIDTH, maxTextureCubemap),
    FIELD(MAXIMUM_SURFACE1D_WIDTH, maxSurface1D),
    FIELD(MAXIMUM_SURFACECUBEMAP_WIDTH, maxSurfaceCubemap),
    FIELD(CONCURRENT_KERNELS, concurrentKernels),
    FIELD(ECC_ENABLED, ECCEnabled),
    FIELD(PCI_BUS_ID, pciBusID),
    FIELD(PCI_DEVICE_ID, pciDeviceID),
    FIELD(PCI_DOMAIN_ID, pciDomainID),
    FIELD(TCC_DRIVER, tccDriver),
    FIELD(ASYNC_ENGINE_COUNT, asyncEngineCount),
    FIELD(UNIFIED_ADDRESSING, unifiedAddressing),
    FIELD(GLOBAL_MEMORY_BUS_WIDTH, memoryBusWidth),
    FIELD(L2_CACHE_SIZE, l2CacheSize),
    FIELD(MAX_PERSISTING_L2_CACHE_SIZE, persistingL2CacheMaxSize),
    FIELD(MAX_THREADS_PER_MULTIPROCESSOR, maxThreadsPerMultiProcessor),
    FIELD(STREAM_PRIORITIES_SUPPORTED, streamPrioritiesSupported),
    FIELD(GLOBAL_L1_CACHE_SUPPORTED, globalL1CacheSupported),
    FIELD(LOCAL_L1_CACHE_SUPPORTED, localL1CacheSupported),
    FIELD(MAX_REGISTERS_PER_MULTIPROCESSOR, regsPerMultiprocessor),
    FIELD(MANAGED_MEMORY, managedMemory),
    FIELD(MULTI_GPU_BOARD, isMultiGpuBoard),
    FIELD(MULTI_GPU_BOARD_GROUP_ID, multiGpuBoardGroupID),
    FIELD(HOST_NATIVE_ATOMIC_SUPPORTED, hostNativeAtomicSupported),
    FIELD(PAGEABLE_MEMORY_ACCESS, pageableMemoryAccess),
    FIELD(CONCURRENT_MANAGED_ACCESS, concurrentManagedAccess),
    FIELD(COMPUTE_PREEMPTION_SUPPORTED, computePreemptionSupported),
    FIELD(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, canUseHostPointerForRegisteredMem),
    FIELD(COOPERATIVE_LAUNCH, cooperativeLaunch),
    FIELD(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, pageableMemoryAccessUsesHostPageTables),
    FIELD(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, directManagedMemAccessFromHost),
    FIELD(MAX_BLOCKS_PER_MULTIPROCESSOR, maxBlocksPerMultiProcessor),
    FIELD(MAX_ACCESS_POLICY_WINDOW_SIZE, accessPolicyMaxWindowSize),
    FIELD(HOST_REGISTER_SUPPORTED, hostRegisterSupported),
    FIELD(SPARSE_CUDA_ARRAY_SUPPORTED, sparseCudaArraySupported),
    FIELD(READ_ONLY_HOST_REGISTER_SUPPORTED, hostRegisterReadOnlySupported),
    FIELD(TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, timelineSemaphoreInteropSupported),
    FIELD(MEMORY_POOLS_SUPPORTED, memoryPoolsSupported),
    FIELD(GPU_DIRECT_RDMA_SUPPORTED, gpuDirectRDMASupported),
    FIELD(GPU_DIRECT_RDMA_WRITES_ORDERING, gpuDirectRDMAWritesOrdering),
    FIELD(DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, deferredMappingCudaArraySupported),
    FIELD(IPC_EVENT_SUPPORTED, ipcEventSupported),
    FIELD(CLUSTER_LAUNCH, clusterLaunch),
    FIELD(UNIFIED_FUNCTION_POINTERS, unifiedFunctionPointers),
    FIELD(NUMA_CONFIG, deviceNumaConfig),
    FIELD(NUMA_ID, deviceNumaId),
    FIELD(MPS_ENABLED, mpsEnabled),
    FIELD(HOST_NUMA_ID, hostNumaId),
    FIELD(HOST_NUMA_MULTINODE_IPC_SUPPORTED, hostNumaMultinodeIpcSupported),
};
constexpr SizeField sizes[] = {
    FIELD(MAX_SHARED_MEMORY_PER_BLOCK, sharedMemPerBlock),
    FIELD(MAX_PITCH, memPitch),
    FIELD(TOTAL_CONSTANT_MEMORY, totalConstMem),
    FIELD(TEXTURE_ALIGNMENT, textureAlignment),
    FIELD(TEXTURE_PITCH_ALIGNMENT, texturePitchAlignment),
    FIELD(SURFACE_ALIGNMENT, surfaceAlignment),
    FIELD(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, sharedMemPerMultiprocessor),
    FIELD(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, sharedMemPerBlockOptin),
    FIELD(RESERVED_SHARED_MEMORY_PER_BLOCK, reservedSharedMemPerBlock),
};
constexpr UnsignedField unsigneds[] = {
    FIELD(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, gpuDirectRDMAFlushWritesOptions),
    FIELD(MEMPOOL_SUPPORTED_HANDLE_TYPES, memoryPoolSupportedHandleTypes),
    FIELD(GPU_PCI_DEVICE_ID, gpuPciDeviceID),
    FIELD(GPU_PCI_SUBSYSTEM_ID, gpuPciSubsystemID),
};
#undef FIELD

}  // namespace

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    return with_driver([&](const Driver& d) {
        CUdevice handle{};
        if (p == nullptr) return cudaErrorInvalidValue;
        if (cudaError_t e = device_handle(d, device, handle)) return e;
        *p = {};
        if (CUresult r = d.cuDeviceGetName(p->name, sizeof p->name, handle)) return as_error(r);
        if (CUresult r = d.cuDeviceTotalMem(&p->totalGlobalMem, handle)) return as_error(r);
        static_assert(sizeof p->uuid == sizeof(CUuuid));
        d.cuDeviceGetUuid(reinterpret_cast<CUuuid*>(&p->uuid), handle);

        // An attribute that the driver does not know leaves its field 0.
        const auto get = [&](CUdevice_attribute attribute) {
            int value = 0;
            return d.cuDeviceGetAttribute(&value, attribute, handle) == CUDA_SUCCESS ? value : 0;
        };
        for (const auto& f : integers) p->*f.field = get(f.attribute);
        for (const auto& f : sizes) p->*f.field = static_cast<size_t>(get(f.attribute));
        for (const auto& f : unsigneds) p->*f.field = static_cast<unsigned>(get(f.attribute));

        // Fields of several numbers; the attributes of each are consecutive or listed here in the field's order.
        const auto fill = [&](int* field, std::initializer_list<CUdevice_attribute> attributes) {
            for (CUdevice_attribute a : attributes) *field++ = get(a);
        };
#define A(name) CU_DEVICE_ATTRIBUTE_##name
        fill(p->maxThreadsDim, {A(MAX_BLOCK_DIM_X), A(MAX_BLOCK_DIM_Y), A(MAX_BLOCK_DIM_Z)});
        fill(p->maxGridSize, {A(MAX_GRID_DIM_X), A(MAX_GRID_DIM_Y), A(MAX_GRID_DIM_Z)});
        fill(p->maxTexture2D, {A(MAXIMUM_TEXTURE2D_WIDTH), A(MAXIMUM_TEXTURE2D_HEIGHT)});
        fill(p->maxTexture2DMipmap, {A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH), A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT)});
        fill(p->maxTexture2DLinear, {A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH), A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
                                     A(MAXIMUM_TEXTURE2D_LINEAR_PITCH)});
        fill(p->maxTexture2DGather, {A(MAXIMUM_TEXTURE2D_GATHER_WIDTH), A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT)});
        fill(p->maxTexture3D, {A(MAXIMUM_TEXTURE3D_WIDTH), A(MAXIMUM_TEXTURE3D_HEIGHT), A(MAXIMUM_TEXTURE3D_DEPTH)});
        fill(p->maxTexture3DAlt, {A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE), A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
                                  A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE)});
        fill(p->maxTexture1DLayered, {A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH), A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS)});
        fill(p->maxTexture2DLayered, {A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH), A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
                                      A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS)});
        fill(p->maxTextureCubemapLayered,
             {A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH), A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS)});
        fill(p->maxSurface2D, {A(MAXIMUM_SURFACE2D_WIDTH), A(MAXIMUM_SURFACE2D_HEIGHT)});
        fill(p->maxSurface3D, {A(MAXIMUM_SURFACE3D_WIDTH), A(MAXIMUM_SURFACE3D_HEIGHT), A(MAXIMUM_SURFACE3D_DEPTH)});
        fill(p->maxSurface1DLayered, {A(MAXIMUM_SURFACE1D_LAYERED_WIDTH), A(MAXIMUM_SURFACE1D_LAYERED_LAYERS)});
        fill(p->maxSurface2DLayered, {A(MAXIMUM_SURFACE2D_LAYERED_WIDTH), A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
                                      A(MAXIMUM_SURFACE2D_LAYERED_LAYERS)});
        fill(p->maxSurfaceCubemapLayered,
             {A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH), A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS)});
#undef A
        return cudaSuccess;
    });
}
