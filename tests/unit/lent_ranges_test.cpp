// SPDX-License-Identifier: MIT
// Which bytes are lent to an MPI.
#include "shim/memory/lent_ranges.h"

#include "tests/unit/catch.h"

using namespace hpe;

TEST_CASE("what is lent overlaps what shares a byte with it") {
    lent_ranges::add(0x1000, 0x100);
    CHECK(lent_ranges::overlap(0x1000, 0x100));
    CHECK(lent_ranges::overlap(0x10ff, 1));
    CHECK(lent_ranges::overlap(0xfff, 2));
    CHECK(lent_ranges::overlap(0, 0x10000));
    CHECK_FALSE(lent_ranges::overlap(0xf00, 0x100));
    CHECK_FALSE(lent_ranges::overlap(0x1100, 0x100));
    lent_ranges::remove(0x1000, 0x100);
    CHECK_FALSE(lent_ranges::overlap(0x1000, 0x100));
}

TEST_CASE("a range that two messages use is lent until both are over") {
    lent_ranges::add(0x1000, 0x100);
    lent_ranges::add(0x1000, 0x100);
    lent_ranges::add(0x1080, 0x100);
    lent_ranges::remove(0x1000, 0x100);
    CHECK(lent_ranges::overlap(0x1000, 1));
    lent_ranges::remove(0x1000, 0x100);
    CHECK_FALSE(lent_ranges::overlap(0x1000, 0x80));
    CHECK(lent_ranges::overlap(0x1080, 1));
    lent_ranges::remove(0x1080, 0x100);
    CHECK_FALSE(lent_ranges::overlap(0, 0x10000));
}
