// SPDX-License-Identifier: MIT
// A lock with two groups: any number of launches may be in the room, or any number of faults, never both.
//
// Between the release of all blocks and the enqueueing of a kernel no block may become valid on the host again, or the
// host would keep a copy that the kernel makes old. Launches do not disturb each other, nor do faults.
//
// A launch pays one compare-and-swap, on a slot that it shares with no other thread at that moment, and one plain store
// when it leaves: threads that launch at once touch no cache line in common. Faults pay instead: they look at every
// slot.
//
// Threads: any; async-signal-safe (a futex through std::atomic::wait). Not recursive: a signal handler that interrupts
// a thread in the room finds this_thread.in_room, and must not enter.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "shim/base/thread.h"

namespace hpe {

class Room {
public:
    enum class Group : unsigned { Launches = 0, Faults = 1 };

    static constexpr unsigned kSlots = 32;
    static constexpr unsigned kNoSlot = kSlots;

    // Returns the slot that the launch holds, exclusively, until it leaves with it; kNoSlot if it entered without one.
    [[gnu::hot]] unsigned enter_launch() noexcept {
        const unsigned mine = slot_of_thread();
        auto& taken = slots_[mine].taken;
        bool free = false;
        if (taken.compare_exchange_strong(free, true, std::memory_order_seq_cst)) {
            if ((word_.load(std::memory_order_seq_cst) & (count_mask(Group::Faults) | waiting(Group::Faults))) == 0) {
                return mine;
            }
            taken.store(false, std::memory_order_release);
        }
        enter(Group::Launches);
        return kNoSlot;
    }
    void leave_launch(unsigned slot) noexcept {
        if (slot != kNoSlot) {
            slots_[slot].taken.store(false, std::memory_order_release);
        } else {
            leave(Group::Launches);
        }
    }

    void enter_fault() noexcept {
        enter(Group::Faults);
        // Who took a slot before the line above is still to leave it; who takes one after sees the fault.
        for (auto& slot : slots_) {
            if (slot.taken.load(std::memory_order_seq_cst)) wait_until_free(slot.taken);
        }
    }
    void leave_fault() noexcept { leave(Group::Faults); }

    // Whether a launch may be on its way. If not, a launch that comes later sees what the caller had stored before.
    bool launches_inside() const noexcept {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if ((word_.load(std::memory_order_seq_cst) & count_mask(Group::Launches)) != 0) return true;
        return std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.taken.load(); });
    }

private:
    // Bits 0..14 launches inside, 15 launches wait; 16..30 faults inside, 31 faults wait.
    static constexpr std::uint32_t shift(Group g) { return g == Group::Launches ? 0 : 16; }
    static constexpr std::uint32_t one(Group g) { return 1u << shift(g); }
    static constexpr std::uint32_t count_mask(Group g) { return 0x7fffu << shift(g); }
    static constexpr std::uint32_t waiting(Group g) { return 0x8000u << shift(g); }
    static constexpr Group other(Group g) { return g == Group::Launches ? Group::Faults : Group::Launches; }

    void enter(Group group) noexcept {
        auto word = word_.load(std::memory_order_relaxed);
        if ((word & ~count_mask(group)) == 0 &&
            word_.compare_exchange_strong(word, word + one(group), std::memory_order_seq_cst)) {
            return;
        }
        enter_slow(group);
    }
    void leave(Group group) noexcept {
        const auto before = word_.fetch_sub(one(group), std::memory_order_release);
        if ((before & (waiting(Group::Launches) | waiting(Group::Faults))) != 0) leave_slow();
    }
    void enter_slow(Group group) noexcept;
    void leave_slow() noexcept;

    static unsigned slot_of_thread() noexcept {
        const unsigned mine = thread_slot;
        return mine != kNoSlot ? mine : choose_slot();
    }
    static unsigned choose_slot() noexcept;
    static void wait_until_free(const std::atomic<bool>& taken) noexcept;

    static inline thread_local constinit unsigned thread_slot __attribute__((tls_model("initial-exec"))) = kNoSlot;

    struct alignas(64) Slot {  // a cache line of its own
        std::atomic<bool> taken{false};
    };
    std::atomic<std::uint32_t> word_{0};
    std::atomic<std::uint32_t> generation_{0};  // moves when the room empties while somebody waits
    std::array<Slot, kSlots> slots_;
};

class LaunchInRoom {
public:
    explicit LaunchInRoom(Room& room) noexcept
        : room_(room), slot_((this_thread.in_room = true, room.enter_launch())) {}
    ~LaunchInRoom() {
        room_.leave_launch(slot_);
        this_thread.in_room = false;
    }
    LaunchInRoom(const LaunchInRoom&) = delete;
    LaunchInRoom& operator=(const LaunchInRoom&) = delete;
    unsigned slot() const noexcept { return slot_; }

private:
    Room& room_;
    const unsigned slot_;
};

class FaultInRoom {
public:
    explicit FaultInRoom(Room& room) noexcept : room_(room) {
        this_thread.in_room = true;
        room_.enter_fault();
    }
    ~FaultInRoom() {
        room_.leave_fault();
        this_thread.in_room = false;
    }
    FaultInRoom(const FaultInRoom&) = delete;
    FaultInRoom& operator=(const FaultInRoom&) = delete;

private:
    Room& room_;
};

// A count that launches move without a locked instruction: each in the slot it holds. Monotonic.
class LaunchCount {
public:
    void add(unsigned slot) noexcept {
        if (slot == Room::kNoSlot) {
            shared_.fetch_add(1, std::memory_order_release);
        } else {
            auto& own = own_[slot];
            own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        }
    }
    // Everything counted before; of what is being counted, some.
    std::uint64_t sum() const noexcept {
        auto total = shared_.load(std::memory_order_acquire);
        for (const auto& own : own_) total += own.load(std::memory_order_acquire);
        return total;
    }

private:
    std::atomic<std::uint64_t> shared_{0};
    std::array<std::atomic<std::uint64_t>, Room::kSlots> own_{};
};

}  // namespace hpe
