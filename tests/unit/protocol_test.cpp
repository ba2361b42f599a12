// SPDX-License-Identifier: MIT
// Every pair of state and event of every protocol, against what the paper's figure 6 and DESIGN.md's table say in
// words.
#include <string>
#include <vector>

#include "protocols/batch.h"
#include "protocols/lazy.h"
#include "protocols/rolling.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

struct Row {
    State state;
    Event event;
    Action action;
    State next;
};

using enum State;
using enum Event;
using enum Action;

// Written out a second time, by hand, so that a slip in the table shows.
const std::vector<Row> write_invalidate = {
    {DeviceOnly, CpuRead, Fetch, ReadOnly},
    {DeviceOnly, CpuWrite, Fetch, Dirty},
    {DeviceOnly, Release, Nothing, DeviceOnly},
    {DeviceOnly, Acquire, Nothing, DeviceOnly},
    {DeviceOnly, DeviceRead, Nothing, DeviceOnly},
    {DeviceOnly, DeviceWrite, Nothing, DeviceOnly},
    {DeviceOnly, Evict, Nothing, DeviceOnly},
    {Invalid, CpuRead, Fetch, ReadOnly},
    {Invalid, CpuWrite, Fetch, Dirty},
    {Invalid, Release, Nothing, Invalid},
    {Invalid, Acquire, Nothing, Invalid},
    {Invalid, DeviceRead, Nothing, Invalid},
    {Invalid, DeviceWrite, Nothing, Invalid},
    {Invalid, Evict, Nothing, Invalid},
    {ReadOnly, CpuRead, Nothing, ReadOnly},
    {ReadOnly, CpuWrite, Nothing, Dirty},
    {ReadOnly, Release, Nothing, Invalid},
    {ReadOnly, Acquire, Nothing, ReadOnly},
    {ReadOnly, DeviceRead, Nothing, ReadOnly},
    {ReadOnly, DeviceWrite, Nothing, Invalid},
    {ReadOnly, Evict, Nothing, ReadOnly},
    {Dirty, CpuRead, Nothing, Dirty},
    {Dirty, CpuWrite, Nothing, Dirty},
    {Dirty, Release, Flush, Invalid},
    {Dirty, Acquire, Nothing, Dirty},
    {Dirty, DeviceRead, Flush, ReadOnly},
    {Dirty, DeviceWrite, Flush, Invalid},
    {Dirty, Evict, Flush, ReadOnly},
};

const std::vector<Row> batch = {
    {DeviceOnly, CpuRead, Fetch, Dirty},
    {DeviceOnly, CpuWrite, Fetch, Dirty},
    {DeviceOnly, Release, Nothing, DeviceOnly},
    {DeviceOnly, Acquire, Nothing, DeviceOnly},
    {DeviceOnly, DeviceRead, Nothing, DeviceOnly},
    {DeviceOnly, DeviceWrite, Nothing, DeviceOnly},
    {DeviceOnly, Evict, Nothing, DeviceOnly},
    {Invalid, CpuRead, Fetch, Dirty},
    {Invalid, CpuWrite, Fetch, Dirty},
    {Invalid, Release, Nothing, Invalid},
    {Invalid, Acquire, Fetch, Dirty},
    {Invalid, DeviceRead, Nothing, Invalid},
    {Invalid, DeviceWrite, Nothing, Invalid},
    {Invalid, Evict, Nothing, Invalid},
    {ReadOnly, CpuRead, Nothing, ReadOnly},
    {ReadOnly, CpuWrite, Nothing, Dirty},
    {ReadOnly, Release, Nothing, Invalid},
    {ReadOnly, Acquire, Nothing, ReadOnly},
    {ReadOnly, DeviceRead, Nothing, ReadOnly},
    {ReadOnly, DeviceWrite, Nothing, Invalid},
    {ReadOnly, Evict, Nothing, ReadOnly},
    {Dirty, CpuRead, Nothing, Dirty},
    {Dirty, CpuWrite, Nothing, Dirty},
    {Dirty, Release, Flush, Invalid},
    {Dirty, Acquire, Nothing, Dirty},
    {Dirty, DeviceRead, Flush, ReadOnly},
    {Dirty, DeviceWrite, Flush, Invalid},
    {Dirty, Evict, Nothing, Dirty},
};

void walk(const Protocol& protocol, const std::vector<Row>& rows) {
    REQUIRE(rows.size() == kStates * kEvents);
    for (const auto& row : rows) {
        INFO(protocol.name() << ": " << name(row.state) << " on " << name(row.event));
        const auto got = protocol.on(row.state, row.event);
        CHECK(got.action == row.action);
        CHECK(got.next == row.next);
    }
}

}  // namespace

