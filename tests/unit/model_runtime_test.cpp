// SPDX-License-Identifier: MIT
// The protocols without the shim: a runtime of a page, whose device is an array, does what they say and nothing else.
// Random programs on it read what they would read in one memory.
#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "protocols/protocol.h"
#include "protocols/transitions.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

constexpr std::size_t kBytes = 8 * kPage;

// One object and its copies. The pages of a block are as open as its state says.
struct Shared {
    explicit Shared(std::size_t block_bytes) {
        object.base = kBytes;
        object.size = kBytes;
        words = std::make_unique<Block[]>(Blocks::block_count(kBytes, block_bytes));
        object.open(block_bytes, words.get());
    }
    State state(std::uint32_t block) { return object.block(block).peek().state; }

    Blocks object;
    std::unique_ptr<Block[]> words;
    std::vector<int> host = std::vector<int>(kBytes, -1), device = std::vector<int>(kBytes, 0);
};

class Runtime {
public:
    Runtime(Protocol& protocol, std::size_t configured) : protocol_(protocol) {
        for (auto& one : shared_) one = std::make_unique<Shared>(protocol.block_bytes(kBytes, configured));
    }
    int read(std::size_t which, std::size_t at) {
        Shared& in = *shared_[which];
        const auto block = in.object.block_at(in.object.base + at);
        if (!valid_on_host(in.state(block))) happens(in, block, Event::CpuRead);
        return in.host[at];
    }
    void write(std::size_t which, std::size_t at, int value) {
        Shared& in = *shared_[which];
        const auto block = in.object.block_at(in.object.base + at);
        if (in.state(block) != State::Dirty) {
            const bool again = in.object.block(block).take_evicted();
            happens(in, block, Event::CpuWrite);
            Plan plan;
            protocol_.dirtied({&in.object, in.object.serial(), block, 1}, again, shared_.size(), plan);
            for (const auto& victim : plan) evict(victim);
        }
        in.host[at] = value;
    }
    template <class Kernel>
    void launch(Kernel&& kernel) {
        for (auto& one : shared_) happens_to_all(*one, Event::Release);
        protocol_.released();
        for (auto& one : shared_) kernel(one->device);
    }
    void wait() {
        if (!protocol_.acts_on_acquire()) return;
        for (auto& one : shared_) happens_to_all(*one, Event::Acquire);
    }
    void copy(std::size_t to, std::size_t to_at, std::size_t from, std::size_t from_at, std::size_t bytes) {
        happens_within(*shared_[from], from_at, bytes, Event::DeviceRead);
        happens_within(*shared_[to], to_at, bytes, Event::DeviceWrite);
        const auto& source = shared_[from]->device;
        std::vector<int> moved(source.begin() + static_cast<long>(from_at),
                               source.begin() + static_cast<long>(from_at + bytes));
        std::copy(moved.begin(), moved.end(), shared_[to]->device.begin() + static_cast<long>(to_at));
    }

private:
    void happens(Shared& in, std::uint32_t block, Event event) {
        const auto [action, next] = protocol_.on(in.state(block), event);
        const auto begin = static_cast<long>(in.object.offset_of(block));
        const auto end = begin + static_cast<long>(in.object.bytes_of(block));
        auto& from = action == Action::Fetch ? in.device : in.host;
        auto& to = action == Action::Fetch ? in.host : in.device;
        if (action != Action::Nothing) std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
        // What may not be accessed any more must not be what a later read finds.
        if (!valid_on_host(next)) std::fill(in.host.begin() + begin, in.host.begin() + end, -1);
        in.object.block(block).become(next);
    }
    void happens_to_all(Shared& in, Event event) { happens_within(in, 0, kBytes, event); }
    void happens_within(Shared& in, std::size_t at, std::size_t bytes, Event event) {
        const auto last = in.object.block_at(in.object.base + at + bytes - 1);
        for (auto block = in.object.block_at(in.object.base + at); block <= last; ++block) happens(in, block, event);
    }
    void evict(const RunRef& run) {
        for (auto& one : shared_) {
            if (&one->object != run.object) continue;
            for (auto block = run.first; block < run.first + run.count; ++block) {
                happens(*one, block, Event::Evict);
                one->object.block(block).mark_evicted();
            }
        }
    }

