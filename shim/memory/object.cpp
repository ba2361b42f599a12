// SPDX-License-Identifier: MIT
// Objects that are recycled.
#include "shim/memory/object.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

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
// The one that was given back last, without a lock: a program that allocates and frees takes it again at once.
constinit std::atomic<Object*> last_idle{nullptr};
std::mutex pool_mutex;
std::vector<Object*>& idle_objects() {
    static auto* list = new std::vector<Object*>;  // never destroyed: threads may still fault while the process exits
    return *list;
}
}  // namespace

Object* ObjectPool::take() {
    if (Object* const object = last_idle.exchange(nullptr, std::memory_order_acquire)) return object;
    std::scoped_lock lock(pool_mutex);
    auto& list = idle_objects();
    if (list.empty()) return new Object;
    Object* object = list.back();
    list.pop_back();
    return object;
}

void ObjectPool::give_back(Object* object) noexcept {
    object = last_idle.exchange(object, std::memory_order_acq_rel);
    if (object == nullptr) return;
    std::scoped_lock lock(pool_mutex);
    idle_objects().push_back(object);
}

}  // namespace hpe
