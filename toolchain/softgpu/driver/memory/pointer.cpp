// SPDX-License-Identifier: MIT
// What programs ask about an address.
#include <algorithm>
#include <cstring>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/pool.h"
#include "toolchain/softgpu/driver/memory/virtual_memory.h"

namespace hpe::soft {
namespace {

template <class T>
CUresult put(void* data, T value) {
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}
CUresult put_flag(void* data, bool value) { return put<unsigned>(data, value); }

// Beside others in one reservation (small_heap.h)?
bool in_slab(const Allocation& a) { return a.kind == Kind::Device && !a.imported && a.reserved == 0; }

// May the host follow the pointer?
bool host_reaches(const Allocation& a) { return !a.on_device(); }

// As cuIpcGetMemHandle does.
bool exports_handle(const Allocation& a) { return a.kind == Kind::Device && !a.module_variable && !a.imported; }

unsigned access_of(const Allocation& a) {
    const Context* context = current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    const int device = context->device().ordinal;
    switch (a.kind) {
        case Kind::Graph:
        case Kind::Virtual:
            if (a.access.contains(device)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            return a.access_read.contains(device) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        case Kind::Pool:
            return pool_reaches(a, device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        case Kind::Device:
            return a.context == context || context->may_reach(*a.context) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        case Kind::Registered: return a.read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        case Kind::Pinned:
        case Kind::Managed: break;
    }
    return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult get_known(void* data, CUpointer_attribute attribute, CUdeviceptr ptr, const Allocation& a) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            // Pools and physical memory belong to a device, not to a context.
            return put(data, a.kind == Kind::Pool || a.kind == Kind::Virtual || a.kind == Kind::Graph || !a.context
                                 ? nullptr
                                 : a.context->handle());
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put<unsigned>(
                data, a.kind == Kind::Pinned || a.kind == Kind::Registered ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put<CUdeviceptr>(data, ptr);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: require(host_reaches(a)); return put<CUdeviceptr>(data, ptr);
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
            require(a.on_device());
            return not_supported("cuPointerGetAttribute of tokens for the kernel's nv-p2p.h");
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put_flag(data, a.sync_memops);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put<unsigned long long>(data, a.id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put_flag(data, a.kind == Kind::Managed);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put<int>(data, a.device->ordinal);
        case CU_POINTER_ATTRIBUTE_MAPPED: return put_flag(data, true);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return put<CUdeviceptr>(data, a.kind == Kind::Virtual ? a.reservation : a.address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return put<std::size_t>(data, a.kind == Kind::Virtual ? a.reservation_size : a.size);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return put<CUdeviceptr>(data, in_slab(a) ? a.address / page_2m * page_2m : a.address);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return put<std::size_t>(data, in_slab(a) ? page_2m : std::max(a.size, a.reserved));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put_flag(data, exports_handle(a));
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put_flag(data, false);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return put<unsigned>(data,
                                 a.shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put<unsigned>(data, access_of(a));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put<const void*>(data, a.pool.get());
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// An address that was reserved, with nothing mapped there.
bool get_reserved(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    VirtualRange range;
    if (!virtual_range_of(ptr, range)) return false;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put<CUdeviceptr>(data, range.address); return true;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put<std::size_t>(data, range.size); return true;
        case CU_POINTER_ATTRIBUTE_MAPPED: put_flag(data, false); return true;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: put<unsigned>(data, CU_MEM_ACCESS_FLAGS_PROT_NONE); return true;
        default: return false;
    }
}

// What the query of several attributes says of memory that CUDA does not know.
void put_default(void* data, CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: put<std::uint64_t>(data, 0); break;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS: put(data, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS{}); break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put<int>(data, CU_DEVICE_INVALID); break;
        default: put<unsigned>(data, 0); break;
    }
}

bool is_attribute(CUpointer_attribute attribute) {
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace

CUresult api::cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    require(data != nullptr && is_attribute(attribute));
    const AllocationRef a = driver().addresses.find(ptr);
    if (a) return get_known(data, attribute, ptr, *a);
    require(get_reserved(data, attribute, ptr));
    return CUDA_SUCCESS;
}

CUresult api::cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr ptr) {
    require(count > 0 && attributes != nullptr && data != nullptr);
    for (unsigned i = 0; i < count; ++i) require(is_attribute(attributes[i]) && data[i] != nullptr);
    const AllocationRef a = driver().addresses.find(ptr);
    for (unsigned i = 0; i < count; ++i) {
        put_default(data[i], attributes[i]);
        if (!a) {
            get_reserved(data[i], attributes[i], ptr);
        } else if (attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER || host_reaches(*a)) {
            const CUresult result = get_known(data[i], attributes[i], ptr, *a);
            if (result != CUDA_SUCCESS) return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult api::cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    if (Context* context = current_or_null()) context->check();
    unsigned on = 0;
    std::memcpy(&on, value, sizeof on);
    const AllocationRef a = driver().addresses.find(ptr);
    require(a && (a->kind == Kind::Device || a->kind == Kind::Pool));
    require(driver().addresses.change(ptr, [on](Allocation& allocation) { allocation.sync_memops = on != 0; }));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
