// SPDX-License-Identifier: MIT
// Coherence: the life of objects.
#include "shim/coherence/coherence.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <vector>

#include "shim/base/kernel.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/coherence/apply.h"
#include "shim/coherence/device_owned.h"
#include "shim/coherence/live_objects.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/observe/report.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/peers.h"
#include "shim/transfer/read_ahead.h"

namespace hpe {

constinit Coherence the_coherence;

void Coherence::configure(Protocol* protocol, std::size_t block_size) {
    protocol_ = protocol;
    block_size_ = block_size;
}

std::size_t Coherence::padded(std::size_t requested) noexcept {
    if (requested == 0 || requested > std::numeric_limits<std::size_t>::max() - kPage) return 0;
    return (requested + kPage - 1) / kPage * kPage;
}

// Why an allocation cannot be shared is said of it (device_owned).
struct Coherence::Made {
    std::uintptr_t base;
    std::size_t size, requested, block_bytes;
    CUcontext context;
    Peers may_access;
    bool region;
    const char** refusal;
    std::size_t device_size = size;
};

Object* Coherence::take_last_freed(const Made& made) {
    Object* const object = last_freed_.exchange(nullptr, std::memory_order_acquire);
    if (object == nullptr) return nullptr;
    if (object->base == made.base && object->size == made.size && object->context == made.context) return object;
    give_up(*object);
    return nullptr;
}

Object* Coherence::make_object(const Made& made) {
    const auto blocks = Object::block_count(made.size, made.block_bytes);
    Object* object = take_last_freed(made);
    const bool again = object != nullptr;
    if (!again) object = pool_.take();
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
    if (!again) object->view = ready ? Arena{}.take(made.base, made.size) : nullptr;
    if (!ready || object->view == nullptr) {
        std::free(words);
        if (again) {
            give_up(*object);
        } else {
            pool_.give_back(object);
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
    object->requested_size = made.requested;
    object->device_size = made.device_size;
    object->context = made.context;
    // Unless the device is idle: the program may tell a running kernel the address, and the kernel write to it. After a
    // stream-ordered allocation it is not.
    object->accessed_as_context = made.may_access == Peers::OfContext;
    const auto work = object->accessed_as_context ? in_flight.work() : 0;
    object->birth = work != 0 && in_flight.idle() ? work : 0;
    report::object_added(*object);
    object->lent.store(0, std::memory_order_relaxed);
    object->open(made.block_bytes, words);
    if (!again) live_objects::add(object);
    if (!table_.insert(object)) {
        log::warn("allocation {:#x} of {} bytes overlaps one that was never freed: it stays on the device", made.base,
                  made.requested);
        object->close();
        give_up(*object);
        *made.refusal = "it overlaps another allocation";
        return nullptr;
    }
    look_at(made.base, made.size);
    if (!made.region) device_owned::remove_of_graphs(made.base, made.size);
    protocol_->object_added();
    if (object->accessed_as_context) peers.saw(made.context);
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
    if (base % kPage != 0) {
        refusal = "the driver placed it inside a page that others use";
    } else if (context == nullptr && (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr)) {
        refusal = "the driver did not say which context it belongs to";
    } else {
        make_object(
            {base, size, requested, protocol_->block_bytes(size, block_size_), context, may_access, false, &refusal});
    }
    if (refusal != nullptr) keep_off(base, size, refusal);
}

bool Coherence::track_in_region(std::uintptr_t base, std::size_t requested) {
    CUcontext context = nullptr;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return false;
    const Locked lock(regions_);
    // Again when the CPU touches the first of a region (map_shadow): to ask takes as long as to allocate.
    if (!regions_possible_ && !reserved_as_whole(base / Allocations::kChunk * Allocations::kChunk, base)) {
        no_regions_.store(true, std::memory_order_relaxed);
        return false;
    }
    regions_possible_ = true;
    return add_to_region(context, base, requested);
}

bool Coherence::add_to_region(CUcontext context, std::uintptr_t base, std::size_t requested) {
    constexpr auto kChunk = Allocations::kChunk;
    // Whole objects are what batch and lazy update move: of so many small allocations that would be too much.
    constexpr std::size_t kLargestBlock = std::size_t{64} << 10;
    const auto offset = base % kChunk, chunk = base - offset;
    if (offset % Allocations::kUnit != 0 || offset + requested > kChunk) return false;
    Object* region = table_.find(chunk);
    if (region != nullptr && region->serial() % 2 == 1) {
        if (!region->is_region() || region->context != context) return false;
        protocol_->object_added();
    } else {
        const char* refusal = nullptr;
        const auto block_bytes = protocol_->block_bytes(kLargestBlock, block_size_);
        region = make_object({chunk, kChunk, 0, block_bytes, context, Peers::OfContext, true, &refusal});
        if (region == nullptr) return false;
    }
    keep_apart(*region, {offset, requested});
    region->allocations->add(offset, requested);
    report::allocation_added(*region, offset);
    return true;
}

void Coherence::expect_callbacks() {
    if (callbacks_.exchange(true, std::memory_order_relaxed)) return;
    for (const Object* object : live_objects::all()) engine.prepare(static_cast<CUcontext>(object->context));
}

Object* Coherence::object_of(std::uintptr_t address) const noexcept {
    Object* object = table_.find(address);
    return object != nullptr && object->serial() % 2 == 1 && object->holds(address) ? object : nullptr;
}

Allocation Coherence::allocation_of(std::uintptr_t address) const noexcept {
    const Object* const object = table_.find(address);
    return object != nullptr && object->serial() % 2 == 1 ? object->allocation_of(address) : Allocation{};
}

Allocation Coherence::allocation_at(std::uintptr_t base) const noexcept {
    Object* const object = table_.find(base);
    if (object == nullptr || object->serial() % 2 == 0) return {};
    if (!object->is_region()) return object->base == base ? object->allocation_of(base) : Allocation{};
    const auto offset = base - object->base;
    const auto one = offset < Allocations::kChunk ? object->allocations->at(offset) : Allocations::One{};
    return one.bytes != 0 ? Allocation{object, base, one.bytes, object->context} : Allocation{};
}

Object* Coherence::object_at(std::uintptr_t base) const noexcept {
    Object* object = object_of(base);
    return object != nullptr && object->base == base ? object : nullptr;
}

void Coherence::about_to_free(const Object& object) const noexcept {
    const auto base = object.base;
    const auto size = object.size;
    // Only memory that the CPU can access can have been registered. Two threads that free the same object may both come
    // here.
    if (!object.shadowed.load(std::memory_order_acquire) || object_at(base) != &object) return;
    kernel::tell_unmapped(reinterpret_cast<void*>(base), size);
}

// A region's pages stay what they are as long as it lives, but which free is the last is known only later.
void Coherence::about_to_free(const Allocation& allocation) const noexcept {
    const Object& object = *allocation.object;
    if (!object.is_region()) return about_to_free(object);
    if (!object.shadowed.load(std::memory_order_acquire)) return;
    const auto begin = allocation.base / kPage * kPage;
    kernel::tell_unmapped(reinterpret_cast<void*>(begin), padded(allocation.base + allocation.bytes - begin));
}

CUresult Coherence::begin_free(Allocation& allocation, Refusal refusal) {
    Object& object = *allocation.object;
    if (!object.is_region()) return begin_free(object);
    // The driver may refuse the free (a capture, no context, a variable), which must not lose what the CPU wrote
    // (cancel_free).
    if (refusal == Refusal::Possible && object.host_valid_blocks.load(std::memory_order_acquire) != 0) {
        before_device_reads({allocation.base, allocation.bytes}, nullptr);
    }
    const Locked lock(regions_);
    const auto offset = allocation.base - object.base;
    if (object.serial() % 2 == 0 || object.allocations->at(offset).bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    allocation.ends_object = object.allocations->count() == 1;
    if (allocation.ends_object) return begin_free(object);
    const auto result = leave_region(object, allocation);
    if (result == CUDA_SUCCESS) report::allocation_removed(object, {offset, allocation.bytes});
    return result;
}

// A page without an allocation stays closed, so that it is not more accessible than its block's state allows when it
// gets one again.
void Coherence::close_gaps(const Object& region, std::size_t offset, std::size_t bytes) noexcept {
    if (!region.shadowed.load(std::memory_order_acquire)) return;
    const auto end = (offset + bytes + kPage - 1) / kPage * kPage;
    for (auto page = offset / kPage * kPage; page < end;) {
        const auto first = page;
        while (page < end && !region.holds(region.base + page)) page += kPage;
        if (page != first && !pager::protect(region.base + first, page - first, State::Invalid)) {
            pager::close_shadow(region.base, region.size, Arena::closed(region.view));
        }
        page += page == first ? kPage : 0;
    }
}

// Its bytes are moved no more.
CUresult Coherence::leave_region(Object& object, const Allocation& allocation) {
    const auto offset = allocation.base - object.base;
    object.allocations->remove(offset);
    // Whoever touches the region from now on sees that.
    if (!object.touched()) return CUDA_SUCCESS;
    SignalsBlocked blocked;
    const Locked lock(apply_mutex());
    const auto first = object.block_at(allocation.base), last = object.block_at(allocation.base + allocation.bytes - 1);
    for (auto i = first; i <= last; ++i) object.block(i).lock();
    close_gaps(object, offset, allocation.bytes);
    for (auto i = first; i <= last; ++i) object.block(i).unlock();
    const auto drained = engine.drain();
    if (drained == CUDA_SUCCESS || lost_context(drained)) return CUDA_SUCCESS;
    object.allocations->add(offset, allocation.bytes);
    log::warn("allocation {:#x} cannot be freed while its transfers may be under way: {}", allocation.base,
              error_name(drained));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void Coherence::finish_free(const Allocation& allocation) {
    Object& object = *allocation.object;
    if (!allocation.ends_object) return protocol_->object_removed();
    if (object.is_region()) {
        const auto offset = allocation.base - object.base;
        object.allocations->remove(offset);
        report::allocation_removed(object, {offset, allocation.bytes});
    }
    finish_free(object);
}

void Coherence::cancel_free(const Allocation& allocation) {
    Object& object = *allocation.object;
    const auto base = allocation.base;
    if (allocation.ends_object && !object.is_region()) return cancel_free(object);
    // Others may have freed the rest of the region meanwhile, or made another one in the same chunk.
    Locked lock(regions_);
    if (allocation.ends_object && table_.find(base) == nullptr) {
        cancel_free(object);
        return keep_apart(object, {base - object.base, allocation.bytes});
    }
    if (allocation.ends_object) {
        object.allocations->remove(base - object.base);
        report::allocation_removed(object, {base - object.base, allocation.bytes});
        finish_free(object);
    } else {
        protocol_->object_removed();
    }
    const bool added = add_with_data(static_cast<CUcontext>(allocation.context), base, allocation.bytes);
    lock.unlock();
    if (!added) keep_off(base, allocation.bytes, "it could not be freed");
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
    if (object == nullptr || object->serial() % 2 == 0) return add();
    if (!object->touched()) {
        if (!add()) return false;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!object->touched()) return true;
        object->allocations->remove(base - object->base);  // somebody may have opened the block without its bytes
        report::allocation_removed(*object, {base - object->base, bytes});
    }
    constexpr unsigned kMost = 100;  // host functions may borrow such a block again and again
    for (unsigned attempt = 0; attempt < kMost; ++attempt) {
        if (before_device_writes({base, bytes}, nullptr) != CUDA_SUCCESS) return false;
        const SignalsBlocked blocked;
        const auto first = object->block_at(base), end = object->block_at(base + bytes - 1) + 1;
        for (auto i = first; i < end; ++i) object->block(i).lock();
        // It may have been coarsened meanwhile.
        bool valid = first != object->block_at(base) || end > object->blocks(), added = false;
        for (auto i = first; i < end; ++i) valid = valid || valid_on_host(object->block(i).peek().state);
        if (!valid) added = add();
        for (auto i = first; i < end; ++i) object->block(i).unlock();
        if (!valid) return added;
    }
    return false;
}

bool Coherence::track_variable(CUcontext context, std::uintptr_t base, std::size_t bytes) {
    const auto chunk = base / Allocations::kChunk * Allocations::kChunk;
    if (base + bytes <= chunk + Allocations::kChunk) {
        const Locked lock(regions_);
        const auto offset = base - chunk;
        const Object* const region = table_.find(base);
        const bool taken = region != nullptr && region->serial() % 2 == 1 && region->is_region() &&
                           region->allocations->holding(offset).bytes != 0;
        return !taken && reserved_as_whole(chunk, base) && add_with_data(context, base, bytes);
    }
    const auto size = padded(bytes);
    const char* refusal = nullptr;
    if (base % kPage != 0 || !reserved(base, size, base)) return false;
    Object* const object = make_object({base, size, bytes, protocol_->block_bytes(size, block_size_), context,
                                        Peers::OfContext, false, &refusal, bytes});
    if (object != nullptr) object->birth = 0;
    return object != nullptr;
}

CUresult Coherence::begin_free(Object& object) {
    // There is nothing to wait for or to unmap.
    if (object.close_untouched()) {
        table_.erase(&object);
        return CUDA_SUCCESS;
    }
    SignalsBlocked blocked;
    const Locked lock(apply_mutex());
    if (object.serial() % 2 == 0) return CUDA_ERROR_INVALID_VALUE;
    // Transfers under way use the shadow, which is about to be recycled. Those of a lost context have ended.
    const auto drained = engine.drain();
    const auto dropped = read_ahead::drop(object);
    const auto result = drained == CUDA_SUCCESS || lost_context(drained) ? dropped : drained;
    if (result != CUDA_SUCCESS) {
        log::warn("object {:#x} cannot be freed while its transfers may be under way: {}", object.base,
                  error_name(result));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    spare_mappings(&object);
    const auto count = object.blocks();
    for (std::uint32_t i = 0; i < count; ++i) object.block(i).lock();
    // If the true free fails, what borrowers wrote must have reached the device, and the rest of their blocks must not
    // count as newer than the device's copy.
    end_loans_of(object, this_thread.in_callback != 0);
    // The first access to the next object at this address must trap: no page may stay accessible.
    const bool closed = !object.shadowed.load(std::memory_order_acquire) ||
                        pager::unmap_shadow(object.base, object.size) ||
                        pager::close_shadow(object.base, object.size, Arena::closed(object.view));
    if (closed) {
        table_.erase(&object);
        object.close();
        drop_loans_of(object);
    }
    for (std::uint32_t i = 0; i < count; ++i) object.block(i).unlock();
    if (closed) return CUDA_SUCCESS;
    log::warn("cannot unmap the host copy of object {:#x} (out of mappings): its free fails", object.base);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void Coherence::cancel_free(Object& object) {
    // The program keeps the object with what the CPU wrote to it: the blocks keep their states, and the next access
    // maps the shadow again.
    object.shadowed.store(false, std::memory_order_release);
    object.reopen();
    table_.insert(&object);
}

void Coherence::finish_free(Object& object) {
    protocol_->object_removed();
    report::object_removed(object);
    // A call may still read its view (lease::ToRead), as a program may where another thread exports the memory. The
    // view is lost then.
    if (object.used()) return live_objects::remove(&object);
    Object* const other = object.touched() ? &object : last_freed_.exchange(&object, std::memory_order_acq_rel);
    if (other != nullptr) give_up(*other);
}

void Coherence::give_up(Object& object) {
    live_objects::remove(&object);
    Arena{}.give_back(object.view, object.base, object.size, object.touched());
    recycle(object);
}

// Except where another thread looks at it in that very moment, in a race with the program's own free: it keeps it.
void Coherence::recycle(Object& object) {
    if (object.used()) return;
    // Blocks that nobody touched are the next object's: returning them may cost the heap a system call.
    if (object.touched()) std::free(object.take_words());
    pool_.give_back(&object);
}

std::vector<Coherence::Kept> Coherence::drop_context(CUcontext context) {
    if (sticky_context_.load(std::memory_order_acquire) == context) sticky_error_.store(CUDA_SUCCESS);
    std::vector<Kept> kept;
    const Locked lock(regions_);
    const auto objects = live_objects::of(context);
    // At once: after the first one is gone there is no way back.
    std::size_t most = 0;
    for (const Object* object : objects) most += object->is_region() ? object->allocations->count() : 1;
    kept.reserve(most);
    for (Object* object : objects) {
        if (begin_free(*object) == CUDA_SUCCESS) drop(*object, kept);
    }
    return kept;
}

// It has been begun to be freed.
void Coherence::drop(Object& object, std::vector<Kept>& kept) {
    if (object.is_region()) {
        auto& all = *object.allocations;
        for (auto one = all.from(0); one.bytes != 0; one = all.from(one.offset + 1)) {
            kept.push_back({object.base + one.offset, one.bytes, Peers::OfContext});
            all.remove(one.offset);
            report::allocation_removed(object, one);
            if (all.count() == 0) break;
            protocol_->object_removed();
        }
    } else {
        kept.push_back({object.base, object.requested_size,
                        object.accessed_as_context ? Peers::OfContext : Peers::OwnAccess,
                        object.device_size == object.size});
    }
    finish_free(object);
}

void Coherence::restore_context(CUcontext context, std::span<const Kept> kept) {
    ContextScope scope(context);
    for (const auto& old : kept) {
        const bool in_region = this->in_region(old.requested) && old.may_access == Peers::OfContext &&
                               track_in_region(old.base, old.requested);
        if (!in_region) track(old.base, old.requested, old.may_access);
        // Unlike a new allocation the object holds data.
        Object* const object = object_of(old.base);
        if (object == nullptr) continue;
        object->birth = 0;
        if (!old.whole_pages) object->device_size = old.requested;
    }
}

}  // namespace hpe
