// SPDX-License-Identifier: MIT
// Objects that are recycled.
#include "shim/memory/object.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "shim/base/mutex.h"

namespace hpe {

void Traffic::clear() noexcept {
    for (auto* counter : {&to_host_bytes, &to_host_transfers, &to_device_bytes, &to_device_transfers, &read_faults,
                          &write_faults, &evictions, &ahead_used_bytes, &ahead_wasted_bytes}) {
        counter->store(0, std::memory_order_relaxed);
    }
}

void Object::open(std::size_t block_bytes, Block* words) noexcept {
    shadowed.store(false, std::memory_order_relaxed);
    host_valid_blocks.store(0, std::memory_order_relaxed);
    view_is_read.store(false, std::memory_order_relaxed);
    view_is_kept.store(false, std::memory_order_relaxed);
    small_copies.forget();
    Blocks::open(block_bytes, words);
}

bool Object::become_region(bool region) noexcept {
    // What has no allocations takes no memory.
    if (region && allocations == nullptr) {
        allocations = static_cast<Allocations*>(std::calloc(1, sizeof(Allocations)));
        if (allocations == nullptr) return false;
    }
    if (region) allocations->clear_uncached();
    // Released: whoever sees a region sees its table.
    region_.store(region, std::memory_order_release);
    return true;
}

namespace {
constinit Mutex pool_mutex;
constinit Object* idle HPE_GUARDED_BY(pool_mutex) = nullptr;
}  // namespace

constinit std::atomic<Object*> ObjectPool::all{nullptr};

Object* ObjectPool::take() noexcept {
    const Locked lock(pool_mutex);
    if (idle != nullptr) return std::exchange(idle, idle->next_idle);
    auto* const object = new (std::nothrow) Object;
    if (object == nullptr) return nullptr;
    object->next_of_all = all.load(std::memory_order_relaxed);
    all.store(object, std::memory_order_release);
    return object;
}

void ObjectPool::give_back(Object* object) noexcept {
    const Locked lock(pool_mutex);
    object->next_idle = std::exchange(idle, object);
}

}  // namespace hpe
