// SPDX-License-Identifier: MIT
// What a process must have copied before staging may cost it anything.
#include "shim/copies/break_even.h"

#include "tests/unit/catch.h"

using namespace hpe;

namespace {
constexpr std::size_t kMiB = 1 << 20;
}

TEST_CASE("the first copies earn nothing, whatever their sizes, until their sum is large enough") {
    BreakEven small;
    for (std::size_t sum = 1; sum < 256; ++sum) CHECK(small.earned_with(kMiB) == 0);
    CHECK(small.earned_with(kMiB) == 16 * kMiB);
    BreakEven mixed;
    CHECK(mixed.earned_with(200 * kMiB) == 0);
    CHECK(mixed.earned_with(56 * kMiB - 1) == 0);
    CHECK(mixed.earned_with(1) == 16 * kMiB);
}

TEST_CASE("a copy that is as large itself is worth it at once") {
    BreakEven one, larger;
    CHECK(one.earned_with(BreakEven::kStart) == 16 * kMiB);
    CHECK(larger.earned_with(4096 * kMiB) == 256 * kMiB);
}

TEST_CASE("every further copy earns its part") {
    BreakEven b;
    b.earned_with(BreakEven::kStart);
    CHECK(b.earned_with(64 * kMiB) == 20 * kMiB);
    CHECK(b.earned_with(64 * kMiB) == 24 * kMiB);
}
