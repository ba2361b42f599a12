// SPDX-License-Identifier: MIT
// Coherence: what doors ask before and after a call of the program: release, acquire, ranges of copies.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/loans.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/transfer/across.h"
#include "shim/transfer/engine.h"

namespace hpe {

namespace {

// What event_of returns for a block outside the range. apply() never handles the program's waits.
constexpr auto kNotConcerned = Event::Acquire;

// A block that apply() has locked.
struct Held {
    Object* object;
    std::uint32_t index;
    State before;
    Transition transition;

    bool borrowed() const noexcept { return object->block(index).borrowed(); }
    // What the pages are given for a state. A loan has opened those of one allocation alone (Coherence::borrow), so a
    // borrowed block that stays valid is closed: the borrower's next access opens its own again.
    State of_pages(State state) const noexcept { return borrowed() ? State::Invalid : state; }
};

// One begins where the other ends, at the device address and in the view. Which objects are mapped does not change
// while their blocks are locked.
bool adjacent(const Held& a, const Held& b) noexcept {
    if (a.object == b.object) return a.index + 1 == b.index;
    return a.index + 1 == a.object->blocks() && b.index == 0 && Coherence::side_by_side(*a.object, *b.object) &&
           a.object->shadowed.load(std::memory_order_acquire) && b.object->shadowed.load(std::memory_order_acquire);
}

std::uintptr_t address_of(const Held& h) noexcept { return h.object->base + h.object->offset_of(h.index); }

// Calls run(first, last) for each stretch of neighbouring blocks that `wanted` accepts and `same` joins.
template <class Wanted, class Same, class Run>
bool for_runs(std::span<const Held> held, Wanted&& wanted, Same&& same, Run&& run) {
    for (std::size_t i = 0; i < held.size();) {
        if (!wanted(held[i])) {
            ++i;
            continue;
        }
        auto last = i;
        while (last + 1 < held.size() && adjacent(held[last], held[last + 1]) && wanted(held[last + 1]) &&
               same(held[last], held[last + 1])) {
            ++last;
        }
        if (!run(held[i], held[last])) return false;
        i = last + 1;
    }
    return true;
}

std::size_t span_bytes(const Held& first, const Held& last) noexcept {
    return address_of(last) + last.object->bytes_of(last.index) - address_of(first);
}

// Whether neighbours lie in the same part of the address space.
bool same_part(const Held& a, const Held& b) noexcept {
    constexpr std::size_t kPart = std::size_t{16} << 20;
    return address_of(a) / kPart == address_of(b) / kPart;
}

// If the kernel refuses to split a mapping, the objects are closed as a whole: then no block is more accessible than
// its state allows, and the next access to a valid block traps and gives the block its protection back.
bool protect_run(const Held& first, const Held& last, State state) noexcept {
    const Object& object = *first.object;
    if (!object.shadowed.load(std::memory_order_acquire)) return true;  // a free failed: the next touch maps it
    const auto bytes_of_run = span_bytes(first, last);
    if (object.is_region() ? pager::protect(object, object.offset_of(first.index), bytes_of_run, state)
                           : pager::protect(address_of(first), bytes_of_run, state)) {
        return true;
    }
    const auto bytes = last.object->base + last.object->size - object.base;
    return pager::close_shadow(object.base, bytes, Arena::closed(object.view));
}

// Guarded by Coherence::apply_, and kept: a launch allocates only when it concerns more than any before.
struct Lists {
    std::vector<std::pair<std::uintptr_t, Object*>> in_order;
    std::vector<Object*> objects;
    std::vector<Held> held;
    std::vector<Engine::Part> parts;
};
Lists& lists() {
    static NeverDestroyed<Lists> all;
    return *all;
}

bool room_for(std::vector<Held>& held, std::size_t more) noexcept try {
    if (held.capacity() - held.size() < more) held.reserve(std::max({std::size_t{64}, 2 * held.capacity(), more}));
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

// The parts of a run, object by object, for which there is room. Valid until the next call.
std::span<const Engine::Part> parts_of(const Held& first, const Held& last) noexcept {
    auto& parts = lists().parts;
    parts.clear();
    for (const Held* h = &first; h <= &last; ++h) {
        const auto bytes = h->object->bytes_of(h->index);
        if (!parts.empty() && parts.back().object == h->object) {
            parts.back().bytes += bytes;
        } else {
            parts.push_back({h->object, h->object->offset_of(h->index), bytes});
        }
    }
    return parts;
}

// Takes all access from blocks that apply() has locked, given in order, with few system calls: each call interrupts
// every processor that runs a thread of the program. One call covers stretches with closed blocks between them.
class Closing {
public:
    // Adds a stretch of neighbours. False: the kernel refused.
    bool add(const Held& first, const Held& last) noexcept {
        if (first_ != nullptr && reaches(first)) {
            last_ = &last;
            return true;
        }
        const bool done = finish();
        first_ = &first;
        last_ = &last;
        return done;
    }
    bool finish() noexcept {
        if (first_ == nullptr) return true;
        const bool done = protect_run(*first_, *last_, first_->transition.next);
        for (const Held* h = first_; h != last_; ++h) {
            if (h->object == h[1].object) h->object->unlock(h->index + 1, h[1].index);
        }
        first_ = nullptr;
        return done;
    }

private:
    // Locks the blocks between, so that they stay closed. A block that apply() has locked for another reason cannot be
    // locked here, so from first_ to last_ every block that apply() holds is to be closed.
    bool reaches(const Held& next) noexcept {
        constexpr std::uint32_t kFar = 64;  // to lock more would cost as much as a call
        Object& object = *next.object;
        if (&object != last_->object || next.transition.next != last_->transition.next ||
            valid_on_host(next.transition.next) || next.index - last_->index > kFar) {
            return false;
        }
        for (auto i = last_->index + 1; i < next.index; ++i) {
            if (object.block(i).try_lock()) {
                if (!valid_on_host(object.block(i).peek().state)) continue;
                object.block(i).unlock();
            }
            object.unlock(last_->index + 1, i);
            return false;
        }
        return true;
    }
    const Held *first_ = nullptr, *last_ = nullptr;
};

// Before a block is locked: what copies many objects at once takes a while to make, once. Objects in ascending order,
// some of which may have been freed.
void expect_many(std::span<Object* const> objects) noexcept {
    const auto in_use = [](const Object& object) {
        return object.is_open() && object.shadowed.load(std::memory_order_acquire);
    };
    std::size_t pairs = 0;
    const Object* before = nullptr;
    for (Object* object : objects) {
        if (!in_use(*object)) continue;
        if (object->is_region() && object->allocations->count() >= across::kWorthAKernel) {
            return engine.expect_many(object->context);
        }
        if (before != nullptr && Coherence::side_by_side(*before, *object) && ++pairs == across::kWorthAKernel) {
            return engine.expect_many(object->context);
        }
        before = object;
    }
}

bool changes(const Held& h) noexcept { return h.transition.next != h.before; }

// Gives the pages back the access that they had.
void open_again(std::span<const Held> held) noexcept {
    for_runs(
        held, changes, [](const Held& a, const Held& b) { return a.of_pages(a.before) == b.of_pages(b.before); },
        [](const Held& a, const Held& b) { return protect_run(a, b, a.of_pages(a.before)), true; });
}

// Applied: they have the states that the protocol wants, and loans end with them.
void unlock(std::span<const Held> held, bool applied) noexcept {
    for (const auto& h : held) {
        const auto next = applied ? h.transition.next : h.before;
        if (h.borrowed() && next != State::Dirty) {
            Loan& loan = *loans::of(*h.object, h.index);
            valid_on_host(next) ? loan.drop_twin() : loans::end(loan);
        }
        if (!valid_on_host(next)) {
            h.object->host_valid_blocks.fetch_sub(1, std::memory_order_release);
            h.object->block(h.index).take_evicted();
        }
        h.object->block(h.index).unlock(next);
    }
}

void say_protect_failed() noexcept {
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (said.test_and_set()) return;
    log::warn("mprotect failed ({}): the call returns an error instead of working on old data", strerrordesc_np(errno));
}

}  // namespace

// Of the objects that find(objects) adds.
template <class Find, class Choose>
CUresult Coherence::apply_to(Find&& find, Choose&& event_of, const CUstream* stream) noexcept try {
    auto& objects = lists().objects;
    objects.clear();
    find(objects);
    return apply(objects, event_of, stream);
} catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;  // no block has been locked yet
}

// Locks the blocks that the event concerns, and asks the protocol what becomes of them. False: there is no memory to
// remember them all, and none is locked.
template <class Choose>
bool Coherence::lock_concerned(std::span<Object* const> objects, Choose&& event_of) {
    lists().parts.reserve(objects.size());
    auto& held = lists().held;
    held.clear();
    // Not with blocks locked, unless others become valid meanwhile (loans): libc's allocator may wait for another
    // thread.
    std::size_t valid = 0;
    for (const Object* object : objects) valid += object->host_valid_blocks.load(std::memory_order_acquire);
    if (!room_for(held, valid)) return false;
    for (Object* object : objects) {
        if (!object->is_open() || object->host_valid_blocks.load(std::memory_order_acquire) == 0) continue;
        for (std::uint32_t i = 0; i < object->blocks(); ++i) {
            const auto peek = object->block(i).peek();
            if (!peek.locked && !valid_on_host(peek.state)) continue;
            const auto event = event_of(*object, i);
            if (event == kNotConcerned) continue;
            if (!room_for(held, 1)) {
                for (const auto& h : held) h.object->block(h.index).unlock(h.before);
                return false;
            }
            const auto before = object->block(i).lock();
            if (!valid_on_host(before) || i >= object->blocks()) {
                object->block(i).unlock(before);
                continue;
            }
            held.push_back({object, i, before, protocol_->on(before, event)});
        }
    }
    return true;
}

// While the device receives one piece the next piece is closed. Pieces that need no flush are closed last. Closing
// takes as long as sending (80 ns a page, seen on an H200's host).
CUresult Coherence::close_and_flush() {
    const std::span<const Held> held = lists().held;
    auto result = CUDA_SUCCESS;
    const auto flushes = [](const Held& h) { return h.transition.action == Action::Flush; };
    const auto same_piece = [](const Held& a, const Held& b) {
        return a.of_pages(a.transition.next) == b.of_pages(b.transition.next) && same_part(a, b);
    };
    // Of a borrowed block only the bytes that the CPU changed: a kernel may be writing to the others.
    const auto flush = [&](const Held& a, const Held& b) {
        if (a.borrowed()) loans_sent_.fetch_add(1, std::memory_order_release);
        result = a.borrowed() ? send_changes(*loans::of(*a.object, a.index))
                              : engine.flush(parts_of(a, b), Engine::Order::Launching);
        return result == CUDA_SUCCESS;
    };
    const auto none_borrowed = [](const Held& a, const Held& b) { return !a.borrowed() && !b.borrowed(); };
    const auto sends = [&](const Held& a, const Held& b) { return std::any_of(&a, &b + 1, flushes); };
    const auto refused = [&] {
        say_protect_failed();
        result = CUDA_ERROR_OUT_OF_MEMORY;
        return false;
    };
    for_runs(held, changes, same_piece, [&](const Held& a, const Held& b) {
        if (!sends(a, b)) return true;
        if (!protect_run(a, b, a.of_pages(a.transition.next))) return refused();
        return for_runs(std::span(&a, &b + 1), flushes, none_borrowed, flush);
    });
    if (result != CUDA_SUCCESS) return result;
    Closing closing;
    for_runs(held, changes, same_piece,
             [&](const Held& a, const Held& b) { return sends(a, b) || closing.add(a, b) || refused(); });
    if (!closing.finish()) refused();
    return result;
}

// Correct by its order: first the pages are closed, so that no thread can write to the block; then the block is flushed
// through the view; then the flush is waited for, or a stream is to wait and every later access does
// (settle_flushes()); and only then the block becomes Invalid.
template <class Choose>
CUresult Coherence::apply(std::span<Object* const> objects, Choose&& event_of, const CUstream* stream) {
    spare_mappings(nullptr);
    if (!lock_concerned(objects, event_of)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto result = close_and_flush();
    const auto waited = await_flushes(stream != nullptr && result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) result = waited;
    // After an error the host copies are still the newest, and the program gets it.
    if (result != CUDA_SUCCESS) open_again(lists().held);
    unlock(lists().held, result == CUDA_SUCCESS);
    return result;
}

// Behind apply(), with nothing locked and no signal blocked: a full stream keeps the call until the device has come
// that far, and the device may wait for a host function that touches the blocks, or for another thread's launch. If
// both ways fail the flushes are still under way, and whoever needs them waits.
CUresult Coherence::let_wait(CUresult applied, const CUstream* stream) {
    if (applied != CUDA_SUCCESS || stream == nullptr || !streams_wait_.load(std::memory_order_acquire)) return applied;
    const auto made = engine.make_wait(*stream);
    const SignalsBlocked blocked;
    if (made != CUDA_SUCCESS) return settle_flushes();
    return engine.flushes_outstanding() ? CUDA_SUCCESS : await_flushes(true);
}

// Waits for the flushes here, unless a stream will wait for them. As long as a stream does, every launch comes by here,
// since it may be in another stream.
CUresult Coherence::await_flushes(bool stream_waits) {
    const Locked lock(flushes_);
    if (const auto drained = stream_waits ? CUDA_SUCCESS : engine.drain(); drained != CUDA_SUCCESS) return drained;
    const bool some = stream_waits && engine.flushes_outstanding();
    if (streams_wait_.exchange(some, std::memory_order_acq_rel) == some) return CUDA_SUCCESS;
    if (some) {
        host_valid_objects_.fetch_add(1, std::memory_order_release);
    } else {
        host_valid_objects_.fetch_sub(1, std::memory_order_release);
    }
    return CUDA_SUCCESS;
}

// Also in the fault path.
CUresult Coherence::settle_flushes() noexcept {
    // A second thread waits there until the first one's drain has ended: only then the bytes are on the device.
    return streams_wait_.load(std::memory_order_acquire) ? await_flushes(false) : CUDA_SUCCESS;
}

CUresult Coherence::release(const CUstream* stream) {
    if (sticky_error() != CUDA_SUCCESS) return sticky_error();
    return let_wait(release_all(stream), stream);
}

CUresult Coherence::release_all(const CUstream* stream) {
    SignalsBlocked blocked;
    // Locked to the end: a second launch that finds the list empty must wait until the first launch's flushes are done,
    // and must find the list full again if they failed.
    const Locked lock(apply_);
    // Sorted by a copy of the address: an object on the list may have been freed, and be recycled with another address
    // during the sort.
    Object* const list = host_valid_list_.exchange(nullptr, std::memory_order_acq_rel);
    const auto in_address_order = [list, &listed = lists().in_order](std::vector<Object*>& objects) {
        listed.clear();
        for (auto* object = list; object != nullptr; object = object->next_host_valid) {
            listed.emplace_back(std::atomic_ref(object->base).load(std::memory_order_relaxed), object);
        }
        // Also the arena's order: neighbours are flushed one after the other.
        std::sort(listed.begin(), listed.end());
        for (const auto& [base, object] : listed) objects.push_back(object);
        expect_many(objects);
    };
    const auto result = apply_to(
        in_address_order, [](const Object&, std::uint32_t) { return Event::Release; }, stream);
    if (result == CUDA_SUCCESS) {
        const Locked dirty(dirty_runs_);
        protocol_->released();
    }
    for (auto* object = list; object != nullptr;) {
        Object* const next = object->next_host_valid;
        object->scatter.released(object->blocks());
        object->in_host_valid_list.store(false, std::memory_order_seq_cst);
        if (object->host_valid_blocks.load(std::memory_order_seq_cst) != 0) list_host_valid(*object);
        host_valid_objects_.fetch_sub(1, std::memory_order_release);
        object = next;
    }
    return result;
}

void Coherence::became_valid(Object& object, std::uint32_t blocks) noexcept {
    object.host_valid_blocks.fetch_add(blocks, std::memory_order_seq_cst);
    list_host_valid(object);
}

void Coherence::list_host_valid(Object& object) noexcept {
    if (object.in_host_valid_list.exchange(true, std::memory_order_seq_cst)) return;
    host_valid_objects_.fetch_add(1, std::memory_order_release);
    auto* head = host_valid_list_.load(std::memory_order_relaxed);
    do {
        object.next_host_valid = head;
    } while (!host_valid_list_.compare_exchange_weak(head, &object, std::memory_order_release));
}

CUresult Coherence::apply_to_range(DeviceRange range, Event event, const CUstream* stream) {
    if (sticky_error() != CUDA_SUCCESS) return sticky_error();
    if (range.bytes == 0 || table_.empty() || !needs_release()) return CUDA_SUCCESS;
    return let_wait(apply_to_blocks(range, event, stream), stream);
}

CUresult Coherence::apply_to_blocks(DeviceRange range, Event event, const CUstream* stream) {
    SignalsBlocked blocked;
    const Locked lock(apply_);
    const auto find = [&](std::vector<Object*>& objects) {
        table_.overlapping(range.begin, range.bytes, [&](Object& object) { objects.push_back(&object); });
    };
    const auto end = range.begin + range.bytes;
    const auto event_of = [&](const Object& object, std::uint32_t index) {
        const auto first = object.base + object.offset_of(index);
        const auto last = first + object.bytes_of(index);
        return last <= range.begin || first >= end ? kNotConcerned : event;
    };
    return apply_to(find, event_of, stream);
}

void Coherence::acquire() noexcept {
    if (table_.empty() || sticky_error() != CUDA_SUCCESS) return;
    // While other work runs it may still write to objects: they stay Invalid, and a CPU access waits for that work.
    const auto work = in_flight.work();
    if (!in_flight.idle_after_wait()) return;
    constexpr unsigned kPatience = 1;  // milliseconds: a launch that stays inside for longer is giving the device work
    const FaultInGate in_gate(launch_gate_, kPatience);
    if (!in_gate.entered() || in_flight.work() != work) return;
    SignalsBlocked blocked;
    const Locked lock(apply_);
    if (settle_flushes() != CUDA_SUCCESS) return;
    ObjectPool::for_open([&](Object& object) {
        spare_mappings(nullptr);
        if (!object.is_open() || !object.shadowed.load(std::memory_order_acquire)) return;
        if (object.lent.load(std::memory_order_seq_cst) != 0) return;  // all of it would be flushed
        for (std::uint32_t i = 0; i < object.blocks(); ++i) {
            const auto before = object.block(i).lock();
            // Unmapped or coarsened meanwhile.
            if (!object.shadowed.load(std::memory_order_acquire) || i >= object.blocks()) {
                object.block(i).unlock(before);
                break;
            }
            const auto [action, next] = protocol_->on(before, Event::Acquire);
            auto after = before;
            if (action == Action::Fetch &&
                engine.fetch(object, object.offset_of(i), object.bytes_of(i), Engine::Order::Ordered) == CUDA_SUCCESS &&
                pager::protect(object, object.offset_of(i), object.bytes_of(i), next)) {
                after = next;
                became_valid(object, 1);
            }
            // A block that could not be fetched now is fetched when the CPU accesses it.
            object.block(i).unlock(after);
        }
    });
}

}  // namespace hpe
