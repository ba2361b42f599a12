// SPDX-License-Identifier: MIT
// The gate: launches and faults never meet, and neither group starves.
#include "shim/base/launch_gate.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using hpe::FaultInGate;
using hpe::LaunchCount;
using hpe::LaunchGate;
using hpe::LaunchInGate;
using hpe::this_thread;

// The first case: afterwards other threads have used all slots.
TEST_CASE("a launch in a slot that no thread was given keeps faults out") {
    LaunchGate gate;
    const unsigned first = gate.enter_launch(), second = gate.enter_launch();
    REQUIRE(second != first);
    CHECK(LaunchGate::slots_used() > second);
    gate.leave_launch(first);
    CHECK(gate.launches_inside());
    CHECK_FALSE(gate.enter_fault(1));
    gate.leave_launch(second);
    CHECK_FALSE(gate.launches_inside());
    gate.enter_fault();
    gate.leave_fault();
}

TEST_CASE("launches and faults are never inside the gate together") {
    LaunchGate gate;
    std::atomic<int> launches{0}, faults{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20000; ++i) {
                if (t % 2 == 0) {
                    LaunchInGate in(gate);
                    ++launches;
                    if (faults != 0) ++wrong;
                    --launches;
                } else {
                    FaultInGate in(gate);
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
    LaunchGate gate;
    LaunchCount count;
    std::atomic<int> with_slot{0};
    std::vector<std::thread> threads;
    constexpr unsigned kThreads = LaunchGate::kSlots + 8, kEach = 2000;
    for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (unsigned i = 0; i < kEach; ++i) {
                LaunchInGate in(gate);
                if (this_thread.slot != LaunchGate::kNoSlot) ++with_slot;
                count.add(this_thread.slot);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(count.sum() == std::uint64_t{kThreads} * kEach);
    CHECK(with_slot > 0);
}

TEST_CASE("a thread inside the gate may enter it again as a launch, and every launch has a slot of its own") {
    LaunchGate gate;
    std::array<unsigned, LaunchGate::kSlots> slots{};
    for (auto& slot : slots) slot = gate.enter_launch();
    std::sort(slots.begin(), slots.end());
    for (unsigned i = 0; i < LaunchGate::kSlots; ++i) CHECK(slots[i] == i);
    CHECK(gate.enter_launch() == LaunchGate::kNoSlot);
    gate.leave_launch(LaunchGate::kNoSlot);
    gate.leave_launch(7);
    CHECK(gate.enter_launch() == 7);
}

TEST_CASE("who waits for launches waits for those that concern it, and for no others") {
    LaunchGate gate;
    int here = 0, there = 0;
    const auto concerns = [&](LaunchGate::Where where) { return where == &here; };
    const auto none = LaunchGate::kNoSlot;
    CHECK(gate.wait_for_launches(none, concerns, 1));
    const auto other = gate.enter_launch(&there), nowhere = gate.enter_launch();
    CHECK(gate.wait_for_launches(none, concerns, 1));
    const auto mine = gate.enter_launch(&here);
    CHECK_FALSE(gate.wait_for_launches(none, concerns, 1));
    CHECK(gate.wait_for_launches(mine, concerns, 1));
    gate.works_in(mine, LaunchGate::kNowhere);
    CHECK(gate.wait_for_launches(none, concerns, 1));
    gate.works_in(mine, &here);
    std::atomic<bool> left{false};
    std::thread leaver([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        left = true;
        gate.leave_launch(mine);
    });
    CHECK(gate.wait_for_launches(none, concerns, 10'000));
    CHECK(left);
    leaver.join();
    // One without a slot has not said where.
    for (unsigned i = 0; i < LaunchGate::kSlots - 2; ++i) gate.enter_launch(&there);
    CHECK(gate.wait_for_launches(none, concerns, 1));
    CHECK(gate.enter_launch(&there) == none);
    CHECK_FALSE(gate.wait_for_launches(none, concerns, 1));
    gate.leave_launch(none);
    CHECK(gate.wait_for_launches(none, concerns, 1));
    gate.leave_launch(other);
    gate.leave_launch(nowhere);
}

TEST_CASE("who waits for launches does not wait for those that come later") {
    LaunchGate gate;
    int here = 0;
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
        while (!stop) LaunchInGate in(gate, &here);
    });
    const auto concerns = [&](LaunchGate::Where where) { return where == &here; };
    for (int i = 0; i < 1000; ++i) CHECK(gate.wait_for_launches(LaunchGate::kNoSlot, concerns, 10'000));
    stop = true;
    launcher.join();
}

TEST_CASE("a fault gets in although a thread launches without a pause") {
    LaunchGate gate;
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
        while (!stop) LaunchInGate in(gate);
    });
    for (int i = 0; i < 1000; ++i) FaultInGate in(gate);
    stop = true;
    launcher.join();
    SUCCEED("every fault entered");
}

TEST_CASE("a fault that cannot get in lets launches in, also without slots, and gets in when they have left") {
    for (const unsigned inside : {1u, LaunchGate::kSlots + 1}) {
        LaunchGate gate;
        std::vector<unsigned> slots;
        for (unsigned i = 0; i < inside; ++i) slots.push_back(gate.enter_launch());
        CHECK_FALSE(gate.enter_fault(1));
        std::atomic<bool> entered{false};
        std::thread fault([&] {
            FaultInGate in(gate);
            entered = true;
        });
        for (int i = 0; i < 20; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::thread([&] { LaunchInGate in(gate); }).join();
        }
        CHECK_FALSE(entered);
        for (const auto slot : slots) gate.leave_launch(slot);
        fault.join();
        CHECK(gate.enter_fault(1));
        gate.leave_fault();
    }
}

TEST_CASE("of many faults that cannot get in none keeps the others' launches out") {
    LaunchGate gate;
    const auto slot = gate.enter_launch();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { FaultInGate in(gate); });
    for (int i = 0; i < 10; ++i) std::thread([&] { LaunchInGate in(gate); }).join();
    gate.leave_launch(slot);
    for (auto& thread : threads) thread.join();
    CHECK_FALSE(gate.launches_inside());
}

TEST_CASE("nobody stays asleep in front of an open gate") {
    constexpr int kLaunches = LaunchGate::kSlots + 7, kRounds = 1500;
    LaunchGate gate;
    std::barrier round(kLaunches + 2);
    std::vector<std::thread> threads;
    for (int t = 0; t < kLaunches + 2; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kRounds; ++i) {
                round.arrive_and_wait();
                if (t < 2) {
                    FaultInGate in(gate);
                } else {
                    LaunchInGate in(gate);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK_FALSE(gate.launches_inside());
}
