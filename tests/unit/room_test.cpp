// SPDX-License-Identifier: MIT
// The room: launches and faults never meet, and neither group starves.
#include "shim/base/room.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using hpe::InRoom;
using hpe::Room;

TEST_CASE("launches and faults are never in the room together") {
    Room room;
    std::atomic<int> launches{0}, faults{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            const bool launch = t % 2 == 0;
            auto& mine = launch ? launches : faults;
            auto& other = launch ? faults : launches;
            for (int i = 0; i < 20000; ++i) {
                InRoom in(room, launch ? Room::Group::Launches : Room::Group::Faults);
                ++mine;
                if (other != 0) ++wrong;
                --mine;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("a fault gets in although a thread launches without a pause") {
    Room room;
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
        while (!stop) InRoom in(room, Room::Group::Launches);
    });
    for (int i = 0; i < 1000; ++i) InRoom in(room, Room::Group::Faults);
    stop = true;
    launcher.join();
    SUCCEED("every fault entered");
}
