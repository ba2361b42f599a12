// SPDX-License-Identifier: MIT
// Which way a pageable copy goes, learned from how long both ways took.
#include "shim/copies/crossover.h"

#include "tests/unit/catch.h"

using namespace hpe;
using Way = Crossover::Way;

namespace {

constexpr std::size_t kMiB = 1 << 20;

// Makes copies until both ways are known; one takes `driver` and `staged` nanoseconds a MiB. Returns how many were
// made.
int learn(Crossover& c, std::size_t bytes, unsigned driver, unsigned staged) {
    int made = 0;
    for (; c.measuring(bytes) && made < 100; ++made) {
        const Way way = c.choose(bytes, true);
        c.took(bytes, way, (way == Way::Driver ? driver : staged) * (bytes / 1024) / 1024);
    }
    return made;
}

}  // namespace

TEST_CASE("small copies are the driver's, and nothing is measured for them") {
    Crossover c;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, Crossover::kSmallest - 1}) {
        CHECK(c.choose(bytes, true) == Way::Driver);
        CHECK_FALSE(c.measuring(bytes));
        c.took(bytes, Way::Staged, 1);
    }
    CHECK(c.measuring(Crossover::kSmallest));
    CHECK(c.choose(Crossover::kSmallest, true) == Way::Staged);  // the first trial
}

TEST_CASE("each class of sizes learns its own faster way, in a few copies") {
    Crossover c;
    CHECK(learn(c, Crossover::kSmallest, 100, 200) == 8);
    CHECK(learn(c, 4 * kMiB, 200, 100) == 8);
    CHECK(c.choose(Crossover::kSmallest, true) == Way::Driver);
    CHECK(c.choose(2 * Crossover::kSmallest - 1, true) == Way::Driver);
    CHECK(c.measuring(2 * Crossover::kSmallest));
    for (int i = 0; i < 20; ++i) CHECK(c.choose(4 * kMiB, true) == Way::Staged);
    CHECK(c.choose(8 * kMiB - 1, true) == Way::Staged);
    CHECK(c.measuring(8 * kMiB));
}

TEST_CASE("the best of several trials counts, so that one slow copy decides nothing") {
    Crossover c;
    for (const unsigned took : {150u, 900u, 100u, 800u}) c.took(kMiB, Way::Staged, took);
    for (const unsigned took : {150u, 150u, 150u, 150u}) c.took(kMiB, Way::Driver, took);
    CHECK(c.choose(kMiB, true) == Way::Staged);
}

// As seen on an H200's host: the driver is fast once, where the copy before it was staged.
TEST_CASE("copies are compared as they follow each other: what comes after the other way decides nothing") {
    Crossover c;
    Way last = Way::Driver;
    for (int i = 0; i < 20; ++i) {
        const Way way = c.choose(kMiB, true);
        c.took(kMiB, way, way == Way::Staged ? 60 : last == Way::Staged ? 50 : 85);
        last = way;
    }
    CHECK_FALSE(c.measuring(kMiB));
    CHECK(c.choose(kMiB, true) == Way::Staged);
}

TEST_CASE("the largest copies are no experiment: staged, until a smaller class says otherwise") {
    Crossover c;
    const std::size_t large = 1024 * kMiB;
    for (int i = 0; i < 10; ++i) {
        CHECK(c.choose(large, true) == Way::Staged);
        CHECK_FALSE(c.measuring(large));
        c.took(large, Way::Staged, 1);
    }
    learn(c, Crossover::kDecisive, 100, 200);
    CHECK(c.choose(large, true) == Way::Driver);
}

// As with eight threads at once: what a copy takes beside others says nothing.
TEST_CASE("a copy that cannot be compared is staged, and learns nothing") {
    Crossover c;
    for (int i = 0; i < 20; ++i) CHECK(c.choose(4 * kMiB, false) == Way::Staged);
    for (int i = 0; i < 4; ++i) c.took(4 * kMiB, Way::Staged, 200);
    CHECK(c.choose(4 * kMiB, true) == Way::Driver);  // a trial
    CHECK(c.choose(4 * kMiB, false) == Way::Staged);
    for (int i = 0; i < 4; ++i) c.took(4 * kMiB, Way::Driver, 100);
    CHECK(c.choose(4 * kMiB, false) == Way::Driver);  // known
}

TEST_CASE("the only copy: no other began or went on meanwhile") {
    UnderWay::Copies copies;
    {
        const UnderWay first(copies);
        CHECK(first.only_copy());
        {
            const UnderWay second(copies);
            CHECK_FALSE(first.only_copy());
            CHECK_FALSE(second.only_copy());
        }
        CHECK_FALSE(first.only_copy());
        const UnderWay third(copies);
        CHECK_FALSE(third.only_copy());
    }
    const UnderWay last(copies);
    CHECK(last.only_copy());
}
