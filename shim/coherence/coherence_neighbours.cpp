// SPDX-License-Identifier: MIT
// Coherence: small objects that lie side by side and are used one after the other are opened together. Class of this
// file: that of the fault path.
#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "protocols/object_sweeps.h"
#include "shim/base/mutex.h"
#include "shim/base/room.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/transfer/copiers.h"
#include "shim/transfer/engine.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

std::uintptr_t end_of(const Object& object) noexcept { return object.base + object.size; }

}  // namespace

// Objects of one block each, side by side, in ascending order; and what becomes of each.
struct Coherence::Neighbours {
    static constexpr std::size_t kMost = Arena::kChunk / kPage;  // no two objects share a page

    std::array<Object*, kMost> objects;
    std::array<Engine::Part, kMost> parts;
    std::array<bool, kMost> written, again;
    std::size_t count;

    Object** begin() noexcept { return objects.data(); }
    Object** end() noexcept { return objects.data() + count; }
    Object& first() const noexcept { return *objects[0]; }
    std::size_t bytes() const noexcept { return end_of(*objects[count - 1]) - objects[0]->base; }
    void unlock() noexcept {
        for (Object* object : *this) object->block(0).unlock();
    }
};

bool Coherence::side_by_side(const Object& low, const Object& high) noexcept {
    return end_of(low) == high.base && low.view + low.size == high.view && low.context == high.context &&
           low.device_size == low.size && !low.is_region() && !high.is_region();
}

// The one that begins where the object ends, or ends where it begins, in the same chunk of the arena: a huge page is
// used as a whole.
Object* Coherence::neighbour(const Object& object, bool upwards) const noexcept {
    Object* const other = object_of(upwards ? end_of(object) : object.base - 1);
    if (other == nullptr || other->base / Arena::kChunk != object.base / Arena::kChunk) return nullptr;
    return (upwards ? side_by_side(object, *other) : side_by_side(*other, object)) ? other : nullptr;
}

// An access to `object` was served, whose one block is in the state `next`: what the access predicts is opened, too.
// Inside the gate, so no object is freed meanwhile.
void Coherence::open_neighbours(Object& object, Event event, State next, ObjectSweeps& sweeps) noexcept {
    const auto most = protocol_->reach_bytes(Arena::kChunk, block_size_);
    if (object.size >= Arena::kChunk || most <= protocol_->block_bytes(Arena::kChunk, block_size_)) return;
    const auto reach = sweeps.fault(object.base, end_of(object), event == Event::CpuWrite, most);
    if (reach.bytes == 0) return;

    const Room<Neighbours> room;
    if (room.get() == nullptr) return;  // this time
    Neighbours& opened = *room.get();
    find_neighbours(object, reach, opened);
    // Before a block is locked: who unmaps objects holds that lock and waits for blocks.
    if (opened.count == 0 || !map_neighbours(opened)) return;
    lock_neighbours(opened, reach.upwards, event, next);
    if (opened.count == 0) return;
    if (!bring_neighbours(opened, event, next) || !pager::protect(opened.first().base, opened.bytes(), next)) {
        // The program asked for none of them.
        for (Object* other : opened) {
            if (valid_on_host(other->block(0).peek().state)) continue;
            pager::close_shadow(*other);
        }
        opened.unlock();
        return;
    }
    want_helpers(object);
    const auto has_pages = [](Object* other) { return other->block(0).mapped(); };
    if (!std::all_of(opened.begin(), opened.end(), has_pages)) {
        auto* const view = opened.first().view;
        copiers::map_pages(reinterpret_cast<void*>(opened.first().base), opened.bytes(),
                           !Arena::used(view) && !Arena::huge(view));
    }
    for (std::size_t i = 0; i < opened.count; ++i) {
        Object& other = *opened.objects[i];
        Block& block = other.block(0);
        const auto before = block.peek().state;
        if (!valid_on_host(before)) became_valid(other, 1);
        block.mark_mapped();
        block.become(next);
        opened.written[i] = next == State::Dirty && before != State::Dirty;
        opened.again[i] = opened.written[i] && block.take_evicted();
        block.unlock();
    }
    for (std::size_t i = 0; i < opened.count; ++i) {
        if (!opened.written[i]) continue;
        became_dirty({opened.objects[i], opened.objects[i]->serial(), 0, 1}, opened.again[i]);
    }
    sweeps.opened(std::min(object.base, opened.first().base),
                  std::max(end_of(object), opened.first().base + opened.bytes()));
}

