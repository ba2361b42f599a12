// SPDX-License-Identifier: MIT
// Blocks: lock, state and geometry.
#include <atomic>
#include <thread>
#include <vector>

#include "protocols/blocks.h"
#include "tests/unit/catch.h"

using namespace hpe;

TEST_CASE("a block's lock excludes, and carries the state across") {
    Block block;
    block.lock();
    block.unlock(State::Invalid);
    long counter = 0;  // unprotected but for the block's lock
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 20000; ++i) {
                const auto state = block.lock();
                ++counter;
                block.unlock(state == State::Dirty ? State::ReadOnly : State::Dirty);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(counter == 80000);
    CHECK_FALSE(block.peek().locked);
    CHECK(block.peek().state == State::ReadOnly);
}

TEST_CASE("the last block of an object is as short as the object") {
    Blocks object;
    object.base = 0x100000;
    object.size = 10 * kPage;
    std::vector<Block> words(Blocks::block_count(object.size, 4 * kPage));
    REQUIRE(words.size() == 3);
    object.open(4 * kPage, words.data());
    CHECK(object.blocks() == 3);
    CHECK(object.bytes_of(0) == 4 * kPage);
    CHECK(object.bytes_of(2) == 2 * kPage);
    CHECK(object.block_at(object.base + 8 * kPage - 1) == 1);
    CHECK(object.block_at(object.base + 8 * kPage) == 2);
    const auto serial = object.serial();
    CHECK(object.alive(serial));
    object.coarsen();
    CHECK(object.blocks() == 1);
    CHECK(object.block_at(object.base + 9 * kPage) == 0);
    CHECK(object.bytes_of(0) == object.size);
    object.close();
    CHECK_FALSE(object.alive(serial));
}

TEST_CASE("an object of one block has it itself, a new one in each life") {
    Blocks object;
    object.base = 0x100000;
    object.size = kPage;
    object.open(kPage, nullptr);
    CHECK(object.blocks() == 1);
    object.block(0).lock();
    object.block(0).mark_borrowed();
    object.block(0).mark_mapped();
    object.block(0).mark_evicted();
    object.block(0).request_prefetch();
    object.block(0).unlock(State::Dirty);
    object.touch();
    object.close();
    CHECK(object.take_words() == nullptr);
    CHECK_FALSE(object.keeps_words(1));
    object.open(kPage, nullptr);
    CHECK(object.block(0).peek().state == State::DeviceOnly);
    CHECK_FALSE(object.block(0).borrowed());
    CHECK_FALSE(object.block(0).mapped());
    CHECK_FALSE(object.block(0).prefetch_requested());
    CHECK_FALSE(object.block(0).take_evicted());
    // A later life may have more.
    object.close();
    std::vector<Block> words(2);
    object.size = 2 * kPage;
    object.open(kPage, words.data());
    object.block(1).unlock(State::Invalid);
    CHECK(words[1].peek().state == State::Invalid);
    object.close();
    CHECK(object.take_words() == words.data());
}

TEST_CASE("an object that is used when it is closed is known to be, and cannot be used from then on") {
    Blocks object;
    object.base = 0x100000;
    object.size = 2 * kPage;
    std::vector<Block> words(2);
    object.open(kPage, words.data());
    {
        const ObjectUse use(object, object.base + object.size - 1);
        REQUIRE(use);
        CHECK(object.alive(use.serial()));
        object.close();
        CHECK(object.used());
        CHECK_FALSE(ObjectUse(object, object.base));
        CHECK(object.used());
    }
    CHECK_FALSE(object.used());
    object.open(kPage, words.data());
    CHECK_FALSE(ObjectUse(object, object.base + object.size));
    CHECK(ObjectUse(object, object.base));
    CHECK_FALSE(object.used());
}

TEST_CASE("a state that changes under the lock, and a lock that is only tried") {
    Block block;
    block.lock();
    block.unlock(State::Invalid);
    REQUIRE(block.try_lock());
    CHECK_FALSE(block.try_lock());
    block.become(State::Dirty);
    CHECK(block.peek().locked);
    std::thread waiting([&] {
        CHECK(block.lock() == State::Dirty);
        block.unlock();
    });
    block.become(State::ReadOnly);
    block.become(State::Dirty);
    block.unlock();
    waiting.join();
    CHECK_FALSE(block.peek().locked);
    CHECK(block.peek().state == State::Dirty);
}

TEST_CASE("a prefetch request is taken once") {
    Block block;
    CHECK_FALSE(block.take_prefetch_request());
    block.request_prefetch();
    CHECK(block.prefetch_requested());
    CHECK(block.take_prefetch_request());
    CHECK_FALSE(block.take_prefetch_request());
}

TEST_CASE("an object that nobody touched is closed once, one that was touched is not") {
    Blocks object;
    Block word;
    object.size = kPage;
    object.open(kPage, &word);
    CHECK(object.close_untouched());
    CHECK_FALSE(object.close_untouched());
    CHECK_FALSE(object.touch());
    object.open(kPage, &word);
    const auto serial = object.serial();
    CHECK_FALSE(object.touched());
    CHECK(object.touch());
    CHECK(object.touched());
    CHECK_FALSE(object.close_untouched());
    CHECK(object.alive(serial));
}

TEST_CASE("of threads that touch and close an object one comes first") {
    Blocks object;
    Block word;
    object.size = kPage;
    for (int round = 0; round < 300; ++round) {
        object.open(kPage, &word);
        std::atomic<int> ready{0}, closed{0};
        bool touched = false;
        const auto meet = [&] {
            ready.fetch_add(1);
            while (ready.load() != 3) {
            }
        };
        std::thread toucher([&] {
            meet();
            touched = object.touch();
        });
        std::thread other([&] {
            meet();
            closed += object.close_untouched();
        });
        meet();
        closed += object.close_untouched();
        toucher.join();
        other.join();
        REQUIRE(closed <= 1);
        REQUIRE_FALSE((touched && closed == 1));
        REQUIRE((object.serial() % 2 == 1) == (closed == 0));
        if (closed == 0) object.close();
    }
}
