// SPDX-License-Identifier: MIT
// The room: launches and faults never meet, and neither group starves.
#include "shim/base/room.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using hpe::FaultInRoom;
using hpe::LaunchCount;
using hpe::LaunchInRoom;
using hpe::Room;

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
                if (in.slot() != Room::kNoSlot) ++with_slot;
                count.add(in.slot());
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(count.sum() == std::uint64_t{kThreads} * kEach);
    CHECK(with_slot > 0);
}

TEST_CASE("a thread in the room may enter it again as a launch") {
    Room room;
    LaunchInRoom outer(room);
    LaunchInRoom inner(room);
    CHECK(inner.slot() == Room::kNoSlot);
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
