// SPDX-License-Identifier: MIT
// Memory pools and their driver functions.
#include "toolchain/softgpu/driver/memory/pool.h"

#include <algorithm>
#include <cstring>

#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

std::mutex& pools_mutex() {  // guards which pools a device has
    static auto* mutex = new std::mutex;
    return *mutex;
}

}  // namespace

MemoryPool::~MemoryPool() { trim(0); }

bool MemoryPool::reaches(int ordinal) const {
    if (ordinal == device.ordinal) return true;
    const std::lock_guard lock(mutex);
    return peers.contains(ordinal);
}

bool MemoryPool::reserve(std::uint64_t bytes, Chunk& out) {
    if (most && bytes > most - std::min(most, reserved)) return false;
    if (!device.memory.allocate(bytes, out.offset)) return false;
    out.address = driver().addresses.reserve(bytes, page_2m);
    if (!out.address) {
        device.memory.release(out.offset, bytes);
        return false;
    }
    reserved += bytes;
    reserved_high = std::max(reserved_high, reserved);
    return true;
}

void MemoryPool::give_back(std::uint64_t bytes, const Chunk& chunk) {
    driver().addresses.unreserve(chunk.address, bytes);
    device.memory.release(chunk.offset, bytes);
    reserved -= bytes;
}

bool MemoryPool::allocate_small(Allocation& a) {
    a.address = small_.allocate(a.size, a.offset);
    if (!a.address) {
        Chunk chunk;
        if (!reserve(page_2m, chunk)) return false;
        a.address = small_.allocate_in_new(chunk.address, chunk.offset, a.size, a.offset);
    }
    small_used_ += round_up(a.size, 512);
    return true;
}

bool MemoryPool::allocate_large(Allocation& a) {
    const std::uint64_t bytes = round_up(a.size, page_2m);
    Chunk chunk;
    // A cached chunk that is not much too large, else a new one.
    const auto fit = cached_.lower_bound(bytes);
    if (fit != cached_.end() && fit->first <= bytes + bytes / 2) {
        a.reserved = fit->first;
        chunk = fit->second;
        cached_.erase(fit);
    } else {
        if (!reserve(bytes, chunk)) {
            trim_locked(0);
            if (!reserve(bytes, chunk)) return false;
        }
        a.reserved = bytes;
    }
    a.address = chunk.address;
    a.offset = chunk.offset;
    return true;
}

std::uint64_t MemoryPool::allocate(const std::shared_ptr<MemoryPool>& self, Context& context, std::uint64_t bytes) {
    if (bytes > device.memory.capacity()) return 0;
    auto a = std::make_shared<Allocation>();
    a->size = bytes;
    a->kind = Kind::Pool;
    a->context = &context;
    a->device = &device;
    a->pool = self;
    a->shareable = shareable;
    const std::lock_guard lock(mutex);
    if (!(bytes < large_allocation ? allocate_small(*a) : allocate_large(*a))) return 0;
    a->bytes = device.memory.view(a->offset);
    used += bytes;
    used_high = std::max(used_high, used);
    const std::uint64_t address = a->address;
    driver().addresses.add(std::move(a));
    return address;
}

void MemoryPool::release(const Allocation& a) {
    if (file) {
        // The bytes are the other process's.
        driver().addresses.unreserve(a.reservation, a.reservation_size);
        return;
    }
    const std::lock_guard lock(mutex);
    used -= a.size;
    if (a.reserved) {
        cached_.emplace(a.reserved, Chunk{a.address, a.offset});
    } else {
        // What is empty stays the pool's until it is trimmed.
        if (const auto empty = small_.release(a.address, a.size)) small_.keep_empty(*empty);
        small_used_ -= round_up(a.size, 512);
    }
    if (a.reserved) trim_locked(threshold);
}

void MemoryPool::trim_locked(std::uint64_t keep) {
    while (reserved > keep && !cached_.empty()) {
        const auto largest = std::prev(cached_.end());
        give_back(largest->first, largest->second);
        cached_.erase(largest);
    }
    if (reserved > keep && small_used_ == 0)
        for (const SmallHeap::Slab& slab : small_.take_slabs()) give_back(page_2m, {slab.address, slab.offset});
}

void MemoryPool::trim(std::uint64_t keep) {
    const std::lock_guard lock(mutex);
    trim_locked(keep);
}

std::shared_ptr<MemoryPool> default_pool(Device& device) {
    const std::lock_guard lock(pools_mutex());
    if (!device.default_pool) {
        device.default_pool = std::make_shared<MemoryPool>(device);
        driver().pools.add(device.default_pool);
    }
    return device.default_pool;
}

std::shared_ptr<MemoryPool> current_pool(Device& device) {
    {
        const std::lock_guard lock(pools_mutex());
        if (device.pool) return device.pool;
    }
    return default_pool(device);
}

bool pool_reaches(const Allocation& allocation, int device) {
    return allocation.pool && allocation.pool->reaches(device);
}

std::shared_ptr<MemoryPool> pool_of(CUmemoryPool handle) {
    require(handle != nullptr);
    auto pool = driver().pools.find(handle);
    require(pool != nullptr);
    return pool;
}

