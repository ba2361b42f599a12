// SPDX-License-Identifier: MIT
// Device memory: cuMemAlloc and its relatives.
#include "toolchain/softgpu/driver/memory/memory.h"

#include <sys/mman.h>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/pending_frees.h"
#include "toolchain/softgpu/driver/memory/pool.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

SmallHeap& heap_of(Context& context, const Allocation& a) {
    return a.module_variable ? context.variables : context.heap;
}

void give_back(Device& device, const SmallHeap::Slab& slab) {
    driver().addresses.unreserve(slab.address, page_2m);
    device.memory.release(slab.offset, page_2m);
}

bool allocate_small(Context& context, Allocation& a) {
    a.address = heap_of(context, a).allocate(a.size, a.offset);
    if (a.address) return true;
    std::uint64_t offset = 0;
    if (!context.device().memory.allocate(page_2m, offset)) return false;
    const std::uint64_t address = driver().addresses.reserve(page_2m, page_2m);
    if (!address) {
        context.device().memory.release(offset, page_2m);
        return false;
    }
    a.address = heap_of(context, a).allocate_in_new(address, offset, a.size, a.offset);
    return true;
}

bool allocate_large(Context& context, Allocation& a) {
    const std::uint64_t bytes = round_up(a.size, page_2m);
    if (!context.device().memory.allocate(bytes, a.offset)) return false;
    a.address = driver().addresses.reserve(bytes, page_2m);
    if (!a.address) {
        context.device().memory.release(a.offset, bytes);
        return false;
    }
    a.reserved = bytes;
    return true;
}

}  // namespace

std::uint64_t allocate_device(Context& context, std::uint64_t bytes, bool module_variable) {
    if (bytes > context.device().memory.capacity()) return 0;
    auto a = std::make_shared<Allocation>();
    a->size = bytes;
    a->module_variable = module_variable;
    a->context = &context;
    a->device = &context.device();
    if (!(bytes < large_allocation ? allocate_small(context, *a) : allocate_large(context, *a))) return 0;
    a->bytes = context.device().memory.view(a->offset);
    const std::uint64_t address = a->address;
    driver().addresses.add(std::move(a));
    return address;
}

void end_allocation(Allocation& a) {
    switch (a.kind) {
        case Kind::Pool: a.pool->release(a); break;
        case Kind::Device:
            if (a.imported) {
                a.backing->end(a);
                a.backing.reset();
            } else if (a.reserved) {
                driver().addresses.unreserve(a.address, a.reserved);
                a.device->memory.release(a.offset, a.reserved);
            } else {
                const auto empty = heap_of(*a.context, a).release(a.address, a.size);
                if (empty) give_back(a.context->device(), *empty);
            }
            break;
        case Kind::Pinned:
        case Kind::Managed: munmap(a.bytes, a.reserved); break;
        case Kind::Graph: a.backing->end(a); break;
        case Kind::Registered:
        case Kind::Virtual: break;
    }
}

void free_everything(Context& context) {
    for (const auto& a : driver().addresses.select([&](const Allocation& a) {
             // Managed variables belong to their library, whose further contexts go on using them.
             const bool shared = a.kind == Kind::Virtual || (a.kind == Kind::Managed && a.module_variable);
             return a.context == &context && !shared;
         }))
        if (auto removed = driver().addresses.remove(a->address)) end_allocation(*removed);
    context.device_heap.forget();
    for (SmallHeap* heap : {&context.heap, &context.variables})
        for (const SmallHeap::Slab& slab : heap->take_slabs()) give_back(context.device(), slab);
}

Place place_of(std::uint64_t address, std::uint64_t bytes) {
    require(address + bytes >= address);
    const auto& addresses = driver().addresses;
    const AllocationRef first = addresses.find(address);
    if (!first) {
        require(!addresses.in_reservation(address));
        const AllocationRef after = addresses.next(address);
        require(!after || after->address >= address + bytes);
        return Place::Pageable;
    }
    // Neighbouring mappings of physical memory count as one piece, other allocations do not.
    std::uint64_t end = first->end();
    while (end < address + bytes) {
        const AllocationRef more = first->kind == Kind::Virtual ? addresses.find(end) : nullptr;
        require(more && more->kind == Kind::Virtual);
        end = more->end();
    }
    switch (first->kind) {
        case Kind::Pinned:
        case Kind::Registered: return Place::Pinned;
        case Kind::Managed: return Place::Managed;
        default: return Place::OnDevice;
    }
}

