// SPDX-License-Identifier: MIT
// For how long faults have blocked launches (kept them out of the gate) to wait for the device. A fault that measures
// how long the device takes subtracts this time: otherwise each fault would block launches for twice as long as the one
// before.
//
// Threads: any, also inside the fault path; where several begin and end at once, a few microseconds more or less.
// Errors: none.
#pragma once

#include <atomic>
#include <chrono>

namespace hpe {

class LaunchesBlocked {
public:
    using Clock = std::chrono::steady_clock;
    class Scope {
    public:
        explicit Scope(LaunchesBlocked& blocked) noexcept : blocked_(blocked) {
            if (blocked_.by_.fetch_add(1, std::memory_order_relaxed) == 0)
                blocked_.since_.store(now(), std::memory_order_relaxed);
        }
        ~Scope() {
            const auto since = blocked_.since_.load(std::memory_order_relaxed);
            if (blocked_.by_.fetch_sub(1, std::memory_order_relaxed) == 1) {
                blocked_.total_.fetch_add(now() - since, std::memory_order_relaxed);
            }
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

    private:
        LaunchesBlocked& blocked_;
    };
    // Up to now.
    Clock::duration total() const noexcept {
        const auto since = since_.load(std::memory_order_relaxed);
        const auto under_way = by_.load(std::memory_order_relaxed) != 0 ? now() - since : 0;
        return Clock::duration(total_.load(std::memory_order_relaxed) + under_way);
    }

private:
    static Clock::rep now() noexcept { return Clock::now().time_since_epoch().count(); }
    std::atomic<unsigned> by_{0};
    std::atomic<Clock::rep> since_{0}, total_{0};
};

}  // namespace hpe
