// SPDX-License-Identifier: MIT
// The slow paths of Room.
#include "shim/base/room.h"

#include <time.h>

namespace hpe {

unsigned Room::choose_slot() noexcept {
    static constinit std::atomic<unsigned> next{0};
    thread_slot = next.fetch_add(1, std::memory_order_relaxed) % kSlots;
    return thread_slot;
}

// A launch takes microseconds, unless the driver makes it wait for the device. Nobody tells when it leaves: that would
// cost every launch.
void Room::wait_until_free(const std::atomic<bool>& taken) noexcept {
    for (int spins = 0; taken.load(std::memory_order_seq_cst); ++spins) {
        if (spins < 1000) {
            __builtin_ia32_pause();
        } else {
            const timespec nap{0, 20'000};
            nanosleep(&nap, nullptr);
        }
    }
}

void Room::enter_slow(Group group) noexcept {
    bool waited = false;
    auto word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const bool occupied = (word & count_mask(other(group))) != 0;
        // Whoever arrives while the other group waits lets it go first, once: a loop of launches that re-enters faster
        // than a waiter wakes up would starve it otherwise. The waiters' mark stays until one of them is inside.
        const bool yield = !waited && (word & waiting(other(group))) != 0;
        if (!occupied && !yield) {
            if (word_.compare_exchange_weak(word, (word + one(group)) & ~waiting(group), std::memory_order_seq_cst)) {
                return;
            }
            continue;
        }
        // Read before the mark is set: a leaver who sees the mark moves it.
        const auto generation = generation_.load(std::memory_order_acquire);
        if (!word_.compare_exchange_weak(word, word | waiting(group), std::memory_order_acquire)) continue;
        generation_.wait(generation, std::memory_order_acquire);
        waited = true;
        word = word_.load(std::memory_order_relaxed);
    }
}

void Room::leave_slow() noexcept {
    const auto word = word_.load(std::memory_order_acquire);
    if ((word & (count_mask(Group::Launches) | count_mask(Group::Faults))) != 0) return;  // the last one wakes
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
}

}  // namespace hpe
