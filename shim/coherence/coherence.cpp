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

void Coherence::track(std::uintptr_t base, std::size_t requested, Peers may_access) {
    const auto size = padded(requested);
    if (base % kPage != 0) {
        device_owned::add(base, size, "the driver placed it inside a page that others use");
        return;
    }
    CUcontext context = nullptr;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) {
        device_owned::add(base, size, "the driver did not say which context it belongs to");
        return;
    }
    const auto block_bytes = protocol_->block_bytes(size, block_size_);
    const auto blocks = Object::block_count(size, block_bytes);
    Object* object = pool_.take();
    const bool kept = object->keeps_words(blocks);
    Block* words = object->take_words();
    if (!kept) {
        std::free(words);
        // What nobody touches takes no memory.
        words = blocks > 1 ? static_cast<Block*>(std::calloc(blocks, sizeof(Block))) : nullptr;
    }
    auto* view = words != nullptr || blocks == 1 ? Arena{}.take(base, size) : nullptr;
    if (view == nullptr) {
        std::free(words);
        pool_.give_back(object);
        static std::once_flag said;
        std::call_once(said,
                       [] { log::warn("no address space for host copies: further allocations stay on the device"); });
        device_owned::add(base, size, "there was no address space for its host copy");
        return;
    }
    // Atomic: a recycled object may still be on the list of a launch, which reads the address to sort (release()).
    std::atomic_ref(object->base).store(base, std::memory_order_relaxed);
    object->size = size;
    object->requested_size = requested;
    object->view = view;
    object->context = context;
    // Unless the device is idle: the program may tell a running kernel the address, and the kernel write to it. After a
    // stream-ordered allocation it is not.
    const auto work = in_flight.work();
    object->birth = may_access == Peers::OfContext && in_flight.idle() ? work : 0;
    report::object_added(*object);
    object->accessed_as_context = may_access == Peers::OfContext;
    object->lent.store(0, std::memory_order_relaxed);
    object->open(block_bytes, words);
    if (!table_.insert(object)) {
        log::warn("allocation {:#x} of {} bytes overlaps one that was never freed: it stays on the device", base,
                  requested);
        object->close();
        Arena{}.give_back(view, base, size, false);
        recycle(*object);
        device_owned::add(base, size, "it overlaps another allocation");
        return;
    }
    for (auto low = lowest_.load(); low > base && !lowest_.compare_exchange_weak(low, base);) {
    }
    for (auto high = highest_.load(); high < base + size && !highest_.compare_exchange_weak(high, base + size);) {
    }
    live_objects::add(object);
    protocol_->object_added();
    if (object->accessed_as_context) peers.saw(context);
    if (callbacks_.load(std::memory_order_relaxed)) engine.prepare(context);
}

void Coherence::expect_callbacks() {
    if (callbacks_.exchange(true, std::memory_order_relaxed)) return;
    for (const Object* object : live_objects::all()) engine.prepare(static_cast<CUcontext>(object->context));
}

Object* Coherence::object_of(std::uintptr_t address) const noexcept {
    Object* object = table_.find(address);
    return object != nullptr && object->serial() % 2 == 1 ? object : nullptr;
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
    live_objects::remove(&object);
    protocol_->object_removed();
    report::object_removed(object);
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

std::span<Coherence::Kept> Coherence::drop_context(CUcontext context) {
    if (sticky_context_.load(std::memory_order_acquire) == context) sticky_error_.store(CUDA_SUCCESS);
    const auto objects = live_objects::of(context);
    auto* kept = new Kept[objects.size() + 1];
    std::size_t count = 0;
    for (Object* object : objects) {
        if (begin_free(*object) != CUDA_SUCCESS) continue;
        kept[count++] = {object->base, object->requested_size,
                         object->accessed_as_context ? Peers::OfContext : Peers::OwnAccess};
        finish_free(*object);
    }
    return {kept, count};
}

void Coherence::restore_context(CUcontext context, std::span<const Kept> kept) {
    ContextScope scope(context);
    for (const auto& old : kept) {
        track(old.base, old.requested, old.may_access);
        // Unlike a new allocation the object holds data.
        if (Object* object = object_at(old.base)) object->birth = 0;
    }
}

CUresult Coherence::hand_over(std::uintptr_t address, const char* reason) {
    Object* const object = object_of(address);
    // The MPI that an object is lent to exports it, and uses it for messages only, of which libhpe knows.
    if (object == nullptr || object->lent.load(std::memory_order_acquire) != 0) return CUDA_SUCCESS;
    const LaunchInGate in_gate(launch_gate_);
    const auto result = release_object(*object);
    if (result != CUDA_SUCCESS) return result;
    const auto base = object->base;
    const auto size = object->size;
    const auto begun = begin_free(*object);
    if (begun != CUDA_SUCCESS) return begun;
    finish_free(*object);
    device_owned::add(base, size, reason);
    return CUDA_SUCCESS;
}

}  // namespace hpe
