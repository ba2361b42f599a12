// SPDX-License-Identifier: MIT
// Rolling-update (ADSM/GMAC paper section 4.3): a bound on how many blocks are Dirty. The oldest beyond it is flushed
// in the background while the CPU goes on. Where the paper's blocks have one size, chosen before the run, these follow
// the accesses unless their size is set: small ones, and as many of them opened at once as a sweep deserves. Such a run
// of blocks counts as one.
//
// Units, ownership and errors: Protocol. Threads: any; a lock of its own, held for a few instructions.
#pragma once

#include <array>
#include <atomic>

#include "protocols/protocol.h"
#include "protocols/transitions.h"

namespace hpe {

class Rolling final : public Protocol {
public:
    // rolling_size: Dirty runs allowed; 0: two more per live object, as in the paper, and twice as many whenever one
    // that was evicted is written again, since it went too early. Each release takes half of that back. With 1, the
    // neighbour of the newest stays too: one store may straddle both.
    explicit Rolling(std::size_t rolling_size) noexcept : fixed_(rolling_size) {}

    std::string_view name() const noexcept override { return "rolling"; }
    const TransitionTable& transitions() const noexcept override { return kWriteInvalidate; }
    std::size_t block_bytes(std::size_t object_bytes, std::size_t configured) const noexcept override;
    void object_added() noexcept override { objects_.fetch_add(1, std::memory_order_relaxed); }
    void object_removed() noexcept override { objects_.fetch_sub(1, std::memory_order_relaxed); }
    std::size_t reach_bytes(std::size_t object_bytes, std::size_t configured) const noexcept override;
    void dirtied(RunRef run, bool again, Plan& plan) noexcept override;

    void released() noexcept override;

    std::size_t limit() const noexcept;

    // Of adaptive blocks: the smallest, unless the object would have more than so many, and the most opened at once.
    static constexpr std::size_t kSmallest = std::size_t{64} << 10, kMostBlocks = std::size_t{1} << 14;
    static constexpr std::size_t kLargest = std::size_t{32} << 20;

private:
    void lock() noexcept;
    void unlock() noexcept;

    // A ring in order of first write. Entries whose blocks are Dirty no more cost a flush that finds nothing to do.
    static constexpr std::size_t kRing = 1 << 16;
    static constexpr std::size_t kBlocksPerObject = 2;

    const std::size_t fixed_;
    std::atomic<std::size_t> objects_{0};
    std::atomic<std::size_t> more_{0};  // than the paper's; written under the lock
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
    std::size_t head_ = 0, count_ = 0;
    std::array<RunRef, kRing> ring_;  // uninitialised: filling 1.5 MiB would be most of what a start costs
};

}  // namespace hpe
