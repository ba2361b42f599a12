// SPDX-License-Identifier: MIT
// Memory pools: device memory for allocations in the order of a stream (CUDA Driver API, "Stream Ordered Memory
// Allocator"). The allocations: stream_ordered.cpp; pools of other processes: pool_share.cpp.
//
// Sizes in bytes. A pool lives until it is destroyed and its last allocation is gone. Threads: any. Errors: 0 or false,
// or an Error where that is said.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "toolchain/softgpu/driver/device/addresses.h"
#include "toolchain/softgpu/driver/device/device.h"
#include "toolchain/softgpu/driver/device/small_heap.h"
#include "toolchain/softgpu/driver/memory/shareable.h"

namespace hpe::soft {

struct MemoryPool {
    explicit MemoryPool(Device& owner) : device(owner) {}
    MemoryPool(Device& owner, std::unique_ptr<OwnedFile> imported) : device(owner), file(std::move(imported)) {}
    ~MemoryPool();

    // Adds an allocation to the address table. 0: no memory.
    std::uint64_t allocate(const std::shared_ptr<MemoryPool>& self, Context& context, std::uint64_t bytes);
    // Takes back the memory of an allocation that has left the table.
    void release(const Allocation& allocation);
    void trim(std::uint64_t keep);
    bool reaches(int ordinal) const;
    CUmemoryPool handle() { return reinterpret_cast<CUmemoryPool>(this); }

    Device& device;
    const std::unique_ptr<OwnedFile> file;  // of a pool of another process: where its memory is
    bool shareable = false;                 // its memory may be exported
    mutable std::mutex mutex;               // guards what follows
    std::uint64_t most = 0;                 // bytes; 0: as much as the device has
    std::uint64_t threshold = 0;
    std::uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
    int follow_events = 1, opportunistic = 1, internal_dependencies = 1;
    std::set<int> peers;  // other devices that may use the memory

private:
    struct Chunk {
        std::uint64_t address, offset;
    };
    bool allocate_small(Allocation& allocation);
    bool allocate_large(Allocation& allocation);
    bool reserve(std::uint64_t bytes, Chunk& out);
    void give_back(std::uint64_t bytes, const Chunk& chunk);
    void trim_locked(std::uint64_t keep);

    SmallHeap small_;
    std::uint64_t small_used_ = 0;
    std::multimap<std::uint64_t, Chunk> cached_;  // by size
};

// By handle. Throws INVALID_VALUE.
std::shared_ptr<MemoryPool> pool_of(CUmemoryPool handle);
// The pool that a device starts with.
std::shared_ptr<MemoryPool> default_pool(Device& device);
// The one that the application has set, or that.
std::shared_ptr<MemoryPool> current_pool(Device& device);

// May that device use the memory of a pool's allocation?
bool pool_reaches(const Allocation& allocation, int device);

}  // namespace hpe::soft
