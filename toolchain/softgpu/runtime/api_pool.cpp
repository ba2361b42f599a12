// SPDX-License-Identifier: MIT
// Stream-ordered allocation and memory pools. The structs of both APIs have the same layout.
#include "api.h"

using namespace hpe::soft::cudart;

static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));

namespace {

CUmemLocation* driver_location(cudaMemLocation* location) { return reinterpret_cast<CUmemLocation*>(location); }

}  // namespace

HPE_BOTH_FLAVOURS(cudaMallocAsync, ptsz, (void** pointer, size_t size, cudaStream_t stream), (pointer, size, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemAllocAsync(device_pointer(pointer), size, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMallocFromPoolAsync, ptsz, (void** pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream),
                  (pointer, size, pool, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemAllocFromPoolAsync(device_pointer(pointer), size, pool, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaFreeAsync, ptsz, (void* pointer, cudaStream_t stream), (pointer, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return pointer == nullptr ? CUDA_SUCCESS : d.cuMemFreeAsync(device_pointer(pointer), stream);
    });
}

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    return with_device(device,
                       [&](const Driver& d, CUdevice handle) { return d.cuDeviceGetDefaultMemPool(pool, handle); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    return with_device(device, [&](const Driver& d, CUdevice handle) { return d.cuDeviceGetMemPool(pool, handle); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    return with_driver([&](const Driver& d) {
        CUdevice handle{};
        if (device_handle(d, device, handle) != cudaSuccess) return CUDA_ERROR_INVALID_VALUE;
        return d.cuDeviceSetMemPool(handle, pool);
    });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        return d.cuDeviceGetGraphMemAttribute(handle, static_cast<CUgraphMem_attribute>(attribute), value);
    });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        return d.cuDeviceSetGraphMemAttribute(handle, static_cast<CUgraphMem_attribute>(attribute), value);
    });
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
    return with_device(device, [&](const Driver& d, CUdevice handle) { return d.cuDeviceGraphMemTrim(handle); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    return with_context(
        [&](const Driver& d) { return d.cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(properties)); });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return with_context([&](const Driver& d) { return d.cuMemPoolDestroy(pool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    return with_context([&](const Driver& d) { return d.cuMemPoolTrimTo(pool, bytes); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
    });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
    });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count);
    });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool, driver_location(location));
    });
}

cudaError_t cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool, cudaMemAllocationHandleType type,
                                               unsigned flags) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolExportToShareableHandle(handle, pool, static_cast<CUmemAllocationHandleType>(type), flags);
    });
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle, cudaMemAllocationHandleType type,
                                                 unsigned flags) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolImportFromShareableHandle(pool, handle, static_cast<CUmemAllocationHandleType>(type), flags);
    });
}

cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* data, void* pointer) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(data), device_pointer(pointer));
    });
}

cudaError_t cudaMemPoolImportPointer(void** pointer, cudaMemPool_t pool, cudaMemPoolPtrExportData* data) {
    return with_context([&](const Driver& d) {
        return d.cuMemPoolImportPointer(device_pointer(pointer), pool, reinterpret_cast<CUmemPoolPtrExportData*>(data));
    });
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
    return with_context([&](const Driver& d) {
        return d.cuMemGetDefaultMemPool(pool, driver_location(location), static_cast<CUmemAllocationType>(type));
    });
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
    return with_context([&](const Driver& d) {
        return d.cuMemGetMemPool(pool, driver_location(location), static_cast<CUmemAllocationType>(type));
    });
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
    return with_context([&](const Driver& d) {
        return d.cuMemSetMemPool(driver_location(location), static_cast<CUmemAllocationType>(type), pool);
    });
}
}
