// SPDX-License-Identifier: MIT
// The object table against a plain map, with readers that take no lock while objects come and go.
#include "protocols/object_table.h"

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

std::unique_ptr<ObjectTable<Blocks>> new_table() { return std::make_unique<ObjectTable<Blocks>>(); }

Blocks* make(std::uintptr_t base, std::size_t size) {
    auto* object = new Blocks;
    object->base = base;
    object->size = size;
    object->open(size, nullptr);
    return object;
}

constexpr std::uintptr_t kBase = 0x7f0000000000;

}  // namespace

TEST_CASE("an object is found at its first and last byte and not beside them") {
    auto table = new_table();
    // From one group of areas into the next, which nothing has used before.
    Blocks* const across = make(kBase + (std::uintptr_t{255} << 30), std::size_t{3} << 30);
    REQUIRE(table->insert(across));
    for (std::uintptr_t offset = 0; offset < across->size; offset += std::uintptr_t{1} << 21) {
        REQUIRE(table->find(across->base + offset) == across);
    }
    CHECK(table->find(across->base + across->size) == nullptr);
    table->erase(across);
    for (std::uintptr_t offset = 0; offset < across->size; offset += std::uintptr_t{1} << 21) {
        REQUIRE(table->find(across->base + offset) == nullptr);
    }
    for (const std::size_t size : {kPage, 3 * kPage, std::size_t{2} << 20, (std::size_t{5} << 30) + kPage}) {
        Blocks* object = make(kBase + kPage, size);
        REQUIRE(table->insert(object));
        CHECK(table->find(object->base) == object);
        CHECK(table->find(object->base + size - 1) == object);
        CHECK(table->find(object->base - 1) == nullptr);
        CHECK(table->find(object->base + size) == nullptr);
        CHECK(table->beginning_at(object->base) == object);
        CHECK(table->beginning_at(object->base + kPage) == nullptr);
        table->erase(object);
        CHECK(table->beginning_at(object->base) == nullptr);
        CHECK(table->find(object->base) == nullptr);
        CHECK(table->empty());
    }
}

TEST_CASE("addresses outside the table's reach are nobody's") {
    auto table = new_table();
    CHECK(table->find(0) == nullptr);
    CHECK(table->find(~std::uintptr_t{0}) == nullptr);
    CHECK(table->find(std::uintptr_t{1} << 60) == nullptr);
}

TEST_CASE("two objects may share a chunk but never a page") {
    auto table = new_table();
    Blocks* first = make(kBase, kPage);
    Blocks* second = make(kBase + kPage, 600 * kPage);
    Blocks* third = make(kBase + 601 * kPage, kPage);
    REQUIRE(table->insert(first));
    REQUIRE(table->insert(second));
    REQUIRE(table->insert(third));
    CHECK(table->find(kBase + kPage - 1) == first);
    CHECK(table->find(kBase + kPage) == second);
    CHECK(table->find(kBase + 601 * kPage) == third);
    Blocks* overlapping = make(kBase + 300 * kPage, 1000 * kPage);
    CHECK_FALSE(table->insert(overlapping));
    CHECK(table->find(kBase + 1000 * kPage) == nullptr);
    table->erase(second);
    CHECK(table->find(kBase) == first);
    CHECK(table->find(kBase + 2 * kPage) == nullptr);
    CHECK(table->find(kBase + 601 * kPage) == third);
}

TEST_CASE("overlapping() visits what a range touches, in order") {
    auto table = new_table();
    std::vector<Blocks*> objects;
    for (int i = 0; i < 5; ++i) {
        objects.push_back(
            make(kBase + static_cast<std::uintptr_t>(i) * (std::uintptr_t{3} << 20), std::size_t{1} << 20));
        REQUIRE(table->insert(objects.back()));
    }
    const auto visited = [&](std::uintptr_t begin, std::size_t bytes) {
        std::vector<Blocks*> seen;
        table->overlapping(begin, bytes, [&](Blocks& o) { seen.push_back(&o); });
        return seen;
    };
    CHECK(visited(kBase, std::size_t{15} << 20) == objects);
    CHECK(visited(kBase + (1 << 20), 1).empty());
    CHECK(visited(kBase + (1 << 20) - 1, 1) == std::vector<Blocks*>{objects[0]});
    CHECK(visited(kBase + (1 << 20), (std::size_t{2} << 20) + 1) == std::vector<Blocks*>{objects[1]});
    CHECK(visited(kBase, 0).empty());
    // Sizes that are no memory's, with which a program's call fails: the walk ends all the same.
    CHECK(visited(kBase + (std::uintptr_t{3} << 20), std::size_t{1} << 62) ==
          std::vector<Blocks*>(objects.begin() + 1, objects.end()));
    CHECK(visited(kBase, ~std::size_t{0}) == objects);
    CHECK(visited(~std::uintptr_t{0} - (std::uintptr_t{1} << 20), std::size_t{1} << 20).empty());
}

