// SPDX-License-Identifier: MIT
// When accesses without a sweep are taken for dense ones.
#include "protocols/scatter.h"

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

// Faults until a guess is made, at most `limit`; what they open is told.
std::uint32_t faults(Scatter& scatter, std::uint32_t blocks, std::uint32_t limit) {
    for (std::uint32_t i = 0; i < limit; ++i) {
        if (scatter.reach(blocks, 16) != 1) return i;
        scatter.opened(1);
    }
    return limit;
}

}  // namespace

TEST_CASE("a third of an object touched one by one is followed by more at once") {
    Scatter scatter;
    CHECK(faults(scatter, 3000, 3000) == 1000);
    CHECK(scatter.reach(3000, 16) == 16);
    CHECK(scatter.reach(3000, 1) == 1);
}

TEST_CASE("what was learnt holds for the next round, and no longer than it is right") {
    Scatter scatter;
    scatter.opened(1000);
    scatter.released(3000);
    CHECK(scatter.reach(3000, 16) == 16);
    scatter.opened(2700);
    scatter.released(3000);
    CHECK(scatter.reach(3000, 16) == 16);
    scatter.opened(2699);
    scatter.released(3000);
    CHECK(scatter.reach(3000, 16) == 1);
    CHECK(faults(scatter, 3000, 900) == 900);
    scatter.released(3000);
    CHECK(scatter.reach(3000, 16) == 1);
}

TEST_CASE("of few blocks each is opened for itself, and another object begins anew") {
    Scatter scatter;
    scatter.opened(1000);
    CHECK(scatter.reach(63, 16) == 1);
    scatter.released(63);
    CHECK(scatter.reach(3000, 16) == 1);
    scatter.opened(3000);
    scatter.released(3000);
    CHECK(scatter.reach(3000, 16) == 16);
    scatter.forget();
    CHECK(scatter.reach(3000, 16) == 1);
}
