// SPDX-License-Identifier: MIT
// What a thread's faults tell about those that follow, on a thread that faults where nothing is open.
#include "protocols/sweeps.h"

#include <cstdlib>
#include <random>
#include <vector>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

// One object, all closed at first. What is sent for ahead arrives at once, but is open only once a fault opens it.
struct Thread {
    explicit Thread(std::uint32_t blocks, std::uint32_t most, std::uint32_t unit = 1)
        : limits{blocks, most, unit}, open(blocks) {}

    void touch(std::uint32_t block, bool is_write = false) {
        if (open[block]) return;
        ++faults;
        last = sweeps.fault({this, serial, block, is_write}, limits);
        REQUIRE(last.open.count >= 1);
        CHECK(last.open.first == block);
        for (std::uint32_t i = 0; i < last.open.count; ++i) {
            REQUIRE(last.open.at(i) < limits.blocks);
            opened += !open[last.open.at(i)];
            open[last.open.at(i)] = true;
        }
        for (std::uint32_t i = 0; i < last.ahead.count; ++i) REQUIRE(last.ahead.at(i) < limits.blocks);
        // What is fetched ahead is what the next fault will open.
        if (last.ahead.count != 0) CHECK(last.ahead.first == last.open.at(last.open.count));
        most_ahead = std::max(most_ahead, last.ahead.count);
    }
    void close() { open.assign(open.size(), false); }

    Sweeps sweeps;
    Sweeps::Limits limits;
    std::vector<bool> open;
    Sweeps::Reach last;
    std::uint32_t serial = 1, faults = 0, opened = 0, most_ahead = 0;
};

}  // namespace

TEST_CASE("a sweep opens twice as much each time, up to the limit, and fetches the next ahead") {
    Thread t(1000, 64);
    std::vector<std::uint32_t> counts;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        const auto before = t.faults;
        t.touch(i);
        if (t.faults != before) counts.push_back(t.last.open.count);
    }
    const std::vector<std::uint32_t> wanted = {4,  8,  16, 32, 64, 64, 64, 64, 64, 64,
                                               64, 64, 64, 64, 64, 64, 64, 64, 44};
    CHECK(counts == wanted);
    CHECK(t.most_ahead == 64);
    CHECK(t.last.ahead.count == 0);  // the end
}

TEST_CASE("a sweep that begins elsewhere begins with one block, and nothing is fetched before it goes on") {
    Thread t(1000, 64);
    t.touch(500);
    CHECK(t.last.open.count == 1);
    CHECK(t.last.ahead.count == 0);
    t.touch(501);
    CHECK(t.last.open.count == 2);
    CHECK(t.last.ahead.count == 4);
}

TEST_CASE("what a sweep opens ends with a unit, as soon as it is half of one") {
    for (const bool back : {false, true}) {
        for (const std::uint32_t begin : {0u, 1u, 31u, 32u, 45u}) {
            Thread t(1000, 64, 32);
            std::uint32_t small = 0;
            for (std::uint32_t i = begin; i < 1000; ++i) {
                const auto before = t.faults;
                t.touch(back ? 999 - i : i);
                if (t.faults == before) continue;
                const auto& open = t.last.open;
                const auto end = back ? 1000 - open.at(open.count) - 1 : open.at(open.count);
                INFO("from " << begin << (back ? " back" : "") << ": " << open.count << " at " << open.first);
                CHECK(open.count <= 64);
                if (open.count < 16) {
                    ++small;
                } else if (end < 1000) {
                    CHECK((back ? open.at(open.count - 1) : end) % 32 == 0);
                }
            }
            CHECK(t.opened == 1000 - begin);
            CHECK(small <= 6);  // 1, 2, 4, 8, what a unit wanted to its end, and what was left
            CHECK(t.faults <= 6 + 1000 / 32);
        }
    }
}

TEST_CASE("backwards, too") {
    Thread t(1000, 64);
    for (std::uint32_t i = 1000; i-- > 0;) t.touch(i);
    CHECK(t.opened == 1000);
    CHECK(t.faults < 30);
    CHECK(t.last.open.step == -1);
}

