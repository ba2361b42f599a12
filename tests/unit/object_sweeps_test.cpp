// SPDX-License-Identifier: MIT
// Predictions of which objects a thread uses next.
#include "protocols/object_sweeps.h"

#include "tests/unit/catch.h"

namespace {
constexpr std::size_t kSize = 16384, kMost = std::size_t{2} << 20;
constexpr std::uintptr_t at(std::uintptr_t i) { return 0x7f0000000000 + i * kSize; }
}  // namespace

TEST_CASE("each fault of a sweep over objects reaches twice as far") {
    hpe::ObjectSweeps sweeps;
    CHECK(sweeps.fault(at(0), at(1), true, kMost).bytes == 0);
    std::uintptr_t next = 1;
    for (std::size_t wanted = kSize; wanted <= 2 * kMost; wanted *= 2) {
        const auto reach = sweeps.fault(at(next), at(next + 1), true, kMost);
        CHECK(reach.bytes == std::min(wanted, kMost));
        CHECK(reach.upwards);
        const auto end = next + 1 + reach.bytes / kSize;
        sweeps.opened(at(next), at(end));
        next = end;
    }
    // A border in the way does not shorten what comes after it.
    sweeps.fault(at(next), at(next + 1), true, kMost);
    sweeps.opened(at(next), at(next + 3));
    CHECK(sweeps.fault(at(next + 3), at(next + 4), true, kMost).bytes == kMost);
}

TEST_CASE("sweeps over objects go down, too, and are told apart") {
    hpe::ObjectSweeps sweeps;
    CHECK(sweeps.fault(at(100), at(101), false, kMost).bytes == 0);
    CHECK(sweeps.fault(at(500), at(501), false, kMost).bytes == 0);
    const auto down = sweeps.fault(at(99), at(100), false, kMost);
    CHECK(down.bytes == kSize);
    CHECK_FALSE(down.upwards);
    CHECK(sweeps.fault(at(501), at(502), false, kMost).upwards);
    // Writes follow reads, not each other; objects with something between follow nothing.
    CHECK(sweeps.fault(at(502), at(503), true, kMost).bytes == 0);
    CHECK(sweeps.fault(at(504), at(505), false, kMost).bytes == 0);
}

TEST_CASE("a sweep over objects reaches no further than is allowed") {
    hpe::ObjectSweeps sweeps;
    sweeps.fault(at(0), at(1), true, kSize);
    CHECK(sweeps.fault(at(1), at(2), true, kSize).bytes == kSize);
    sweeps.opened(at(1), at(3));
    CHECK(sweeps.fault(at(3), at(4), true, kSize).bytes == kSize);
}
