// SPDX-License-Identifier: MIT
// Which allocations lie in a chunk.
#include "shim/memory/allocations.h"

#include <map>
#include <memory>
#include <random>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

std::unique_ptr<Allocations> empty() { return std::make_unique<Allocations>(); }

}  // namespace

TEST_CASE("an allocation holds its bytes, and the rest of its last unit") {
    const auto all = empty();
    CHECK(all->holding(0).bytes == 0);
    CHECK(all->from(0).bytes == 0);
    all->add(512, 100);
    CHECK(all->at(512).bytes == 100);
    CHECK(all->at(513).bytes == 0);
    CHECK(all->holding(511).bytes == 0);
    CHECK(all->holding(512).offset == 512);
    CHECK(all->holding(767).offset == 512);
    CHECK(all->holding(768).bytes == 0);
    CHECK(all->from(512).offset == 512);
    CHECK(all->from(513).bytes == 0);
}

TEST_CASE("one that fills the chunk") {
    const auto all = empty();
    all->add(0, Allocations::kChunk);
    CHECK(all->holding(Allocations::kChunk - 1).bytes == Allocations::kChunk);
    CHECK(all->from(1).bytes == 0);
    all->remove(0);
    CHECK(all->holding(0).bytes == 0);
    CHECK(all->count() == 0);
}

TEST_CASE("what a sorted map says, chunks say") {
    std::mt19937 random(5);
    const auto all = empty();
    std::map<std::size_t, std::size_t> model;
    std::size_t sum = 0;
    const auto check_at = [&](std::size_t offset) {
        const auto after = model.upper_bound(offset);
        const auto holder = after == model.begin() ? model.end() : std::prev(after);
        const auto rounded = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
        const bool held = holder != model.end() && offset < holder->first + rounded(holder->second);
        const auto got = all->holding(offset);
        if (held != (got.bytes != 0) || (held && (got.offset != holder->first || got.bytes != holder->second)))
            return false;
        const auto until = all->until(offset);
        if (holder == model.end() ? until.bytes != 0 : until.offset != holder->first || until.bytes != holder->second)
            return false;
        const auto next = model.lower_bound(offset);
        const auto from = all->from(offset);
        return next == model.end() ? from.bytes == 0 : from.offset == next->first && from.bytes == next->second;
    };
    bool right = true;
    for (int i = 0; i < 20000; ++i) {
        const auto offset = random() % (Allocations::kChunk / 256) * 256;
        const auto bytes = 1 + random() % (random() % 8 == 0 ? 300'000 : 2000);
        const auto next = model.lower_bound(offset);
        const auto before = next == model.begin() ? model.end() : std::prev(next);
        const bool free = (next == model.end() || offset + bytes <= next->first) &&
                          offset + bytes <= Allocations::kChunk &&
                          (before == model.end() || before->first + before->second <= offset);
        if (free && (next == model.end() || next->first != offset)) {
            all->add(offset, bytes);
            model.emplace(offset, bytes);
            sum += bytes;
        } else if (next != model.end()) {
            all->remove(next->first);
            sum -= next->second;
            model.erase(next);
        }
        right =
            right && check_at(random() % Allocations::kChunk) && all->count() == model.size() && all->bytes() == sum;
    }
    CHECK(right);
}
