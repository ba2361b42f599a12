// SPDX-License-Identifier: MIT
// How densely accesses that follow no sweep touch an object. Each costs a fault, as much as several blocks cost to
// move: who has touched a good part of the object one by one will touch most of it, and is given more with each fault.
// As much is risked on the guess as has been spent without it (the ski rental rule of Karlin et al., "Competitive
// snoopy caching", Algorithmica 3, 1988).
//
// Units: blocks. Threads: any, also inside the fault path; counts that race are off by a few. Errors: none.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe {

class Scatter {
public:
    // Bytes that a guess opens: of 64 KiB to 1 MiB the fastest for 10,000 accesses anywhere in 1 GiB (H200: 68 ms a
    // round, 107 with 256 KiB, 210 with 64 KiB).
    static constexpr std::size_t kBytes = std::size_t{1} << 20;

    // How many blocks an access that follows no sweep should open, of an object of `blocks`; at most `most`.
    std::uint32_t reach(std::uint32_t blocks, std::uint32_t most) const noexcept {
        if (blocks < kFew) return 1;
        const bool dense =
            dense_.load(std::memory_order_relaxed) || opened_.load(std::memory_order_relaxed) >= blocks / kPart;
        return dense ? most : 1;
    }
    // So many were opened by one.
    void opened(std::uint32_t count) noexcept { opened_.fetch_add(count, std::memory_order_relaxed); }
    // The device has the object again: what was learnt holds for the next round. A guess is kept as long as nearly all
    // of the object is opened by it.
    void released(std::uint32_t blocks) noexcept {
        const auto opened = opened_.exchange(0, std::memory_order_relaxed);
        const bool guessed = dense_.load(std::memory_order_relaxed);
        dense_.store(blocks >= kFew && opened >= (guessed ? blocks - blocks / kRest : blocks / kPart),
                     std::memory_order_relaxed);
    }
    // The object is another one.
    void forget() noexcept {
        opened_.store(0, std::memory_order_relaxed);
        dense_.store(false, std::memory_order_relaxed);
    }

private:
    static constexpr std::uint32_t kFew = 64;  // below, all of them cost little
    static constexpr std::uint32_t kPart = 3;  // a fault and its block cost as much as three to four blocks beside it
    static constexpr std::uint32_t kRest = 10;

    std::atomic<std::uint32_t> opened_{0};  // since the last release
    std::atomic<bool> dense_{false};        // the round before was
};

}  // namespace hpe
