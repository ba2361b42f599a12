// SPDX-License-Identifier: MIT
// How densely accesses that follow no sweep touch an object. Each costs a fault, and a fault costs as much as moving
// several blocks. A program that has touched a good part of the object block by block will touch most of it, so each
// further fault opens more. The guess risks as much as has been spent without it (the ski rental rule of Karlin et al.,
// "Competitive snoopy caching", Algorithmica 3, 1988).
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
    // One such access opened `count` blocks.
    void opened(std::uint32_t count) noexcept { opened_.fetch_add(count, std::memory_order_relaxed); }
    // A launch released the object: what was learnt holds for the next round. The guess is kept as long as it opens
    // nearly all of the object.
    void released(std::uint32_t blocks) noexcept {
        const auto opened = opened_.exchange(0, std::memory_order_relaxed);
        const bool guessed = dense_.load(std::memory_order_relaxed);
        dense_.store(blocks >= kFew && opened >= (guessed ? blocks - blocks / kRest : blocks / kPart),
                     std::memory_order_relaxed);
    }
    // The object is recycled.
    void forget() noexcept {
        opened_.store(0, std::memory_order_relaxed);
        dense_.store(false, std::memory_order_relaxed);
    }

private:
    static constexpr std::uint32_t kFew = 64;  // below, even a fault for every block costs little
    static constexpr std::uint32_t kPart = 3;  // a fault with its block costs as much as three to four blocks more
    static constexpr std::uint32_t kRest = 10;

    std::atomic<std::uint32_t> opened_{0};  // since the last release
    std::atomic<bool> dense_{false};        // in the round before
};

}  // namespace hpe