namespace {

bool accessible(const Allocation& a, bool for_writing, const Device* device) {
    const auto has = [&](const std::set<int>& devices) {
        return device != nullptr ? devices.contains(device->ordinal) : !devices.empty();
    };
    switch (a.kind) {
        case Kind::Graph: return a.backing->present();
        case Kind::Pool: return device == nullptr || pool_reaches(a, device->ordinal);
        case Kind::Virtual: return has(a.access) || (!for_writing && has(a.access_read));
        default: return true;
    }
}

}  // namespace

void check_access(std::uint64_t address, std::uint64_t bytes, bool for_writing, const Device* device) {
    const std::uint64_t end = address + bytes;
    while (address < end) {
        const AllocationRef a = driver().addresses.find(address);
        if (!a) return;
        require(accessible(*a, for_writing, device));
        address = a->end();
    }
}

std::byte* bytes_at(std::uint64_t address, std::uint64_t bytes, std::uint64_t& contiguous, bool for_writing) {
    const AllocationRef allocation = driver().addresses.find(address);
    contiguous = bytes;
    if (!allocation) {
        if (driver().addresses.in_reservation(address)) return nullptr;
        return reinterpret_cast<std::byte*>(address);
    }
    if (allocation->kind == Kind::Virtual && allocation->access.empty() &&
        (for_writing || allocation->access_read.empty()))
        return nullptr;
    if (!allocation->bytes) return nullptr;
    contiguous = std::min(bytes, allocation->end() - address);
    return allocation->bytes + (address - allocation->address);
}

bool waits_always(const Context& context, std::uint64_t address) {
    if (context.flags & CU_CTX_SYNC_MEMOPS) return true;
    const AllocationRef allocation = driver().addresses.find(address);
    return allocation && allocation->sync_memops;
}

CUresult api::cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
    Context& context = current();
    require(dptr != nullptr && bytesize > 0);
    forbid_unsafe_call();
    const std::uint64_t address = allocate_device(context, bytesize);
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    *dptr = address;
    return CUDA_SUCCESS;
}

CUresult api::cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height, unsigned element) {
    require(dptr != nullptr && pitch != nullptr && width > 0 && height > 0);
    require(element == 4 || element == 8 || element == 16);
    Context& context = current();
    forbid_unsafe_call();
    const std::uint64_t row = round_up(width, 512);
    require(row >= width && row <= ~std::uint64_t{0} / height);  // no number of bytes at all
    const std::uint64_t address = allocate_device(context, row * height);
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    *dptr = address;
    *pitch = row;
    return CUDA_SUCCESS;
}

CUresult api::cuMemFree_v2(CUdeviceptr dptr) {
    if (dptr == 0) {
        // Also without a context, but not in a broken one, nor where memory must not be freed.
        if (Context* context = current_or_null()) context->check();
        forbid_unsafe_call();
        return CUDA_SUCCESS;
    }
    const AllocationRef allocation = driver().addresses.find(dptr);
    require(allocation != nullptr);
    // Memory is its own context's: none need be current.
    Context& context = current_or(*allocation->context);
    forbid_unsafe_call();
    require(allocation->address == dptr && !allocation->module_variable);
    require(!allocation->imported || allocation->kind == Kind::Pool);
    require(allocation->kind == Kind::Device || allocation->kind == Kind::Pool || allocation->kind == Kind::Managed ||
            allocation->kind == Kind::Graph);
    require(!free_is_pending(*allocation));
    // Work that uses the memory may be in flight in its own context, and in this one through peer access.
    synchronize(*allocation->context);
    if (allocation->context != &context) synchronize(context);
    if (allocation->kind == Kind::Graph) {
        const std::lock_guard lock(driver().order);
        allocation->backing->free_now(*allocation);
        return CUDA_SUCCESS;
    }
    const auto removed = driver().addresses.remove(dptr);
    require(removed != nullptr);
    end_allocation(*removed);
    return CUDA_SUCCESS;
}

CUresult api::cuMemGetInfo_v2(size_t* free, size_t* total) {
    const DeviceMemory& memory = current().device().memory;
    // Who wants to know only one of them, or neither, may say so.
    if (free) *free = memory.capacity() - memory.used();
    if (total) *total = memory.capacity();
    return CUDA_SUCCESS;
}

CUresult api::cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr dptr) {
    current();
    const AllocationRef allocation = driver().addresses.find(dptr);
    if (base) *base = allocation ? allocation->address : 0;
    if (size) *size = allocation ? allocation->size : 0;
    return allocation ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace hpe::soft
