// SPDX-License-Identifier: MIT
// What the ticks of the cheapest clock are in nanoseconds of CLOCK_MONOTONIC.
#include "shim/base/ticks.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/unit/catch.h"

using namespace hpe;

TEST_CASE("a timescale goes through its points, and evenly between them") {
    // Three ticks a nanosecond first, then two.
    const ticks::Timescale scale({{3000, 1000}, {0, 0}, {5000, 2000}});
    CHECK(scale.nanoseconds(0) == 0);
    CHECK(scale.nanoseconds(3000) == 1000);
    CHECK(scale.nanoseconds(5000) == 2000);
    CHECK(scale.nanoseconds(1500) == 500);
    CHECK(scale.nanoseconds(4000) == 1500);
    // Beyond them as in all: 2.5.
    CHECK(scale.nanoseconds(7500) == 3000);
    const ticks::Timescale later({{30'000, 12'000}, {32'500, 13'000}});
    CHECK(later.nanoseconds(27'500) == 11'000);
    CHECK(later.nanoseconds(0) == 0);
}

TEST_CASE("with one point, or none, a tick is a nanosecond") {
    const ticks::Timescale one({{1000, 500}}), none({});
    CHECK(one.nanoseconds(1000) == 500);
    CHECK(one.nanoseconds(1100) == 600);
    CHECK(one.nanoseconds(900) == 400);
    CHECK(one.nanoseconds(100) == 0);  // never before the clock's own beginning
    CHECK(none.nanoseconds(42) == 42);
}

TEST_CASE("time does not go back, whatever the points say") {
    // Two threads read both clocks at almost the same time, each with an error of its own.
    const ticks::Timescale scale({{0, 0}, {3000, 1010}, {3003, 1002}, {3003, 1020}, {6000, 2000}});
    std::uint64_t last = 0;
    for (std::uint64_t t = 0; t < 7000; ++t) {
        const auto now = scale.nanoseconds(t);
        REQUIRE(now >= last);
        last = now;
    }
    CHECK(scale.nanoseconds(6000) == 2000);
}

TEST_CASE("to the nanosecond after years") {
    constexpr std::uint64_t year = 31'536'000'000'000'000;  // nanoseconds
    const ticks::Timescale scale({{9 * year, 3 * year}, {9 * year + 3'000'000'000, 3 * year + 1'000'000'000}});
    CHECK(scale.nanoseconds(9 * year + 300) == 3 * year + 100);
    CHECK(ticks::ticks_in(100, {9 * year, 3 * year}, {9 * year + 300'000, 3 * year + 100'000}) == 300);
}

TEST_CASE("this machine's clock, whichever it is") {
    errno = 77;
    ticks::choose();
    CHECK(errno == 77);
    struct Look {
        std::uint64_t before, ticks, after;
    };
    std::vector<Look> looks;
    std::vector<ticks::Point> points{ticks::point()};
    for (int i = 0; i < 20; ++i) {
        const auto before = ticks::nanoseconds();
        const auto look = ticks::now();
        looks.push_back({before, look, ticks::nanoseconds()});
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    points.push_back(ticks::point());
    const ticks::Timescale scale(points);
    // A thread may lose its processor where a point is read: then that is off by as much.
    constexpr std::uint64_t kOff = 5'000'000;
    for (const auto& look : looks) {
        CHECK(scale.nanoseconds(look.ticks) + kOff >= look.before);
        CHECK(scale.nanoseconds(look.ticks) <= look.after + kOff);
    }
}