void Coherence::find_neighbours(const Object& object, const ObjectSweeps::Reach& reach,
                                Neighbours& found) const noexcept {
    found.count = 0;
    const Object* at = &object;
    for (std::size_t bytes = 0; bytes < reach.bytes && found.count < Neighbours::kMost;) {
        Object* const other = neighbour(*at, reach.upwards);
        if (other == nullptr || other->blocks() != 1 || !other->touch() ||
            other->lent.load(std::memory_order_seq_cst) != 0) {
            break;
        }
        found.objects[found.count++] = other;
        bytes += other->size;
        at = other;
    }
    if (!reach.upwards) std::reverse(found.begin(), found.end());
}

// Locks them, from the one beside the object that was accessed on. What is in the way, or not for this event, ends it.
void Coherence::lock_neighbours(Neighbours& found, bool upwards, Event event, State next) const noexcept {
    const auto take = [&](Object& object) {
        Block& block = object.block(0);
        if (!block.try_lock()) return false;
        const bool fits = usable(object, object.serial(), 0) && object.blocks() == 1 && !block.borrowed() &&
                          !block.prefetch_requested() && protocol_->on(block.peek().state, event).next == next;
        if (!fits) block.unlock();
        return fits;
    };
    std::size_t taken = 0;
    while (taken < found.count && take(*found.objects[upwards ? taken : found.count - 1 - taken])) ++taken;
    if (!upwards) std::move(found.end() - taken, found.end(), found.begin());
    found.count = taken;
}

// Stretches that are not mapped yet are mapped at once.
bool Coherence::map_neighbours(Neighbours& opened) noexcept {
    const auto mapped = [](const Object* object) { return object->shadowed.load(std::memory_order_acquire); };
    const Locked lock(mapping_);
    for (Object** it = opened.begin(); it != opened.end();) {
        if (mapped(*it)) {
            ++it;
            continue;
        }
        Object** const end = std::find_if(it, opened.end(), mapped);
        Object& first = **it;
        if (!pager::map_shadow(first.base, end_of(*end[-1]) - first.base, Arena::closed(first.view))) return false;
        for (; it != end; ++it) became_mapped(**it);
    }
    return true;
}

bool Coherence::bring_neighbours(Neighbours& opened, Event event, State next) noexcept {
    if (opened.bytes() >= Arena::kChunk / 2) {
        auto* const view = opened.first().view;
        Arena::use_huge_pages(view - reinterpret_cast<std::uintptr_t>(view) % Arena::kChunk, Arena::kChunk);
    }
    const auto work = in_flight.work();
    const auto wanted = [&](Object* object) {
        // As in bring(): an object that no device work could have written holds no data.
        return protocol_->on(object->block(0).peek().state, event).action == Action::Fetch &&
               (object->birth != work || next != State::Dirty);
    };
    for (Object** it = std::find_if(opened.begin(), opened.end(), wanted); it != opened.end();) {
        std::size_t count = 0;
        for (; it != opened.end() && wanted(*it); ++it) opened.parts[count++] = {*it, 0, (*it)->size};
        if (sticky_error() != CUDA_SUCCESS || settle_flushes() != CUDA_SUCCESS ||
            engine.fetch(std::span(opened.parts.data(), count), Engine::Order::Ordered) != CUDA_SUCCESS) {
            return false;
        }
        it = std::find_if(it, opened.end(), wanted);
    }
    return true;
}

}  // namespace hpe
