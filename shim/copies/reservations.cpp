// SPDX-License-Identifier: MIT
// The reservations: at most one for each slot of the gate.
#include "shim/copies/reservations.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe {

namespace {

constexpr unsigned kPatience = 5;  // milliseconds

using Clock = std::chrono::steady_clock;

// Work that waits outside the gate.
struct Waiting {
    const reservations::Order& order;
    const Touched* touched;
    const void* owner;
    Clock::time_point since;
    Waiting* next;
};

constinit SpinLock lock;  // with the program's signals blocked: a handler may launch
constinit std::array<const StreamReservation*, LaunchGate::kSlots> made HPE_GUARDED_BY(lock){};
constinit Waiting* waiting HPE_GUARDED_BY(lock) = nullptr;
constinit std::atomic<std::uint32_t> ended{0};

const void* this_threads_own() noexcept { return &this_thread; }

// Asks the driver only for what the stream's name does not tell.
reservations::Order order_of(CUstream stream) noexcept {
    const Inside inside;
    reservations::Order order{stream, nullptr, true};
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        order.context = current_context();
        return order;
    }
    driver.cuStreamGetCtx(stream, &order.context);
    order.blocking = is_blocking(stream);
    return order;
}

bool overlap(const DeviceRange& a, const DeviceRange& b) noexcept {
    return a.bytes != 0 && b.bytes != 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

// nullptr: any memory.
bool overlap(const Touched* a, const Touched* b) noexcept {
    for (const auto* each : {a, b}) {
        if (each != nullptr && each->written.bytes == 0 && each->read.bytes == 0) return false;
    }
    return a == nullptr || b == nullptr || overlap(a->written, b->written) || overlap(a->written, b->read) ||
           overlap(a->read, b->written);
}

bool ordered(const reservations::Order& a, const reservations::Order& b) noexcept {
    if (a.context != b.context) return false;
    // Each thread has a stream of its own by that name.
    if (a.stream == b.stream) return a.stream != CU_STREAM_PER_THREAD;
    return (a.stream == CU_STREAM_LEGACY && b.blocking) || (b.stream == CU_STREAM_LEGACY && a.blocking);
}

// Whether work inside the gate, of which only the stream's name is known, may be ordered with this.
bool may_be_ordered(const reservations::Order& order, LaunchGate::Where where) noexcept {
    if (where == LaunchGate::kNowhere) return false;
    const auto stream = static_cast<CUstream>(where);
    if (order.stream == CU_STREAM_LEGACY) return in_flight.blocks_legacy(stream, order.context);
    if (stream == CU_STREAM_LEGACY) return order.blocking;
    return stream == order.stream && stream != CU_STREAM_PER_THREAD;
}

bool reserved(const reservations::Order& order, const Touched* touched) noexcept HPE_REQUIRES(lock) {
    return std::any_of(made.begin(), made.end(),
                       [&](const StreamReservation* r) { return r != nullptr && r->delays(order, touched); });
}

// Under the lock. Whether work that has waited longer than `own` (nullptr: any) waits for the copy's stream.
bool older_work_waits(const reservations::Order& order, const Touched& touched, const Waiting* own) noexcept {
    const auto too_long_ago = Clock::now() - std::chrono::seconds(1);
    // The youngest comes first.
    for (const auto* w = own != nullptr ? own->next : waiting; w != nullptr; w = w->next) {
        if (w->owner != this_threads_own() && w->since > too_long_ago && ordered(w->order, order) &&
            overlap(w->touched, &touched)) {
            return true;
        }
    }
    return false;
}

}  // namespace

void reservations::give_way(CUstream stream, const Touched* touched) noexcept {
    auto& gate = coherence().launch_gate();
    const ErrnoKept kept;
    const auto order = order_of(stream);
    Waiting self{order, touched, this_threads_own(), Clock::now(), nullptr};
    for (bool listed = false;;) {
        std::uint32_t seen = 0;
        bool by_reservation = false;
        {
            const SignalsBlocked blocked;
            const Locked guard(lock);
            by_reservation = reserved(order, touched);
            // Only copies make reservations, and so only they wait for older work.
            if (!by_reservation &&
                (touched == nullptr || !older_work_waits(order, *touched, listed ? &self : nullptr))) {
                if (listed) {
                    auto** at = &waiting;
                    while (*at != &self) at = &(*at)->next;
                    *at = self.next;
                    gate.drop_reservation();
                }
                break;
            }
            if (!listed) {
                // Counts as a reservation, so that every launch looks for it.
                self.next = waiting;
                waiting = &self;
                gate.add_reservation();
                listed = true;
            }
            seen = ended.load(std::memory_order_acquire);
        }
        LaunchInGate::leave(gate);
        if (by_reservation) {
            wait_while(ended, seen);
        } else {
            nap(std::chrono::microseconds(100));
        }
        LaunchInGate::enter(gate, stream);
    }
}

bool StreamReservation::delays(const reservations::Order& order, const Touched* touched) const noexcept {
    return owner_ != this_threads_own() && ordered(order_, order) && overlap(&touched_, touched);
}

StreamReservation::StreamReservation(CUstream stream, const Touched& touched) noexcept
    : order_(order_of(stream)), touched_(touched), slot_(this_thread.slot), owner_(this_threads_own()) {
    auto& gate = coherence().launch_gate();
    if (slot_ == LaunchGate::kNoSlot) return;
    // From here on this launch enqueues only under a reservation: nobody has to wait for its slot.
    gate.works_in(slot_, LaunchGate::kNowhere);
    const ErrnoKept kept;
    for (;;) {
        std::uint32_t seen = 0;
        {
            const SignalsBlocked blocked;
            const Locked guard(lock);
            if (!reserved(order_, &touched_)) {
                made[slot_] = this;
                gate.add_reservation();
                break;
            }
            seen = ended.load(std::memory_order_acquire);
        }
        wait_while(ended, seen);
    }
    held_ = gate.wait_for_launches(
        slot_, [&](LaunchGate::Where where) { return may_be_ordered(order_, where); }, kPatience);
}

StreamReservation::~StreamReservation() {
    if (slot_ == LaunchGate::kNoSlot) return;
    {
        const SignalsBlocked blocked;
        const Locked guard(lock);
        made[slot_] = nullptr;
        coherence().launch_gate().drop_reservation();
        // Before another reservation is made: that one has to wait for what this launch enqueues from now on.
        coherence().launch_gate().works_in(slot_, order_.stream);
    }
    ended.fetch_add(1, std::memory_order_release);
    ended.notify_all();
}

}  // namespace hpe
