// SPDX-License-Identifier: MIT
// The slow paths of LaunchGate.
#include "shim/base/launch_gate.h"

#include <chrono>

#include "shim/base/ticks.h"
#include "shim/base/waiting.h"

namespace hpe {

HPE_READ_OFTEN constinit std::atomic<unsigned> LaunchGate::used_{0};

unsigned LaunchGate::choose_slot() noexcept {
    static constinit std::atomic<unsigned> next{0};
    const auto mine = next.fetch_add(1, std::memory_order_relaxed) % kSlots;
    uses(mine);  // before a signal handler of this thread can launch in it
    thread_slot = mine;
    return mine;
}

void LaunchGate::uses(unsigned slot) noexcept {
    auto used = used_.load(std::memory_order_relaxed);
    while (used <= slot && !used_.compare_exchange_weak(used, slot + 1, std::memory_order_seq_cst)) {
    }
}

// Entering by the shared count is only the way in: as soon as a slot is free the launch takes that one, where it can
// say in which stream it works.
unsigned LaunchGate::enter_launch_slow(Where where) noexcept {
    enter(Group::Launches, nullptr);
    const unsigned first = slot_of_thread();
    for (unsigned i = 0; i < kSlots; ++i) {
        const unsigned mine = (first + i) % kSlots;
        uses(mine);
        if (!slots_[mine].take()) continue;
        slots_[mine].says(where);
        leave(Group::Launches);  // no fault is inside, and one that comes now sees the slot
        return mine;
    }
    return kNoSlot;
}

void LaunchGate::leave_launch_slow() noexcept { leave(Group::Launches); }

bool LaunchGate::Patience::wait() noexcept {
    if (++spins_ < 1000) {
        __builtin_ia32_pause();
        return true;
    }
    nap(std::chrono::microseconds(20));
    const auto now = ticks::nanoseconds();
    if (until_ == 0) until_ = now + std::uint64_t{milliseconds_} * 1'000'000u;
    return now < until_;
}

// Waits twice as long each time: what keeps launches inside ends at some time once no others enter. Between two
// attempts launches may enter for as long as the last attempt took, so that many launches, one after the other, take
// twice the time at most.
void LaunchGate::enter_fault() noexcept {
    for (unsigned milliseconds = 1;; milliseconds *= milliseconds < 1u << 20 ? 2 : 1) {
        Patience patience(milliseconds);
        Stay stay;
        if (enter_fault(patience, stay)) return;
        Patience rest(milliseconds);
        while (!stay.over() && rest.wait()) {
        }
    }
}

bool LaunchGate::enter_fault(unsigned milliseconds) noexcept {
    Patience patience(milliseconds);
    Stay stay;
    return enter_fault(patience, stay);
}

bool LaunchGate::enter_fault(Patience& patience, Stay& stay) noexcept {
    if (!enter(Group::Faults, &patience)) return false;
    // A launch that took a slot before the line above has yet to leave it; one that takes a slot after it sees the
    // fault. A launch takes microseconds. It does not wake anybody when it leaves: that would cost every launch.
    for (unsigned i = 0, used = slots_used(); i < used; ++i) {
        stay = Stay(slots_[i]);
        while (!stay.over()) {
            if (patience.wait()) continue;
            leave(Group::Faults);
            return false;
        }
    }
    return true;
}

bool LaunchGate::enter(Group group, Patience* patience) noexcept {
    bool waited = false;
    auto word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const bool occupied = (word & count_mask(other(group))) != 0;
        // A thread that arrives while the other group waits lets that group go first, once: a loop of launches that
        // enters again faster than a waiting fault wakes up would starve it. The waiting bit stays until a thread of
        // that group is inside.
        const bool yield = !waited && (word & waiting(other(group))) != 0;
        if (!occupied && !yield) {
            if (word_.compare_exchange_weak(word, (word + one(group)) & ~waiting(group), std::memory_order_seq_cst)) {
                return true;
            }
            continue;
        }
        // Read before the waiting bit is set: a leaving thread that sees the bit changes the generation.
        const auto generation = generation_.load(std::memory_order_acquire);
        if (!word_.compare_exchange_weak(word, word | waiting(group), std::memory_order_acquire)) continue;
        if (patience == nullptr) {
            wait_while(generation_, generation);
        } else {
            while (generation_.load(std::memory_order_acquire) == generation) {
                if (patience->wait()) continue;
                // Others of the group set the bit again when they are woken.
                word_.fetch_and(~waiting(group), std::memory_order_release);
                wake();
                return false;
            }
        }
        waited = true;
        word = word_.load(std::memory_order_relaxed);
    }
}

void LaunchGate::wake() noexcept {
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
}

}  // namespace hpe