TEST_CASE("strides: only the blocks that are touched, many at a time, either way") {
    for (const int stride : {2, 16, -16, -3}) {
        Thread t(4096, 256);
        std::uint32_t touched = 0;
        for (int i = stride > 0 ? 1 : 4095; i >= 0 && i < 4096; i += stride) {
            t.touch(static_cast<std::uint32_t>(i));
            ++touched;
        }
        INFO("stride " << stride);
        CHECK(t.opened == touched);
        CHECK(t.faults < touched / 4);
        CHECK(t.most_ahead == Sweeps::kMostStrided);
    }
}

TEST_CASE("scattered accesses open one block each") {
    Thread t(16384, 256);
    std::mt19937 random(7);
    std::uint32_t ahead = 0;
    for (int i = 0; i < 3000; ++i) {
        t.touch(1 + random() % 16383);
        ahead += t.last.ahead.count;
    }
    // By chance two in a row are neighbours, or equally far apart.
    CHECK(t.opened < t.faults + 30);
    CHECK(ahead < 30);
}

TEST_CASE("several sweeps at once, through one object, are told apart") {
    Thread t(3000, 32);
    for (std::uint32_t i = 0; i < 1000; ++i) {
        for (std::uint32_t plane = 0; plane < 3; ++plane) t.touch(plane * 1000 + i);
    }
    CHECK(t.faults < 3 * 40);
    // Each goes on until it meets what the next has opened.
    CHECK(t.opened == 3000);
}

TEST_CASE("reads and writes of one loop are two sweeps") {
    Sweeps sweeps;
    int object = 0;
    const Sweeps::Limits limits{1000, 64};
    std::uint32_t readable = 0, writable = 0, faults = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        if (i >= readable) readable = i + sweeps.fault({&object, 1, i, false}, limits).open.count, ++faults;
        if (i >= writable) writable = i + sweeps.fault({&object, 1, i, true}, limits).open.count, ++faults;
    }
    CHECK(faults == 2 * 19);
}

TEST_CASE("writes with strides open their block alone: the others would be sent back for nothing") {
    Thread t(4096, 256);
    for (std::uint32_t i = 1; i < 4096; i += 16) t.touch(i, true);
    CHECK(t.opened == t.faults);
    CHECK(t.most_ahead == 1);
    Thread u(4096, 256);
    for (std::uint32_t i = 0; i < 4096; ++i) u.touch(i, true);
    CHECK(u.faults < 30);
}

TEST_CASE("blocks of a given size are opened one by one, with one ahead") {
    Thread t(100, 1);
    for (std::uint32_t i = 0; i < 100; ++i) t.touch(i);
    CHECK(t.faults == 100);
    CHECK(t.most_ahead == 1);
}

TEST_CASE("a sweep begins anew in another object, in another life of it, and after it was interrupted") {
    Thread t(1000, 64);
    for (std::uint32_t i = 0; i < 200; ++i) t.touch(i);
    CHECK(t.last.open.count > 8);
    t.close();
    t.touch(100);
    CHECK(t.last.open.count == 1);
    t.serial = 3;
    t.touch(700);
    t.touch(701);
    CHECK(t.last.open.count == 2);
    const int another = 0;
    const auto other = t.sweeps.fault({&another, 3, 703, false}, t.limits);
    CHECK(other.open.count == 1);
    CHECK(other.ahead.count == 0);
}

TEST_CASE("what could not be opened is where the sweep goes on") {
    Sweeps sweeps;
    int object = 0;
    const Sweeps::Limits limits{1000, 64};
    sweeps.fault({&object, 1, 10, false}, limits);
    CHECK(sweeps.fault({&object, 1, 11, false}, limits).open.count == 2);
    CHECK(sweeps.fault({&object, 1, 13, false}, limits).open.count == 4);
    sweeps.opened(1);
    const auto on = sweeps.fault({&object, 1, 14, false}, limits);
    CHECK(on.open.count == 8);
    CHECK(on.ahead.first == 22);
}

TEST_CASE("nothing beyond the object, however small") {
    for (std::uint32_t blocks = 1; blocks < 12; ++blocks) {
        for (int direction : {1, -1, 2, -2, 5}) {
            Thread t(blocks, 64);
            for (int round = 0; round < 3; ++round) {
                for (int i = direction > 0 ? 0 : static_cast<int>(blocks) - 1; i >= 0 && i < static_cast<int>(blocks);
                     i += direction) {
                    t.touch(static_cast<std::uint32_t>(i));
                }
                t.close();
            }
        }
    }
}