TEST_CASE("random inserts and erases agree with a map") {
    // Of pages of a few chunks, and of parts of chunks of a few areas.
    const std::size_t unit = GENERATE(values<std::size_t>({kPage, 128 * kPage}));
    auto table = new_table();
    std::map<std::uintptr_t, Blocks*> model;
    std::vector<Blocks*> closed;  // which have kept their places, as long as nobody wanted them
    std::mt19937_64 random(7);
    for (int step = 0; step < 50000; ++step) {
        if (model.size() < 50 || random() % 2 == 0) {
            const auto base = kBase + random() % 4096 * unit;
            const auto size = (1 + random() % (random() % 8 == 0 ? 1200 : 20)) * unit;
            const auto after = model.lower_bound(base);
            const bool clash =
                (after != model.end() && after->first < base + size) ||
                (after != model.begin() && std::prev(after)->first + std::prev(after)->second->size > base);
            Blocks* object = make(base, size);
            REQUIRE(table->insert(object) == !clash);
            if (clash) {
                delete object;
            } else {
                model.emplace(base, object);
            }
        } else {
            auto victim = model.begin();
            std::advance(victim, static_cast<long>(random() % model.size()));
            if (random() % 2 == 0) {
                victim->second->close();
                closed.push_back(victim->second);
            } else {
                table->erase(victim->second);
                delete victim->second;
            }
            model.erase(victim);
        }
        if (closed.size() > 40) {
            const auto chosen = closed.begin() + static_cast<long>(random() % closed.size());
            table->erase(*chosen);
            REQUIRE_FALSE(table->has(**chosen));
            delete *chosen;
            closed.erase(chosen);
        }
        const auto probe = kBase + random() % (std::uintptr_t{6000} * unit);
        const auto after = model.upper_bound(probe);
        Blocks* expected = nullptr;
        if (after != model.begin() && std::prev(after)->second->contains(probe)) expected = std::prev(after)->second;
        REQUIRE(table->find(probe) == expected);
        REQUIRE(table->beginning_at(probe) == (expected != nullptr && expected->base == probe ? expected : nullptr));
        if (expected != nullptr) REQUIRE(table->beginning_at(expected->base) == expected);
        if (step % 16 != 0) continue;
        const auto end = probe + random() % 1500 * unit + 1;
        std::vector<Blocks*> seen, there;
        table->overlapping(probe, end - probe, [&](Blocks& object) { seen.push_back(&object); });
        if (expected != nullptr) there.push_back(expected);
        for (auto next = after; next != model.end() && next->first < end; ++next) there.push_back(next->second);
        REQUIRE(seen == there);
    }
}

TEST_CASE("a closed object is opened again where it was, unless another one has taken its place") {
    auto table = new_table();
    Blocks* const first = make(kBase + kPage, 4 * kPage);
    REQUIRE(table->insert(first));
    first->close();
    CHECK(table->find(first->base) == nullptr);
    CHECK(table->beginning_at(first->base) == nullptr);
    CHECK(table->has(*first));
    first->reopen();
    CHECK(table->find(first->base) == first);
    first->close();
    Blocks* const second = make(kBase, 2 * kPage);
    REQUIRE(table->insert(second));
    CHECK_FALSE(table->has(*first));
    first->reopen();
    CHECK_FALSE(table->insert(first));
    CHECK(table->find(kBase + kPage) == second);
    CHECK(table->find(kBase + 2 * kPage) == nullptr);
    CHECK(table->count() == 1);
}

TEST_CASE("readers without a lock see an object or nothing, never half of one") {
    auto table = new_table();
    Blocks* fixed = make(kBase + 512 * kPage, kPage);
    REQUIRE(table->insert(fixed));
    Blocks* moving = make(kBase + 513 * kPage, 700 * kPage);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            while (!stop) {
                if (table->find(fixed->base) != fixed) ++wrong;
                Blocks* seen = table->find(moving->base + 5 * kPage);
                if (seen != nullptr && seen != moving) ++wrong;
            }
        });
    }
    for (int i = 0; i < 20000; ++i) {
        table->insert(moving);
        table->erase(moving);
    }
    stop = true;
    for (auto& reader : readers) reader.join();
    CHECK(wrong == 0);
}
