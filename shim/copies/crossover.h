// SPDX-License-Identifier: MIT
// Which way a pageable copy goes: the driver's or through staging. Machines differ too much to know: for each class of
// sizes (powers of two) the program's first copies go one way, the next the other, and from then on the faster way is
// taken. Small copies are the driver's; the largest are not worth an experiment, and follow the class of kDecisive.
//
// The trials of a way follow each other, since a copy finds in the caches what the one before it left there: on an
// H200's host the driver moves 1 MiB in 50 us after a staged copy, in 85 after one of its own.
//
// A copy is measured only if no other was under way: with eight threads the staged copies that disturbed each other
// looked slower than the driver's last one, which was undisturbed (14 GB/s in all from then on, where staging reaches
// 49).
//
// Bytes and nanoseconds. Threads: any; no lock. Errors: none.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hpe {

// One copy, from its construction to its end: whether any other was under way meanwhile.
class UnderWay {
public:
    struct Copies {
        std::atomic<std::uint64_t> begun{0}, ended{0};
    };
    explicit UnderWay(Copies& copies) noexcept
        : copies_(copies),
          number_(copies.begun.fetch_add(1, std::memory_order_acq_rel)),
          began_as_only_(copies.ended.load(std::memory_order_acquire) == number_) {}
    ~UnderWay() { copies_.ended.fetch_add(1, std::memory_order_release); }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    bool only_copy() const noexcept {
        return began_as_only_ && copies_.begun.load(std::memory_order_acquire) == number_ + 1;
    }

private:
    Copies& copies_;
    const std::uint64_t number_;
    const bool began_as_only_;
};

class Crossover {
public:
    enum class Way : std::uint8_t { Driver, Staged };
    static constexpr std::size_t kSmallest = std::size_t{512} << 10, kDecisive = std::size_t{64} << 20;

    // `experiment`: the copy can be measured, for took().
    Way choose(std::size_t bytes, bool experiment) const noexcept {
        if (bytes < kSmallest) return Way::Driver;
        const auto& direct = tried(bytes, Way::Driver);
        const auto& staged = tried(bytes, Way::Staged);
        const auto d = direct.count.load(std::memory_order_relaxed), s = staged.count.load(std::memory_order_relaxed);
        if (d < kTrials || s < kTrials) {
            return !experiment || bytes >= 2 * kDecisive || s < kTrials ? Way::Staged : Way::Driver;
        }
        return staged.best.load(std::memory_order_relaxed) <= direct.best.load(std::memory_order_relaxed) ? Way::Staged
                                                                                                          : Way::Driver;
    }

    // A copy took so long, with nothing before it in its stream and no other copy under way.
    void took(std::size_t bytes, Way way, std::uint64_t nanoseconds) noexcept {
        if (bytes < kSmallest || bytes >= 2 * kDecisive) return;
        auto& t = tried(bytes, way);
        // The first copy of a way finds the caches as the other way left them.
        if (t.count.load(std::memory_order_relaxed) != 0) {
            const auto rate = nanoseconds * 1024 / (bytes >> 10);  // a MiB
            auto best = t.best.load(std::memory_order_relaxed);
            while (rate < best && !t.best.compare_exchange_weak(best, rate, std::memory_order_relaxed)) {
            }
        }
        t.count.fetch_add(1, std::memory_order_relaxed);
    }
    // Whether took() of this size can still change a choice.
    bool measuring(std::size_t bytes) const noexcept {
        return bytes >= kSmallest && bytes < 2 * kDecisive &&
               (tried(bytes, Way::Driver).count.load(std::memory_order_relaxed) < kTrials ||
                tried(bytes, Way::Staged).count.load(std::memory_order_relaxed) < kTrials);
    }

private:
    static constexpr std::uint32_t kTrials = 4;
    static constexpr unsigned kClasses = 8;  // 512K, 1M, ... 32M, 64M and more
    struct Tried {
        std::atomic<std::uint32_t> count{0};
        std::atomic<std::uint64_t> best{std::numeric_limits<std::uint64_t>::max()};  // nanoseconds a MiB
    };
    static unsigned class_of(std::size_t bytes) noexcept {
        return std::min<unsigned>(static_cast<unsigned>(std::bit_width(bytes / kSmallest)) - 1, kClasses - 1);
    }
    Tried& tried(std::size_t bytes, Way way) noexcept { return tried_[class_of(bytes)][static_cast<std::size_t>(way)]; }
    const Tried& tried(std::size_t bytes, Way way) const noexcept {
        return tried_[class_of(bytes)][static_cast<std::size_t>(way)];
    }
    std::array<std::array<Tried, 2>, kClasses> tried_{};
};

}  // namespace hpe