    Protocol& protocol_;
    std::array<std::unique_ptr<Shared>, 2> shared_;
};

// How many reads differ from those of one memory.
long wrong_reads(Protocol& protocol, std::size_t configured) {
    Runtime runtime(protocol, configured);
    std::array<std::vector<int>, 2> memory{std::vector<int>(kBytes, 0), std::vector<int>(kBytes, 0)};
    std::mt19937 random(7);
    const auto below = [&](std::size_t n) { return std::size_t{random()} % n; };
    long wrong = 0;
    for (int step = 0; step < 20000; ++step) {
        const auto which = below(2), at = below(kBytes);
        switch (below(20)) {
            case 0: {
                const auto first = below(64);
                const auto kernel = [&](std::vector<int>& all) {
                    for (auto i = first; i < kBytes; i += 97) all[i] = (all[i] + step) % 1000;
                };
                runtime.launch(kernel);
                for (auto& all : memory) kernel(all);
                break;
            }
            case 1: runtime.wait(); break;
            case 2: {
                const auto to = below(kBytes), bytes = 1 + below(kBytes - std::max(at, to));
                runtime.copy(1 - which, to, which, at, bytes);
                std::copy_n(memory[which].begin() + static_cast<long>(at), bytes,
                            memory[1 - which].begin() + static_cast<long>(to));
                break;
            }
            default:
                if (below(2) == 0) {
                    wrong += runtime.read(which, at) != memory[which][at];
                } else {
                    runtime.write(which, at, step % 1000);
                    memory[which][at] = step % 1000;
                }
        }
    }
    return wrong;
}

void same_as_one_memory(std::string_view name, std::size_t rolling_size, std::size_t configured) {
    const std::unique_ptr<Protocol> protocol(make_protocol(name, rolling_size));
    REQUIRE(protocol != nullptr);
    INFO(name << ", rolling size " << rolling_size << ", blocks of " << configured);
    CHECK(wrong_reads(*protocol, configured) == 0);
}

class Spoilt final : public Protocol {
public:
    Spoilt(State state, Event event, Transition transition) : Protocol(table_), table_(kWriteInvalidate) {
        table_[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)] = transition;
    }
    std::size_t block_bytes(std::size_t, std::size_t configured) const noexcept override { return configured; }

private:
    TransitionTable table_;
};

}  // namespace

TEST_CASE("a program reads what it would read in one memory") {
    for (const std::size_t configured : {std::size_t{0}, kPage, 4 * kPage}) {
        same_as_one_memory("lazy", 0, configured);
        same_as_one_memory("batch", 0, configured);
        for (const std::size_t size : {0, 1, 3}) same_as_one_memory("rolling", size, configured);
    }
}

TEST_CASE("the model tells a table that loses bytes") {
    Spoilt not_closed(State::ReadOnly, Event::Release, {Action::Nothing, State::ReadOnly});
    CHECK(wrong_reads(not_closed, kPage) != 0);
    Spoilt not_flushed(State::Dirty, Event::DeviceRead, {Action::Nothing, State::ReadOnly});
    CHECK(wrong_reads(not_flushed, kPage) != 0);
    Spoilt not_fetched(State::Invalid, Event::CpuWrite, {Action::Nothing, State::Dirty});
    CHECK(wrong_reads(not_fetched, kPage) != 0);
    Spoilt kept(State::Dirty, Event::DeviceWrite, {Action::Flush, State::ReadOnly});
    CHECK(wrong_reads(kept, kPage) != 0);
}