TEST_CASE("every pair of state and event does what the protocol's table in words says") {
    walk(Lazy{}, write_invalidate);
    walk(Rolling{0}, write_invalidate);
    walk(Batch{}, batch);
}

TEST_CASE("the table's invariants catch a table that loses data") {
    auto broken = kWriteInvalidate;
    broken[static_cast<std::size_t>(Dirty)][static_cast<std::size_t>(Release)] = {Nothing, Invalid};
    CHECK_FALSE(keeps_data(broken));
    broken = kWriteInvalidate;
    broken[static_cast<std::size_t>(Invalid)][static_cast<std::size_t>(CpuRead)] = {Nothing, ReadOnly};
    CHECK_FALSE(keeps_data(broken));
    broken = kWriteInvalidate;
    broken[static_cast<std::size_t>(ReadOnly)][static_cast<std::size_t>(Release)] = {Nothing, ReadOnly};
    CHECK_FALSE(keeps_data(broken));
    broken = kBatch;
    broken[static_cast<std::size_t>(Dirty)][static_cast<std::size_t>(DeviceRead)] = {Flush, Dirty};
    CHECK_FALSE(keeps_data(broken));
}

TEST_CASE("rolling update evicts the oldest block beyond its size") {
    Rolling rolling(2);
    Object object;
    const auto dirtied = [&](std::uint32_t block) {
        Plan plan;
        rolling.dirtied({&object, 1, block}, plan);
        std::vector<std::uint32_t> evicted;
        for (const auto& victim : plan) evicted.push_back(victim.block);
        return evicted;
    };
    CHECK(dirtied(10).empty());
    CHECK(dirtied(11).empty());
    CHECK(dirtied(12) == std::vector<std::uint32_t>{10});
    CHECK(dirtied(13) == std::vector<std::uint32_t>{11});
    rolling.released();
    CHECK(dirtied(14).empty());
}

TEST_CASE("a store that straddles two blocks finds both writable, whatever the rolling size") {
    Rolling rolling(1);
    Object object, other;
    const auto dirtied = [&](Object& in, std::uint32_t block) {
        Plan plan;
        rolling.dirtied({&in, 1, block}, plan);
        std::vector<std::uint32_t> evicted;
        for (const auto& victim : plan) evicted.push_back(victim.block);
        return evicted;
    };
    CHECK(dirtied(object, 10).empty());
    CHECK(dirtied(object, 11).empty());
    CHECK(dirtied(object, 12) == std::vector<std::uint32_t>{10});
    CHECK(dirtied(other, 13) == std::vector<std::uint32_t>{11, 12});
    CHECK(dirtied(other, 12).empty());  // the lower half may trap last
}

TEST_CASE("a block that becomes Dirty anew is not evicted for its own older entry") {
    // A copy to the device or a wait flushed it meanwhile: its entry is still queued.
    Rolling rolling(1);
    Object object;
    for (int again = 0; again < 3; ++again) {
        Plan plan;
        rolling.dirtied({&object, 1, 8}, plan);
        CHECK(plan.size() == 0);
    }
    Plan plan;
    rolling.dirtied({&object, 1, 20}, plan);
    REQUIRE(plan.size() == 1);
    CHECK(plan.begin()->block == 8);
}

TEST_CASE("adaptive rolling size is two blocks per live object") {
    Rolling rolling(0);
    CHECK(rolling.limit() == 1);
    rolling.object_added();
    rolling.object_added();
    rolling.object_added();
    CHECK(rolling.limit() == 6);
    rolling.object_removed();
    CHECK(rolling.limit() == 4);
}

TEST_CASE("a queue that is full still evicts instead of forgetting") {
    Rolling rolling(65535);
    Object object;
    std::size_t evicted = 0;
    for (std::uint32_t block = 0; block < 70000; ++block) {
        Plan plan;
        rolling.dirtied({&object, 1, block}, plan);
        evicted += plan.size();
    }
    CHECK(evicted == 70000 - 65535);
}

TEST_CASE("protocols by name") {
    CHECK(make_protocol("batch", 0)->name() == "batch");
    CHECK(make_protocol("lazy", 0)->name() == "lazy");
    CHECK(make_protocol("rolling", 0)->name() == "rolling");
    CHECK(make_protocol("eager", 0) == nullptr);
}
