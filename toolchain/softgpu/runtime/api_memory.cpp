// SPDX-License-Identifier: MIT
// Allocation of device, host and managed memory, and what can be asked about a pointer.
#include "api.h"

using namespace hpe::soft::cudart;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t size) {
    return with_context([&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemAlloc(device_pointer(pointer), size);
    });
}

cudaError_t cudaFree(void* pointer) {
    return with_context([&](const Driver& d) { return d.cuMemFree(device_pointer(pointer)); });
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    return with_context([&](const Driver& d) {
        if (pointer == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        *pitch = 0;
        if (width == 0 || height == 0) return CUDA_SUCCESS;
        return d.cuMemAllocPitch(device_pointer(pointer), pitch, width, height, 4);
    });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
    return with_context([&](const Driver& d) {
        if (pitched == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pitched = cudaPitchedPtr{nullptr, 0, extent.width, extent.height};
        if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
        return d.cuMemAllocPitch(device_pointer(&pitched->ptr), &pitched->pitch, extent.width,
                                 extent.height * extent.depth, 4);
    });
}

cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned flags) {
    return with_context([&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemAllocManaged(device_pointer(pointer), size, flags);
    });
}

cudaError_t cudaMallocHost(void** pointer, size_t size) {
    return with_context([&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemAllocHost(pointer, size);
    });
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
    return with_context([&](const Driver& d) {
        if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *pointer = nullptr;
        return size == 0 ? CUDA_SUCCESS : d.cuMemHostAlloc(pointer, size, flags);
    });
}

cudaError_t cudaFreeHost(void* pointer) {
    return with_context([&](const Driver& d) { return pointer == nullptr ? CUDA_SUCCESS : d.cuMemFreeHost(pointer); });
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuMemHostRegister(pointer, size, flags); });
}

cudaError_t cudaHostUnregister(void* pointer) {
    return with_context([&](const Driver& d) { return d.cuMemHostUnregister(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
    return with_context(
        [&](const Driver& d) { return d.cuMemHostGetDevicePointer(device_pointer(device), host, flags); });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
    return with_context([&](const Driver& d) { return d.cuMemHostGetFlags(flags, host); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    return with_context([&](const Driver& d) { return d.cuMemGetInfo(free, total); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return with_context([&](const Driver& d) {
        if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUmemorytype type{};
        int managed = 0, ordinal = cudaInvalidDeviceId;
        CUdeviceptr device = 0;
        void* host = nullptr;
        CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                       CU_POINTER_ATTRIBUTE_HOST_POINTER};
        void* answers[] = {&type, &managed, &ordinal, &device, &host};
        if (CUresult r = d.cuPointerGetAttributes(5, asked, answers, device_pointer(pointer))) return r;
        *attributes = {};
        if (type == 0) {  // CUDA does not know the memory: the host's own
            attributes->type = cudaMemoryTypeUnregistered;
            attributes->device = cudaInvalidDeviceId;
            attributes->hostPointer = const_cast<void*>(pointer);
            return CUDA_SUCCESS;
        }
        attributes->type = managed != 0                 ? cudaMemoryTypeManaged
                           : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                        : cudaMemoryTypeDevice;
        attributes->device = ordinal;
        attributes->devicePointer = reinterpret_cast<void*>(device);
        attributes->hostPointer = host;
        return CUDA_SUCCESS;
    });
}

// cudaMemLocation is CUmemLocation under another name, numbers included.
cudaError_t cudaMemAdvise(const void* pointer, size_t size, cudaMemoryAdvise advice, cudaMemLocation location) {
    return with_context([&](const Driver& d) {
        const CUmemLocation where{static_cast<CUmemLocationType>(location.type), location.id};
        return d.cuMemAdvise(device_pointer(pointer), size, static_cast<CUmem_advise>(advice), where);
    });
}

cudaError_t cudaMemRangeGetAttribute(void* data, size_t data_size, cudaMemRangeAttribute attribute, const void* pointer,
                                     size_t size) {
    return with_context([&](const Driver& d) {
        return d.cuMemRangeGetAttribute(data, data_size, static_cast<CUmem_range_attribute>(attribute),
                                        device_pointer(pointer), size);
    });
}

cudaError_t cudaMemRangeGetAttributes(void** data, size_t* data_sizes, cudaMemRangeAttribute* attributes, size_t count,
                                      const void* pointer, size_t size) {
    return with_context([&](const Driver& d) {
        return d.cuMemRangeGetAttributes(data, data_sizes, reinterpret_cast<CUmem_range_attribute*>(attributes), count,
                                         device_pointer(pointer), size);
    });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
    return with_context([&](const Driver& d) {
        return d.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), device_pointer(pointer));
    });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
    return with_context([&](const Driver& d) {
        return d.cuIpcOpenMemHandle(device_pointer(pointer), reinterpret_cast<CUipcMemHandle&>(handle), flags);
    });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
    return with_context([&](const Driver& d) { return d.cuIpcCloseMemHandle(device_pointer(pointer)); });
}
}

HPE_BOTH_FLAVOURS(cudaMemPrefetchAsync, ptsz,
                  (const void* pointer, size_t size, cudaMemLocation location, unsigned flags, cudaStream_t stream),
                  (pointer, size, location, flags, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        const CUmemLocation where{static_cast<CUmemLocationType>(location.type), location.id};
        return d.cuMemPrefetchAsync(device_pointer(pointer), size, where, flags, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemPrefetchBatchAsync, ptsz,
                  (void** pointers, size_t* sizes, size_t count, cudaMemLocation* locations, size_t* indices,
                   size_t location_count, unsigned long long flags, cudaStream_t stream),
                  (pointers, sizes, count, locations, indices, location_count, flags, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuMemPrefetchBatchAsync(device_pointer(pointers), sizes, count,
                                         reinterpret_cast<CUmemLocation*>(locations), indices, location_count, flags,
                                         stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemDiscardBatchAsync, ptsz,
                  (void** pointers, size_t* sizes, size_t count, unsigned long long flags, cudaStream_t stream),
                  (pointers, sizes, count, flags, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuMemDiscardBatchAsync(device_pointer(pointers), sizes, count, flags, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemDiscardAndPrefetchBatchAsync, ptsz,
                  (void** pointers, size_t* sizes, size_t count, cudaMemLocation* locations, size_t* indices,
                   size_t location_count, unsigned long long flags, cudaStream_t stream),
                  (pointers, sizes, count, locations, indices, location_count, flags, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuMemDiscardAndPrefetchBatchAsync(device_pointer(pointers), sizes, count,
                                                   reinterpret_cast<CUmemLocation*>(locations), indices, location_count,
                                                   flags, stream);
    });
}
