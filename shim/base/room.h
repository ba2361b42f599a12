// SPDX-License-Identifier: MIT
// A lock with two groups: any number of launches may be in the room, or any number of faults, never both.
//
// Between the release of all blocks and the enqueueing of a kernel no block may become valid on the host again, or the
// host would keep a copy that the kernel makes old. Launches do not disturb each other, nor do faults.
// Entering as a launch into an empty room is one compare-and-swap: that is all an untouched program pays.
//
// Threads: any; async-signal-safe (a futex through std::atomic::wait). Not recursive.
#pragma once

#include <atomic>
#include <cstdint>

namespace hpe {

class Room {
public:
    enum class Group : unsigned { Launches = 0, Faults = 1 };

    void enter(Group group) noexcept {
        auto word = word_.load(std::memory_order_relaxed);
        if ((word & ~count_mask(group)) == 0 &&
            word_.compare_exchange_strong(word, word + one(group), std::memory_order_acquire)) {
            return;
        }
        enter_slow(group);
    }

    void leave(Group group) noexcept {
        const auto before = word_.fetch_sub(one(group), std::memory_order_release);
        if ((before & (waiting(Group::Launches) | waiting(Group::Faults))) != 0) leave_slow();
    }

private:
    // Bits 0..14 launches inside, 15 launches wait; 16..30 faults inside, 31 faults wait.
    static constexpr std::uint32_t shift(Group g) { return g == Group::Launches ? 0 : 16; }
    static constexpr std::uint32_t one(Group g) { return 1u << shift(g); }
    static constexpr std::uint32_t count_mask(Group g) { return 0x7fffu << shift(g); }
    static constexpr std::uint32_t waiting(Group g) { return 0x8000u << shift(g); }
    static constexpr Group other(Group g) { return g == Group::Launches ? Group::Faults : Group::Launches; }

    void enter_slow(Group group) noexcept;
    void leave_slow() noexcept;

    std::atomic<std::uint32_t> word_{0};
    std::atomic<std::uint32_t> generation_{0};  // moves when the room empties while somebody waits
};

class InRoom {
public:
    InRoom(Room& room, Room::Group group) noexcept : room_(room), group_(group) { room_.enter(group_); }
    ~InRoom() { room_.leave(group_); }
    InRoom(const InRoom&) = delete;
    InRoom& operator=(const InRoom&) = delete;

private:
    Room& room_;
    const Room::Group group_;
};

}  // namespace hpe
