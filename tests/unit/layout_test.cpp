// SPDX-License-Identifier: MIT
// Layouts against lists of single bytes, and the forms that equal bytes get.
#include "shim/copies/layout.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

using Bytes = std::vector<std::int64_t>;

// As the kernel reads it.
Bytes bytes_of(const Layout& layout) {
    Bytes all;
    std::vector<std::uint64_t> turn(layout.loops().size());
    for (;;) {
        auto at = layout.offset();
        for (std::size_t d = 0; d < turn.size(); ++d) {
            at += static_cast<std::int64_t>(turn[d]) * layout.loops()[d].stride;
        }
        std::size_t piece = 0;
        for (std::uint64_t i = 0; i < layout.turn_bytes(); ++i) {
            const auto within = static_cast<std::int64_t>(i);
            if (layout.list() == nullptr) {
                all.push_back(at + within);
                continue;
            }
            const auto& pieces = layout.list()->pieces;
            if (piece + 1 < pieces.size() && pieces[piece + 1].packed == i) ++piece;
            all.push_back(at + pieces[piece].offset + within - static_cast<std::int64_t>(pieces[piece].packed));
        }
        auto d = turn.size();
        while (d != 0 && ++turn[d - 1] == layout.loops()[d - 1].count) turn[--d] = 0;
        if (d == 0) return all;
    }
}

struct Twin {
    Layout layout;
    Bytes bytes;
};

void check(const Twin& twin) {
    REQUIRE(bytes_of(twin.layout) == twin.bytes);
    CHECK(twin.layout.bytes() == twin.bytes.size());
    CHECK(twin.layout.begin() == *std::min_element(twin.bytes.begin(), twin.bytes.end()));
    CHECK(twin.layout.end() == 1 + *std::max_element(twin.bytes.begin(), twin.bytes.end()));
    // No access of so many bytes leaves a piece or is misaligned.
    const std::uintptr_t at = 1 << 20;
    const auto unit = twin.layout.unit(at);
    REQUIRE(unit <= 16);
    REQUIRE(twin.bytes.size() % unit == 0);
    for (std::size_t i = 0; i < twin.bytes.size(); i += unit) {
        CHECK((at + static_cast<std::uintptr_t>(twin.bytes[i])) % unit == 0);
        CHECK(twin.bytes[i + unit - 1] == twin.bytes[i] + unit - 1);
    }
}

}  // namespace

TEST_CASE("random layouts name the bytes that they were made of") {
    std::mt19937 random(1);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 3000; ++round) {
        const int scale = 1 << pick(5);
        Twin twin{Layout::of_bytes(static_cast<std::uint64_t>(scale)), {}};
        for (int i = 0; i < scale; ++i) twin.bytes.push_back(i);
        for (int levels = pick(8); levels > 0 && twin.bytes.size() < 3000; --levels) {
            Bytes bytes;
            const int n = 1 + pick(4);
            if (pick(3) != 0) {
                const auto stride = (pick(2) == 0 ? twin.layout.end() - twin.layout.begin() : scale * (pick(60) - 20));
                const auto layout = Layout::repeated(twin.layout, static_cast<std::uint64_t>(n), stride);
                REQUIRE(layout);
                for (int i = 0; i < n; ++i) {
                    for (auto byte : twin.bytes) bytes.push_back(byte + i * stride);
                }
                twin = {*layout, bytes};
                continue;
            }
            Layout::Join join;
            for (int i = 0; i < n; ++i) {
                const auto offset = scale * (pick(100) - 50);
                REQUIRE(join.add(twin.layout, offset));
                for (auto byte : twin.bytes) bytes.push_back(byte + offset);
            }
            const auto layout = join.finish();
            REQUIRE(layout);
            twin = {*layout, bytes};
        }
        check(twin);
    }
}

TEST_CASE("the same bytes get the same form") {
    // A plane of a matrix: as a vector of vectors, and row by row as a list.
    const auto row = Layout::repeated(Layout::of_bytes(8), 4, 32);
    const auto plane = Layout::repeated(*row, 5, 128);
    REQUIRE(plane);
    CHECK(plane->loops().size() == 1);
    CHECK(plane->loops()[0] == Layout::Loop{20, 32});
    Layout::Join join;
    for (int i = 0; i < 20; ++i) REQUIRE(join.add(Layout::of_bytes(8), 32 * i));
    const auto joined = join.finish();
    REQUIRE(joined);
    CHECK(joined->list() == nullptr);
    CHECK(joined->loops().size() == 1);
    CHECK(joined->loops()[0] == Layout::Loop{20, 32});
    // What touches is one piece.
    const auto whole = Layout::repeated(*Layout::repeated(Layout::of_bytes(8), 4, 8), 5, 32);
    REQUIRE(whole);
    CHECK(whole->is_dense());
    CHECK(whole->turn_bytes() == 160);
}

TEST_CASE("what is too large or empty is no layout") {
    CHECK(!Layout::repeated(Layout::of_bytes(8), 0, 8));
    CHECK(!Layout::repeated(Layout::of_bytes(8), std::uint64_t{1} << 60, 8));
    CHECK(!Layout::repeated(Layout::of_bytes(8), 3, std::int64_t{1} << 62));
    CHECK(!Layout::Join{}.finish());
    const auto sparse = Layout::repeated(Layout::of_bytes(1), Layout::kMostPieces, 2);
    REQUIRE(sparse);
    Layout::Join join;
    CHECK(join.add(*sparse, 0));
    CHECK(!join.add(*sparse, 1 << 30));
}
