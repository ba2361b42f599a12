// SPDX-License-Identifier: MIT
// Coherence: allocations become objects, and are found.
#include "shim/coherence/coherence.h"

#include <cstdlib>
#include <mutex>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/coherence/device_owned.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/observe/report.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/peers.h"

namespace hpe {

constinit Coherence the_coherence;

void Coherence::configure(Protocol* protocol, std::size_t block_size) {
    protocol_ = protocol;
    block_size_ = block_size;
}

// Why an allocation cannot be shared is said of it (device_owned).
struct Coherence::Made {
    std::uintptr_t base;
    std::size_t size, requested;
    CUcontext context;
    Peers may_access;
    bool region;
    const char** refusal;
    std::size_t device_size = size;
};

Object* Coherence::take_last_freed(const Made& made) {
    Object* const object = last_freed_.exchange(nullptr, std::memory_order_acquire);
    if (object == nullptr) return nullptr;
    if (object->base == made.base && object->size == made.size && object->context == made.context &&
        object->is_region() == made.region && object->accessed_as_context == (made.may_access == Peers::OfContext)) {
        return object;
    }
    give_up(*object);
    return nullptr;
}

std::size_t Coherence::block_bytes_of(const Made& made) const noexcept {
    // Batch and lazy update move whole objects: of so many small allocations that would be too much.
    constexpr std::size_t kLargestInRegion = std::size_t{64} << 10;
    return protocol_->block_bytes(made.region ? kLargestInRegion : made.size, block_size_);
}

// nullptr: there is no memory for it, which made.refusal says.
Object* Coherence::new_object(const Made& made, Object* again) {
    const auto block_bytes = block_bytes_of(made);
    const auto blocks = Object::block_count(made.size, block_bytes);
    Object* const object = again != nullptr ? again : ObjectPool::take();
    if (object == nullptr) {
        *made.refusal = "there was no memory for what libhpe keeps of it";
        return nullptr;
    }
    const bool kept = object->keeps_words(blocks);
    Block* words = object->take_words();
    if (!kept) {
        std::free(words);
        // What nobody touches takes no memory.
        words = blocks > 1 ? static_cast<Block*>(std::calloc(blocks, sizeof(Block))) : nullptr;
    }
    const bool ready = (words != nullptr || blocks == 1) && object->become_region(made.region);
    if (again == nullptr) object->view = ready ? Arena{}.take(made.base, made.size) : nullptr;
    if (!ready || object->view == nullptr) {
        std::free(words);
        if (again != nullptr) {
            give_up(*object);
        } else {
            ObjectPool::give_back(object);
        }
        static std::once_flag said;
        std::call_once(said,
                       [] { log::warn("no address space for host copies: further allocations stay on the device"); });
        *made.refusal = "there was no address space for its host copy";
        return nullptr;
    }
    // Atomic: a recycled object may still be on the list of a launch, which reads the address to sort (release()).
    std::atomic_ref(object->base).store(made.base, std::memory_order_relaxed);
    object->size = made.size;
    object->context = made.context;
    describe(*object, made);
    object->open(block_bytes, words);
    if (!table_.insert(object)) {
        log::warn("allocation {:#x} of {} bytes overlaps one that was never freed: it stays on the device", made.base,
                  made.requested);
        object->close();
        give_up(*object);
        *made.refusal = "it overlaps another allocation";
        return nullptr;
    }
    look_at(made.base, made.size);
    if (object->accessed_as_context) peers.saw(made.context);
    objects_made_.fetch_add(1, std::memory_order_relaxed);
    return object;
}

// What its allocation was asked to be.
void Coherence::describe(Object& object, const Made& made) {
    object.requested_size = made.requested;
    object.device_size = made.device_size;
    object.accessed_as_context = made.may_access == Peers::OfContext;
    // Unless the device is idle: the program may tell a running kernel the address, and the kernel write to it. After a
    // stream-ordered allocation it is not.
    const auto work = object.accessed_as_context ? in_flight.work() : 0;
    object.birth = work != 0 && in_flight.idle() ? work : 0;
    report::object_added(object);
    object.lent.store(0, std::memory_order_relaxed);
}

Object* Coherence::make_object(const Made& made) {
    Object* object = take_last_freed(made);
    // What was freed just now, and never touched, is as it was.
    if (object != nullptr && !made.region && table_.has(*object)) {
        describe(*object, made);
        object->small_copies.forget();
        object->reopen();
    } else {
        object = new_object(made, object);
        if (object == nullptr) return nullptr;
    }
    if (!made.region) device_owned::remove_of_graphs(made.base, made.size);
    allocations_.fetch_add(1, std::memory_order_relaxed);
    if (callbacks_.load(std::memory_order_relaxed)) engine.prepare(made.context);
    return object;
}

void Coherence::look_at(std::uintptr_t begin, std::size_t bytes) noexcept {
    const auto end = begin + bytes;
    for (auto low = lowest_.load(); low > begin && !lowest_.compare_exchange_weak(low, begin);) {
    }
    for (auto high = highest_.load(); high < end && !highest_.compare_exchange_weak(high, end);) {
    }
}

void Coherence::track(std::uintptr_t base, std::size_t requested, Peers may_access, CUcontext context) {
    const auto size = padded(requested);
    const char* refusal = nullptr;
    if (context == nullptr) context = current_context();
    if (base % kPage != 0) {
        refusal = "the driver placed it inside a page that others use";
    } else if (context == nullptr) {
        refusal = "the driver did not say which context it belongs to";
    } else {
        make_object({base, size, requested, context, may_access, false, &refusal});
    }
    if (refusal != nullptr) keep_off(base, size, refusal);
}

bool Coherence::track_in_region(std::uintptr_t base, std::size_t requested) {
    const auto context = current_context();
    if (context == nullptr) return false;
    const Locked lock(regions_);
    // Again when the CPU touches the first of a region (map_shadow): to ask takes as long as to allocate.
    if (!regions_possible_ && !reserved_as_whole(base)) {
        no_regions_.store(true, std::memory_order_relaxed);
        return false;
    }
    regions_possible_ = true;
    return add_to_region(context, base, requested);
}

bool Coherence::add_to_region(CUcontext context, std::uintptr_t base, std::size_t requested) {
    constexpr auto kChunk = Allocations::kChunk;
    const auto offset = base % kChunk, chunk = base - offset;
    if (offset % Allocations::kUnit != 0 || offset + requested > kChunk) return false;
    Object* region = table_.find(chunk);
    if (region != nullptr) {
        if (!region->is_region() || region->context != context) return false;
        allocations_.fetch_add(1, std::memory_order_relaxed);
    } else {
        const char* refusal = nullptr;
        region = make_object({chunk, kChunk, 0, context, Peers::OfContext, true, &refusal});
        if (region == nullptr) return false;
    }
    keep_apart(*region, {offset, requested});
    region->allocations->add(offset, requested);
    report::allocation_added(*region, offset);
    return true;
}

void Coherence::expect_callbacks() {
    if (callbacks_.exchange(true, std::memory_order_relaxed)) return;
    ObjectPool::for_open([](const Object& object) { engine.prepare(object.context); });
}

Object* Coherence::object_of(std::uintptr_t address) const noexcept {
    Object* object = table_.find(address);
    return object != nullptr && object->holds(address) ? object : nullptr;
}

Allocation Coherence::allocation_of(std::uintptr_t address) const noexcept {
    const Object* const object = table_.find(address);
    return object != nullptr ? object->allocation_of(address) : Allocation{};
}

Allocation Coherence::allocation_at(std::uintptr_t base) const noexcept {
    Object* object = table_.beginning_at(base);
    if (object != nullptr && !object->is_region()) return object->allocation_of(base);
    if (object == nullptr) object = table_.find(base);
    if (object == nullptr || !object->is_region()) return {};
    const auto offset = base - object->base;
    const auto one = offset < Allocations::kChunk ? object->allocations->at(offset) : Allocations::One{};
    return one.bytes != 0 ? Allocation{object, base, one.bytes, object->context} : Allocation{};
}

Object* Coherence::object_at(std::uintptr_t base) const noexcept {
    Object* object = object_of(base);
    return object != nullptr && object->base == base ? object : nullptr;
}

// The device has its newest bytes: no block with it may count as valid on the host.
bool Coherence::add_with_data(CUcontext context, std::uintptr_t base, std::size_t bytes) {
    const auto add = [&] {
        regions_.assume_held();
        if (!add_to_region(context, base, bytes)) return false;
        table_.find(base)->birth = 0;
        return true;
    };
    Object* const object = table_.find(base);
    if (object == nullptr) return add();
    if (!object->touched()) {
        if (!add()) return false;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!object->touched()) return true;
        // Somebody may have opened the block without its bytes.
        object->allocations->remove(base - object->base);
        allocations_.fetch_sub(1, std::memory_order_relaxed);
        report::allocation_removed(*object, {base - object->base, bytes});
    }
    const SignalsBlocked blocked;
    const auto locked = lock_on_device(*object, {base, bytes});
    const bool added = !locked.empty() && add();
    object->unlock(locked.first, locked.end);
    return added;
}

