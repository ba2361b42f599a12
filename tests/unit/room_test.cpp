// SPDX-License-Identifier: MIT
// The room: launches and faults never meet, and neither group starves.
#include "shim/base/room.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using hpe::FaultInRoom;
using hpe::LaunchCount;
using hpe::LaunchInRoom;
using hpe::Room;
using hpe::this_thread;

TEST_CASE("launches and faults are never in the room together") {
    Room room;
    std::atomic<int> launches{0}, faults{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20000; ++i) {
                if (t % 2 == 0) {
                    LaunchInRoom in(room);
                    ++launches;
                    if (faults != 0) ++wrong;
                    --launches;
                } else {
                    FaultInRoom in(room);
                    ++faults;
                    if (launches != 0) ++wrong;
                    --faults;
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("more threads than slots launch together, and every launch is counted") {
    Room room;
    LaunchCount count;
    std::atomic<int> with_slot{0};
    std::vector<std::thread> threads;
    constexpr unsigned kThreads = Room::kSlots + 8, kEach = 2000;
    for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (unsigned i = 0; i < kEach; ++i) {
                LaunchInRoom in(room);
                if (this_thread.slot != Room::kNoSlot) ++with_slot;
                count.add(this_thread.slot);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(count.sum() == std::uint64_t{kThreads} * kEach);
    CHECK(with_slot > 0);
}

TEST_CASE("a thread in the room may enter it again as a launch, and every launch has a slot of its own") {
    Room room;
    std::array<unsigned, Room::kSlots> slots{};
    for (auto& slot : slots) slot = room.enter_launch();
    std::sort(slots.begin(), slots.end());
    for (unsigned i = 0; i < Room::kSlots; ++i) CHECK(slots[i] == i);
    CHECK(room.enter_launch() == Room::kNoSlot);
    room.leave_launch(Room::kNoSlot);
    room.leave_launch(7);
    CHECK(room.enter_launch() == 7);
}

TEST_CASE("who waits for launches waits for those that concern it, and for no others") {
    Room room;
    int here = 0, there = 0;
    const auto concerns = [&](Room::Where where) { return where == &here; };
    const auto none = Room::kNoSlot;
    CHECK(room.wait_for_launches(none, concerns, 1));
    const auto other = room.enter_launch(&there), nowhere = room.enter_launch();
    CHECK(room.wait_for_launches(none, concerns, 1));
    const auto mine = room.enter_launch(&here);
    CHECK_FALSE(room.wait_for_launches(none, concerns, 1));
    CHECK(room.wait_for_launches(mine, concerns, 1));
    room.works_in(mine, Room::kNowhere);
    CHECK(room.wait_for_launches(none, concerns, 1));
    room.works_in(mine, &here);
    std::atomic<bool> left{false};
    std::thread leaver([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        left = true;
        room.leave_launch(mine);
    });
    CHECK(room.wait_for_launches(none, concerns, 10'000));
    CHECK(left);
    leaver.join();
    // One without a slot has not said where.
    for (unsigned i = 0; i < Room::kSlots - 2; ++i) room.enter_launch(&there);
    CHECK(room.wait_for_launches(none, concerns, 1));
    CHECK(room.enter_launch(&there) == none);
    CHECK_FALSE(room.wait_for_launches(none, concerns, 1));
    room.leave_launch(none);
    CHECK(room.wait_for_launches(none, concerns, 1));
    room.leave_launch(other);
    room.leave_launch(nowhere);
}

TEST_CASE("who waits for launches does not wait for those that come later") {
    Room room;
    int here = 0;
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
        while (!stop) LaunchInRoom in(room, &here);
    });
    const auto concerns = [&](Room::Where where) { return where == &here; };
    for (int i = 0; i < 1000; ++i) CHECK(room.wait_for_launches(Room::kNoSlot, concerns, 10'000));
    stop = true;
    launcher.join();
}

TEST_CASE("a fault gets in although a thread launches without a pause") {
    Room room;
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
        while (!stop) LaunchInRoom in(room);
    });
    for (int i = 0; i < 1000; ++i) FaultInRoom in(room);
    stop = true;
    launcher.join();
    SUCCEED("every fault entered");
}

TEST_CASE("a fault that cannot get in lets launches in, also without slots, and gets in when they have left") {
    for (const unsigned inside : {1u, Room::kSlots + 1}) {
        Room room;
        std::vector<unsigned> slots;
        for (unsigned i = 0; i < inside; ++i) slots.push_back(room.enter_launch());
        CHECK_FALSE(room.enter_fault(1));
        std::atomic<bool> entered{false};
        std::thread fault([&] {
            FaultInRoom in(room);
            entered = true;
        });
        for (int i = 0; i < 20; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::thread([&] { LaunchInRoom in(room); }).join();
        }
        CHECK_FALSE(entered);
        for (const auto slot : slots) room.leave_launch(slot);
        fault.join();
        CHECK(room.enter_fault(1));
        room.leave_fault();
    }
}

TEST_CASE("of many faults that cannot get in none keeps the others' launches out") {
    Room room;
    const auto slot = room.enter_launch();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { FaultInRoom in(room); });
    for (int i = 0; i < 10; ++i) std::thread([&] { LaunchInRoom in(room); }).join();
    room.leave_launch(slot);
    for (auto& thread : threads) thread.join();
    CHECK_FALSE(room.launches_inside());
}

TEST_CASE("nobody stays asleep in front of an empty room") {
    constexpr int kLaunches = Room::kSlots + 7, kRounds = 1500;
    Room room;
    std::barrier round(kLaunches + 2);
    std::vector<std::thread> threads;
    for (int t = 0; t < kLaunches + 2; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kRounds; ++i) {
                round.arrive_and_wait();
                if (t < 2) {
                    FaultInRoom in(room);
                } else {
                    LaunchInRoom in(room);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK_FALSE(room.launches_inside());
}
