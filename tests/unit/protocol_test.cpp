// SPDX-License-Identifier: MIT
// Every pair of state and event of every protocol, against what the paper's figure 6 and docs/coherence.md say.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

void walk(std::string_view name, const std::vector<Row>& rows) {
    const std::unique_ptr<Protocol> protocol(make_protocol(name, 0));
    REQUIRE(protocol != nullptr);
    REQUIRE(rows.size() == kStates * kEvents);
    for (const auto& row : rows) {
        INFO(name << ": row " << &row - rows.data());
        const auto got = protocol->on(row.state, row.event);
        CHECK(got.action == row.action);
        CHECK(got.next == row.next);
    }
}

}  // namespace

TEST_CASE("every pair of state and event does what the protocol's table in words says") {
    walk("lazy", write_invalidate);
    walk("rolling", write_invalidate);
    walk("batch", batch);
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
    Blocks object;
    const auto dirtied = [&](std::uint32_t block) {
        Plan plan;
        rolling.dirtied({&object, 1, block, 1}, false, 1, plan);
        std::vector<std::uint32_t> evicted;
        for (const auto& victim : plan) evicted.push_back(victim.first);
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
    Blocks object, other;
    const auto dirtied = [&](Blocks& in, std::uint32_t block) {
        Plan plan;
        rolling.dirtied({&in, 1, block, 1}, false, 1, plan);
        std::vector<std::uint32_t> evicted;
        for (const auto& victim : plan) evicted.push_back(victim.first);
        return evicted;
    };
    CHECK(dirtied(object, 10).empty());
    CHECK(dirtied(object, 11).empty());
    CHECK(dirtied(object, 12) == std::vector<std::uint32_t>{10});
    CHECK(dirtied(other, 13) == std::vector<std::uint32_t>{11, 12});
    CHECK(dirtied(other, 12).empty());  // the lower half may trap last
    // Of two objects side by side.
    Blocks far;
    std::vector<Block> words(48);
    for (std::size_t i = 0; i < 3; ++i) {
        Blocks& each = i == 0 ? object : i == 1 ? other : far;
        each.size = std::size_t{16} * 65536;
        each.base = (1 + i * i) * each.size;
        each.open(65536, &words[16 * i]);
    }
    CHECK(dirtied(object, 15).size() == 2);
    CHECK(dirtied(other, 0).empty());
    CHECK(dirtied(object, 15).empty());
    CHECK(dirtied(far, 0).size() == 2);
}

TEST_CASE("what a large call has overwritten is flushed at once, what a small one has in its turn") {
    Rolling rolling(2);
    Blocks object;
    std::vector<Block> words(128);
    object.size = words.size() * 65536;
    object.open(65536, words.data());
    Plan small, large, next;
    rolling.overwritten({&object, 1, 0, 1}, 1, small);
    CHECK(small.size() == 0);
    rolling.overwritten({&object, 1, 16, Rolling::kLargeCall / 65536}, 1, large);
    REQUIRE(large.size() == 1);
    CHECK(large.begin()->first == 16);
    rolling.dirtied({&object, 1, 40, 1}, false, 1, next);  // the large one takes no place in the queue
    CHECK(next.size() == 0);
}

TEST_CASE("a block that becomes Dirty anew is not evicted for its own older entry") {
    // A copy to the device or a wait flushed it meanwhile: its entry is still queued.
    Rolling rolling(1);
    Blocks object;
    for (int again = 0; again < 3; ++again) {
        Plan plan;
        rolling.dirtied({&object, 1, 8, 1}, false, 1, plan);
        CHECK(plan.size() == 0);
    }
    Plan plan;
    rolling.dirtied({&object, 1, 20, 1}, false, 1, plan);
    REQUIRE(plan.size() == 1);
    CHECK(plan.begin()->first == 8);
}

TEST_CASE("adaptive rolling size is two blocks per allocation") {
    const Rolling rolling(0);
    CHECK(rolling.limit(0) == 1);
    CHECK(rolling.limit(3) == 6);
    CHECK(rolling.limit(2) == 4);
}

TEST_CASE("what went too early makes the adaptive size grow, and releases make it shrink") {
    Blocks object;
    const auto write = [&](Rolling& rolling, std::uint32_t block, bool again) {
        Plan plan;
        rolling.dirtied({&object, 1, block, 1}, again, 1, plan);
    };
    Rolling rolling(0);
    write(rolling, 1, false);
    CHECK(rolling.limit(1) == 2);
    write(rolling, 5, true);
    CHECK(rolling.limit(1) == 4);
    write(rolling, 9, true);
    CHECK(rolling.limit(1) == 8);
    rolling.released();
    CHECK(rolling.limit(1) == 5);
    for (int i = 0; i < 4; ++i) rolling.released();
    CHECK(rolling.limit(1) == 2);
    for (std::uint32_t i = 0; i < 100; ++i) write(rolling, 3 * i, true);
    CHECK(rolling.limit(1) == 65535);
    // What the user set stays.
    Rolling fixed(3);
    write(fixed, 1, true);
    CHECK(fixed.limit(1) == 3);
}

TEST_CASE("a queue that is full still evicts instead of forgetting") {
    Rolling rolling(65535);
    Blocks object;
    std::size_t evicted = 0;
    for (std::uint32_t block = 0; block < 70000; ++block) {
        Plan plan;
        rolling.dirtied({&object, 1, block, 1}, false, 1, plan);
        evicted += plan.size();
    }
    CHECK(evicted == 70000 - 65535);
}

TEST_CASE("what one fault opened counts as one, and goes as one") {
    Rolling rolling(2);
    Blocks object;
    const auto dirtied = [&](std::uint32_t first, std::uint32_t count) {
        Plan plan;
        rolling.dirtied({&object, 1, first, count}, false, 1, plan);
        std::vector<std::pair<std::uint32_t, std::uint32_t>> evicted;
        for (const auto& victim : plan) evicted.emplace_back(victim.first, victim.count);
        return evicted;
    };
    using Runs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
    CHECK(dirtied(0, 4).empty());
    CHECK(dirtied(4, 8).empty());
    CHECK(dirtied(12, 16) == Runs{{0, 4}});
    // A part of the oldest is Dirty anew: nothing of it goes now.
    CHECK(dirtied(6, 1).empty());
    CHECK(dirtied(40, 1) == Runs{{12, 16}});
    Rolling one(1);
    Plan plan;
    one.dirtied({&object, 1, 10, 4}, false, 1, plan);
    one.dirtied({&object, 1, 14, 8}, false, 1, plan);  // a store may straddle both
    CHECK(plan.size() == 0);
    one.dirtied({&object, 1, 9, 1}, false, 1, plan);
    CHECK(plan.size() == 2);
}

TEST_CASE("adaptive blocks are small, but not too many; a fault opens a part of a large object at most") {
    const Rolling rolling(0);
    constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
    const struct {
        std::size_t object, block, reach;
    } cases[] = {
        {4096, 4096, 4096},
        {64 * kKiB, 64 * kKiB, 64 * kKiB},
        {300 * kKiB, 64 * kKiB, 320 * kKiB},
        {32 * kMiB, 64 * kKiB, 2 * kMiB},
        {512 * kMiB, 64 * kKiB, 2 * kMiB},
        {kGiB, 64 * kKiB, 4 * kMiB},
        {2 * kGiB, 128 * kKiB, 8 * kMiB},
        {64 * kGiB, 4 * kMiB, 32 * kMiB},
        {8192 * kGiB, 32 * kMiB, 32 * kMiB},
    };
    for (const auto& c : cases) {
        INFO(c.object);
        CHECK(rolling.block_bytes(c.object, 0) == c.block);
        CHECK(rolling.reach_bytes(c.object, 0) == c.reach);
        // A size that is set is the size.
        CHECK(rolling.block_bytes(c.object, 8192) == std::min<std::size_t>(c.object, 8192));
        CHECK(rolling.reach_bytes(c.object, 8192) == std::min<std::size_t>(c.object, 8192));
    }
}

TEST_CASE("protocols by name") {
    CHECK(make_protocol("batch", 0)->acts_on_acquire());
    CHECK(make_protocol("lazy", 0)->block_bytes(1 << 20, 4096) == 1 << 20);
    CHECK(make_protocol("rolling", 0)->block_bytes(1 << 20, 4096) == 4096);
    CHECK(make_protocol("eager", 0) == nullptr);
}
