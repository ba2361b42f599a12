// SPDX-License-Identifier: MIT
// When staging is worth its start. Helper threads, streams and bounce buffers cost a process some 27 ms on an H200's
// host; a copy gains 40 to 100 us a MiB by them. So a process rents before it buys (the ski-rental problem: the price
// is paid when as much has been lost without it, so that the sum is at most twice the best possible): its first copies
// are the driver's. Staging begins with the copy that brings the sum to kStart, and may pin a part of that sum.
//
// Bytes, of copies that staging could make. Threads: any; no lock. Errors: none.
#pragma once

#include <atomic>
#include <cstddef>

namespace hpe {

class BreakEven {
public:
    static constexpr std::size_t kStart = std::size_t{256} << 20;
    // To pin 4 MiB takes 1.5 ms, and copies of 64 MiB have gained 3 to 6 ms by then.
    static constexpr std::size_t kPart = 16;

    // Counts a copy. Returns how many bytes staging may have pinned in all; 0: the copy is the driver's.
    std::size_t earned_with(std::size_t bytes) noexcept {
        const auto sum = copied_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        return sum < kStart ? 0 : sum / kPart;
    }

private:
    std::atomic<std::size_t> copied_{0};
};

// Of the process (pageable.cpp).
extern constinit BreakEven break_even;

}  // namespace hpe
