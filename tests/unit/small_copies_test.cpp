// SPDX-License-Identifier: MIT
// Which side makes the small copies of messages.
#include "shim/memory/small_copies.h"

#include "tests/unit/catch.h"

using hpe::SmallCopies;

namespace {

// How many messages in turn the device copies, `work` of the program's before each, of at most `most`.
int by_device(SmallCopies& copies, unsigned& so_far, unsigned work, int most) {
    int made = 0;
    for (; made < most && copies.by_device(so_far += work); ++made) copies.made(so_far);
    return made;
}

}  // namespace

TEST_CASE("the device copies as long as the program gives it work between the messages") {
    SmallCopies copies;
    unsigned work = 7;
    CHECK(by_device(copies, work, 1, 1000) == 1000);
}

TEST_CASE("messages without work between them are soon the CPU's, until there is some again") {
    SmallCopies copies;
    unsigned work = 7;
    const int first = by_device(copies, work, 0, 1000);
    CHECK(first > 4);  // left, right, above, below
    CHECK(first < 100);
    CHECK(by_device(copies, work, 0, 1000) == 0);
    copies.made(work);
    CHECK(by_device(copies, work, 1, 1000) == 1000);
}

TEST_CASE("what the CPU accesses is left to the CPU for some messages") {
    SmallCopies copies;
    unsigned work = 7;
    copies.accessed_by_cpu();
    int by_cpu = 0;
    for (; by_cpu < 1000 && !copies.by_device(++work); ++by_cpu) copies.made(work);
    CHECK(by_cpu > 1);
    CHECK(by_cpu < 100);
    CHECK(by_device(copies, work, 1, 1000) == 1000);
}

TEST_CASE("a new object begins anew") {
    SmallCopies copies;
    copies.accessed_by_cpu();
    copies.forget();
    CHECK(copies.by_device(1));
}