namespace {

// Another process' pool is read through the pointers it gives, and that is all.
std::shared_ptr<MemoryPool> own_pool_of(CUmemoryPool handle) {
    auto pool = pool_of(handle);
    require(!pool->file);
    return pool;
}

// Pools of host memory do not exist here; CUDA calls that unsupported.
Device& device_of(const CUmemLocation* location, CUmemAllocationType type) {
    require(location != nullptr);
    require(type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        fail(not_supported("a memory pool of memory that is not a device's"));
    require(is_device(location->id));
    return device_at(location->id);
}

void set_pool(Device& device, CUmemoryPool handle) {
    const auto pool = pool_of(handle);
    require(&pool->device == &device && !pool->file);
    const std::lock_guard lock(pools_mutex());
    device.pool = pool;
}

}  // namespace

CUresult api::cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice dev) {
    require(pool != nullptr);
    *pool = default_pool(device_at(dev))->handle();
    return CUDA_SUCCESS;
}
CUresult api::cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
    require(pool != nullptr);
    *pool = current_pool(device_at(dev))->handle();
    return CUDA_SUCCESS;
}
CUresult api::cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    set_pool(device_at(dev), pool);
    return CUDA_SUCCESS;
}
CUresult api::cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    require(pool != nullptr);
    *pool = default_pool(device_of(location, type))->handle();
    return CUDA_SUCCESS;
}
CUresult api::cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    require(pool != nullptr);
    *pool = current_pool(device_of(location, type))->handle();
    return CUDA_SUCCESS;
}
CUresult api::cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    set_pool(device_of(location, type), pool);
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
    require(out != nullptr && props != nullptr);
    Device& device = device_of(&props->location, props->allocType);
    constexpr unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    require((static_cast<unsigned>(props->handleTypes) & ~known) == 0);
    const bool shareable = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!shareable && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return not_supported("cuMemPoolCreate of a pool to export otherwise than as a file descriptor");
    require(props->usage == 0);
    auto pool = std::make_shared<MemoryPool>(device);
    pool->shareable = shareable;
    pool->most = props->maxSize ? round_up(props->maxSize, page_2m) : 0;
    *out = pool->handle();
    driver().pools.add(std::move(pool));
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolDestroy(CUmemoryPool handle) {
    const auto pool = pool_of(handle);
    const std::lock_guard lock(pools_mutex());
    require(pool != pool->device.default_pool);
    if (pool == pool->device.pool) pool->device.pool.reset();
    // What is allocated still holds the pool, and its memory goes with the last of it.
    driver().pools.remove(handle);
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
    own_pool_of(handle)->trim(minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    require(value != nullptr);
    const auto pool = own_pool_of(handle);
    const std::lock_guard lock(pool->mutex);
    const auto put = [value](auto number) {
        std::memcpy(value, &number, sizeof number);
        return CUDA_SUCCESS;
    };
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return put(pool->follow_events);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return put(pool->opportunistic);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return put(pool->internal_dependencies);
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return put(pool->threshold);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return put(pool->reserved);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return put(pool->reserved_high);
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return put(pool->used);
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return put(pool->used_high);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    require(value != nullptr);
    const auto pool = own_pool_of(handle);
    const std::lock_guard lock(pool->mutex);
    // Where memory is reused decides speed only: frees are done when their stream gets there.
    const auto flag = [value](int& out) {
        int given = 0;
        std::memcpy(&given, value, sizeof given);
        out = given != 0;
        return CUDA_SUCCESS;
    };
    const auto reset = [value](std::uint64_t& high, std::uint64_t current_value) {
        std::uint64_t given = 0;
        std::memcpy(&given, value, sizeof given);
        require(given == 0);
        high = current_value;
        return CUDA_SUCCESS;
    };
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return flag(pool->follow_events);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return flag(pool->opportunistic);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return flag(pool->internal_dependencies);
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            std::memcpy(&pool->threshold, value, sizeof pool->threshold);
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return reset(pool->reserved_high, pool->reserved);
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return reset(pool->used_high, pool->used);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult api::cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
    require(map != nullptr || count == 0);
    const auto pool = pool_of(handle);
    for (size_t i = 0; i < count; ++i) {
        require(map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE);
        const Device& device = device_at(map[i].location.id);
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return not_supported("cuMemPoolSetAccess for reading only");
        require(map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        // A device's access to its own pool cannot be taken away.
        require(&device != &pool->device || map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                CUDA_ERROR_INVALID_DEVICE);
        require(&device == &pool->device || driver().options.peer, CUDA_ERROR_INVALID_DEVICE);
    }
    const std::lock_guard lock(pool->mutex);
    for (size_t i = 0; i < count; ++i) {
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            pool->peers.erase(map[i].location.id);
        else
            pool->peers.insert(map[i].location.id);
    }
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
    require(flags != nullptr && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    require(is_device(location->id));
    const Device& device = device_at(location->id);
    *flags =
        pool_of(handle)->reaches(device.ordinal) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
