// SPDX-License-Identifier: MIT
// Doors of virtual memory management (cuMemMap and its kin): each mapping is an object as soon as the device may write
// it, until it is unmapped, loses that access, or its memory may be written from elsewhere (virtual_memory.h).
//
// Source: CUDA programming guide, "Virtual memory management". Sizes in bytes. Threads, ownership and errors: door.h.
#pragma once

#include <span>

#include "shim/coherence/virtual_memory.h"
#include "shim/doors/cuda_memory.h"
#include "shim/doors/door.h"

namespace hpe::doors {

template <class C>
CUresult map_memory(const C& call, CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    const CUresult result = call(pointer, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    objects_exist();
    CUresult noted = CUDA_ERROR_OUT_OF_MEMORY;
    try {
        noted = virtual_memory::mapped(address(pointer), bytes, handle);
    } catch (const std::bad_alloc&) {
    }
    if (noted == CUDA_SUCCESS) return CUDA_SUCCESS;
    // A call that fails leaves no mapping: the program may try again.
    const Inside inside;
    driver.cuMemUnmap(pointer, bytes);
    virtual_memory::unmapped(address(pointer), bytes);
    return noted;
}

template <class C>
CUresult set_access(const C& call, CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* accesses,
                    std::size_t count) {
    if (accesses == nullptr) return call(pointer, bytes, accesses, count);
    const std::span<const CUmemAccessDesc> all(accesses, count);
    virtual_memory::LosesAccess losing(address(pointer), bytes, all);
    if (losing.result() != CUDA_SUCCESS) return losing.result();
    const CUresult result = call(pointer, bytes, accesses, count);
    if (result == CUDA_SUCCESS) {
        losing.lost();
        virtual_memory::give_access(address(pointer), bytes, all);
    }
    return result;
}

template <class C>
CUresult unmap_memory(const C& call, CUdeviceptr pointer, std::size_t bytes) {
    std::vector<Allocation> mappings;
    for (const Object* object : virtual_memory::objects_in(address(pointer), bytes)) {
        mappings.push_back(object->allocation_of(object->base));
    }
    // The memory may be mapped elsewhere later.
    for (const auto& mapping : mappings) {
        const LaunchInGate in_gate(coherence().launch_gate());
        const auto there = coherence().before_device_reads({mapping.object->base, mapping.object->size});
        if (there != CUDA_SUCCESS) return there;
    }
    const CUresult result = free_all(mappings, [&] { return call(pointer, bytes); });
    if (result == CUDA_SUCCESS) virtual_memory::unmapped(address(pointer), bytes);
    return result;
}

template <class C>
CUresult retain_handle(const C& call, CUmemGenericAllocationHandle* handle, void* pointer) {
    const CUresult result = call(handle, pointer);
    if (result == CUDA_SUCCESS) virtual_memory::retained(*handle, reinterpret_cast<std::uintptr_t>(pointer));
    return result;
}

template <class C>
CUresult release_handle(const C& call, CUmemGenericAllocationHandle handle) {
    const CUresult result = call(handle);
    if (result == CUDA_SUCCESS) virtual_memory::released(handle);
    return result;
}

template <class C>
CUresult export_handle(const C& call, void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags) {
    const CUresult result = call(out, handle, type, flags);
    return result == CUDA_SUCCESS ? virtual_memory::others_use(handle) : result;
}

template <class C>
CUresult import_handle(const C& call, CUmemGenericAllocationHandle* handle, void* given,
                       CUmemAllocationHandleType type) {
    const CUresult result = call(handle, given, type);
    return result == CUDA_SUCCESS ? virtual_memory::others_use(*handle) : result;
}

// Memory behind a multicast object is written through that.
template <class C>
CUresult bind_memory(const C& call, CUmemGenericAllocationHandle multicast, std::size_t multicast_offset,
                     CUmemGenericAllocationHandle handle, std::size_t offset, std::size_t bytes,
                     unsigned long long flags) {
    const CUresult result = call(multicast, multicast_offset, handle, offset, bytes, flags);
    return result == CUDA_SUCCESS ? virtual_memory::others_use(handle) : result;
}
template <class C>
CUresult bind_address(const C& call, CUmemGenericAllocationHandle multicast, std::size_t multicast_offset,
                      CUdeviceptr pointer, std::size_t bytes, unsigned long long flags) {
    const CUresult result = call(multicast, multicast_offset, pointer, bytes, flags);
    return result == CUDA_SUCCESS
               ? coherence().hand_over({address(pointer), bytes}, "it was bound to a multicast object")
               : result;
}

}  // namespace hpe::doors