Coherence::BlockRange Coherence::lock_blocks(Object& object, DeviceRange range) noexcept {
    for (;;) {
        const BlockRange blocks{object.block_at(range.begin), object.block_at(range.begin + range.bytes - 1) + 1};
        object.lock(blocks.first, blocks.end);
        if (blocks.end <= object.blocks()) return blocks;
        object.unlock(blocks.first, blocks.end);  // it was coarsened meanwhile
    }
}

Coherence::BlockRange Coherence::lock_on_device(Object& object, DeviceRange range) {
    constexpr unsigned kMost = 100;  // host functions may borrow such a block again and again
    for (unsigned attempt = 0; attempt < kMost; ++attempt) {
        if (before_device_writes(range) != CUDA_SUCCESS) return {};
        const auto blocks = lock_blocks(object, range);
        bool valid = false;
        for (auto i = blocks.first; i < blocks.end; ++i) valid = valid || valid_on_host(object.block(i).peek().state);
        if (!valid) return blocks;
        object.unlock(blocks.first, blocks.end);
    }
    return {};
}

bool Coherence::track_variable(CUcontext context, std::uintptr_t base, std::size_t bytes) {
    const auto chunk = base / Allocations::kChunk * Allocations::kChunk;
    if (base + bytes <= chunk + Allocations::kChunk) {
        const Locked lock(regions_);
        const auto offset = base - chunk;
        const Object* const region = table_.find(base);
        const bool taken = region != nullptr && region->is_region() && region->allocations->holding(offset).bytes != 0;
        return !taken && reserved_as_whole(base) && add_with_data(context, base, bytes);
    }
    const auto size = padded(bytes);
    const char* refusal = nullptr;
    if (base % kPage != 0 || !reserved(base, size, base)) return false;
    Object* const object = make_object({base, size, bytes, context, Peers::OfContext, false, &refusal, bytes});
    if (object != nullptr) object->birth = 0;
    return object != nullptr;
}

}  // namespace hpe
