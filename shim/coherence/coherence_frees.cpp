// SPDX-License-Identifier: MIT
// Coherence: the end of allocations, objects and contexts.
#include "shim/coherence/coherence.h"

#include <cstdlib>
#include <span>
#include <vector>

#include "shim/base/kernel.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/observe/report.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/read_ahead.h"

namespace hpe {

// Only memory that the CPU can access can have been registered. A region's pages stay what they are as long as it
// lives, but which free is the last is known only later. Two threads that free the same object may both come here.
void Coherence::tell_unmapped(const Allocation& allocation) const noexcept {
    const Object& object = *allocation.object;
    const auto base = object.base;
    const auto size = object.size;
    if (!object.is_region()) {
        if (object_at(base) == &object) kernel::tell_unmapped(reinterpret_cast<void*>(base), size);
        return;
    }
    const auto begin = allocation.base / kPage * kPage;
    kernel::tell_unmapped(reinterpret_cast<void*>(begin), padded(allocation.base + allocation.bytes - begin));
}

CUresult Coherence::begin_free(Allocation& allocation, Refusal refusal) {
    Object& object = *allocation.object;
    if (!object.is_region()) return begin_free(object);
    // The driver may refuse the free (a capture, no context, a variable), which must not lose what the CPU wrote
    // (cancel_free).
    if (refusal == Refusal::Possible && object.host_valid_blocks.load(std::memory_order_acquire) != 0) {
        before_device_reads({allocation.base, allocation.bytes});
    }
    const Locked lock(regions_);
    const auto offset = allocation.base - object.base;
    if (!object.is_open() || object.allocations->at(offset).bytes == 0) return CUDA_ERROR_INVALID_VALUE;
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
            pager::close_shadow(region);
        }
        page += page == first ? kPage : 0;
    }
}

// Its bytes are moved no more, once what host functions have written to it is on the device.
CUresult Coherence::leave_region(Object& object, const Allocation& allocation) {
    const auto offset = allocation.base - object.base;
    object.allocations->remove(offset);
    // Whoever touches the region from now on sees that.
    if (!object.touched()) return CUDA_SUCCESS;
    SignalsBlocked blocked;
    const Locked lock(apply_);
    const auto locked = lock_blocks(object, {allocation.base, allocation.bytes});
    object.allocations->add(offset, allocation.bytes);
    const auto ended = end_loans_of(object, locked, this_thread.in_callback != 0);
    object.allocations->remove(offset);
    close_gaps(object, offset, allocation.bytes);
    object.unlock(locked.first, locked.end);
    auto drained = engine.drain();
    if (drained == CUDA_SUCCESS) drained = ended;
    if (drained == CUDA_SUCCESS || lost_context(drained)) return CUDA_SUCCESS;
    object.allocations->add(offset, allocation.bytes);
    log::warn("allocation {:#x} cannot be freed while its transfers may be under way: {}", allocation.base,
              error_name(drained));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void Coherence::finish_free(const Allocation& allocation) {
    Object& object = *allocation.object;
    if (!allocation.ends_object) {
        allocations_.fetch_sub(1, std::memory_order_relaxed);
        return;
    }
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
        allocations_.fetch_sub(1, std::memory_order_relaxed);
    }
    const bool added = add_with_data(allocation.context, base, allocation.bytes);
    lock.unlock();
    if (!added) keep_off(base, allocation.bytes, "it could not be freed");
}

CUresult Coherence::begin_free(Object& object) {
    // There is nothing to wait for or to unmap. It keeps its place, in case that it is made again (make_object); but a
    // region's is asked for (cancel_free).
    if (object.close_untouched()) {
        if (object.is_region()) table_.erase(&object);
        return CUDA_SUCCESS;
    }
    SignalsBlocked blocked;
    const Locked lock(apply_);
    if (!object.is_open()) return CUDA_ERROR_INVALID_VALUE;
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
    object.lock(0, count);
    // If the true free fails, what borrowers wrote must have reached the device, and the rest of their blocks must not
    // count as newer than the device's copy.
    end_loans_of(object, {0, count}, this_thread.in_callback != 0);
    // The first access to the next object at this address must trap: no page may stay accessible.
    const bool closed = !object.shadowed.load(std::memory_order_acquire) ||
                        pager::unmap_shadow(object.base, object.size) || pager::close_shadow(object);
    if (closed) {
        object.close();
        drop_loans_of(object);
    }
    object.unlock(0, count);
    if (closed) {
        table_.erase(&object);
        return CUDA_SUCCESS;
    }
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
    allocations_.fetch_sub(1, std::memory_order_relaxed);
    report::object_removed(object);
    // A call may still read its view (lease::ToRead), as a program may where another thread exports the memory. The
    // view is lost then.
    if (object.used() || object.view_is_kept.load(std::memory_order_acquire)) return table_.erase(&object);
    Object* const other = object.touched() ? &object : last_freed_.exchange(&object, std::memory_order_acq_rel);
    if (other != nullptr) give_up(*other);
}

void Coherence::give_up(Object& object) {
    if (table_.has(object)) table_.erase(&object);
    Arena{}.give_back(object.view, object.base, object.size, object.touched());
    recycle(object);
}

// Except where another thread looks at it in that very moment, in a race with the program's own free: it keeps it.
void Coherence::recycle(Object& object) {
    if (object.used()) return;
    // Blocks that nobody touched are the next object's: returning them may cost the heap a system call.
    if (object.touched()) std::free(object.take_words());
    ObjectPool::give_back(&object);
}

std::vector<Coherence::Kept> Coherence::drop_context(CUcontext context) {
    std::vector<Kept> kept;
    const Locked lock(regions_);
    std::vector<Object*> objects;
    ObjectPool::for_open([&](Object& object) {
        if (object.context == context) objects.push_back(&object);
    });
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
            allocations_.fetch_sub(1, std::memory_order_relaxed);
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
