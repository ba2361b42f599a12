// SPDX-License-Identifier: MIT
// The claims, one for each slot of the room.
#include "shim/copies/claims.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe {

namespace {

constexpr unsigned kPatience = 5;  // milliseconds

using Clock = std::chrono::steady_clock;

// Work that gives way.
struct Waiting {
    const claims::Order& order;
    const Touched* touched;
    const void* owner;
    Clock::time_point since;
    Waiting* next;
};

constinit SpinLock lock;  // with the program's signals blocked: a handler may launch
constinit std::array<const Claim*, Room::kSlots> made{};
constinit Waiting* waiting = nullptr;
constinit std::atomic<std::uint32_t> ended{0};

const void* this_threads_own() noexcept { return &this_thread; }

// The driver is asked for as little as there is to know.
claims::Order order_of(CUstream stream, claims::Among among) noexcept {
    const Inside inside;
    claims::Order order{stream, nullptr, true, among};
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        driver.cuCtxGetCurrent(&order.context);
        return order;
    }
    driver.cuStreamGetCtx(stream, &order.context);
    order.blocking = is_blocking(stream);
    return order;
}

bool meet(const DeviceRange& a, const DeviceRange& b) noexcept {
    return a.bytes != 0 && b.bytes != 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

// nullptr: whatever there is.
bool meet(const Touched* a, const Touched* b) noexcept {
    return a == nullptr || b == nullptr || meet(a->written, b->written) || meet(a->written, b->read) ||
           meet(a->read, b->written);
}

bool ordered(const claims::Order& a, const claims::Order& b) noexcept {
    if (a.among == claims::Among::Everything || b.among == claims::Among::Everything) return true;
    if (a.context != b.context) return false;
    // Each thread has a stream of its own by that name.
    if (a.stream == b.stream) return a.stream != CU_STREAM_PER_THREAD;
    return (a.stream == CU_STREAM_LEGACY && b.blocking) || (b.stream == CU_STREAM_LEGACY && a.blocking);
}

// Of work in the room, of which no more is known than its stream's name.
bool may_be_ordered(const claims::Order& order, Room::Where where) noexcept {
    if (where == Room::kNowhere) return false;
    if (order.among == claims::Among::Everything) return true;
    const auto stream = static_cast<CUstream>(where);
    if (order.stream == CU_STREAM_LEGACY) return in_flight.blocks_legacy(stream, order.context);
    if (stream == CU_STREAM_LEGACY) return order.blocking;
    return stream == order.stream && stream != CU_STREAM_PER_THREAD;
}

// Under the lock.
bool claimed(const claims::Order& order, const Touched* touched) noexcept {
    return std::any_of(made.begin(), made.end(),
                       [&](const Claim* claim) { return claim != nullptr && claim->before(order, touched); });
}

// Under the lock. Of what waits longer than `own`, which may be nullptr.
bool another_first(const claims::Order& order, const Touched& touched, const Waiting* own) noexcept {
    const auto too_long_ago = Clock::now() - std::chrono::seconds(1);
    // The youngest comes first.
    for (const auto* w = own != nullptr ? own->next : waiting; w != nullptr; w = w->next) {
        if (w->owner != this_threads_own() && w->since > too_long_ago && ordered(w->order, order) &&
            meet(w->touched, &touched)) {
            return true;
        }
    }
    return false;
}

}  // namespace

void claims::give_way(CUstream stream, const Touched* touched) noexcept {
    auto& room = coherence().room();
    const ErrnoKept kept;
    const auto order = order_of(stream, Among::Stream);
    Waiting self{order, touched, this_threads_own(), Clock::now(), nullptr};
    for (bool listed = false;;) {
        std::uint32_t seen = 0;
        bool by_claim = false;
        {
            const SignalsBlocked blocked;
            const std::scoped_lock guard(lock);
            by_claim = claimed(order, touched);
            // Only copies may become claims; launches are in no launch's way.
            if (!by_claim && (touched == nullptr || !another_first(order, *touched, listed ? &self : nullptr))) {
                if (listed) {
                    auto** at = &waiting;
                    while (*at != &self) at = &(*at)->next;
                    *at = self.next;
                    room.drop_claim();
                }
                break;
            }
            if (!listed) {
                // As a claim, it is looked for.
                self.next = waiting;
                waiting = &self;
                room.add_claim();
                listed = true;
            }
            seen = ended.load(std::memory_order_acquire);
        }
        LaunchInRoom::leave(room);
        if (by_claim) {
            wait_while(ended, seen);
        } else {
            nap(std::chrono::microseconds(100));
        }
        LaunchInRoom::enter(room, stream);
    }
}

bool Claim::before(const claims::Order& order, const Touched* touched) const noexcept {
    return owner_ != this_threads_own() && ordered(order_, order) && meet(&touched_, touched);
}

Claim::Claim(CUstream stream, const Touched& touched, claims::Among among) noexcept
    : order_(order_of(stream, among)), touched_(touched), slot_(this_thread.slot), owner_(this_threads_own()) {
    auto& room = coherence().room();
    if (slot_ == Room::kNoSlot) return;
    // What it enqueues from here on is under a claim, or waits for one: nobody has to wait for it by its slot.
    room.works_in(slot_, Room::kNowhere);
    const ErrnoKept kept;
    for (;;) {
        std::uint32_t seen = 0;
        {
            const SignalsBlocked blocked;
            const std::scoped_lock guard(lock);
            if (!claimed(order_, &touched_)) {
                made[slot_] = this;
                room.add_claim();
                break;
            }
            seen = ended.load(std::memory_order_acquire);
        }
        wait_while(ended, seen);
    }
    held_ = room.wait_for_launches(
        slot_, [&](Room::Where where) { return may_be_ordered(order_, where); }, kPatience);
}

Claim::~Claim() {
    if (slot_ == Room::kNoSlot) return;
    {
        const SignalsBlocked blocked;
        const std::scoped_lock guard(lock);
        made[slot_] = nullptr;
        coherence().room().drop_claim();
        // Before another claim is made, which would not know of what is enqueued here from now on.
        coherence().room().works_in(slot_, order_.stream);
    }
    ended.fetch_add(1, std::memory_order_release);
    ended.notify_all();
}

}  // namespace hpe
