// SPDX-License-Identifier: MIT
// When staging is worth its start: helper threads, streams and bounce buffers cost a process some 27 ms on an H200's
// host, what a copy gains by them is 40 to 100 us a MiB. So a process rents before it buys (the ski-rental problem: a
// price is paid when as much has been lost without it, hence at most twice what would have been best): its first copies
// are the driver's. From kStart on, the copy that reaches it among them, staging may pin a part of what was copied:
// blocks come as they are earned.
//
// Bytes, of copies that staging could make. Threads: any; no lock. Errors: none.
#pragma once

#include <atomic>
#include <cstddef>

namespace hpe {

class BreakEven {
public:
    static constexpr std::size_t kStart = std::size_t{256} << 20;
    // 4 MiB are pinned in 1.5 ms, by when 64 MiB have gained 3 to 6.
    static constexpr std::size_t kPart = 16;

    // Counts a copy. Returns how much staging may have pinned for it and those before; 0: it is the driver's.
    std::size_t earned_with(std::size_t bytes) noexcept {
        const auto sum = copied_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        return sum < kStart ? 0 : sum / kPart;
    }

private:
    std::atomic<std::size_t> copied_{0};
};

}  // namespace hpe
