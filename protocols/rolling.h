// SPDX-License-Identifier: MIT
// Rolling-update (ADSM/GMAC paper section 4.3): a bound on how many blocks are Dirty. The oldest beyond it is flushed
// in the background while the CPU goes on. Where the paper's blocks have one size, chosen before the run, these follow
// the accesses unless their size is set: small ones, and as many of them opened at once as a sweep deserves. Such a run
// of blocks counts as one.
//
// Units, ownership, threads and errors: Protocol.
#pragma once

#include <array>
#include <cstddef>

#include "protocols/protocol.h"
#include "protocols/transitions.h"

namespace hpe {

class Rolling final : public Protocol {
public:
    // rolling_size: Dirty runs allowed. 0: two per allocation, as in the paper; twice as many whenever an evicted run
    // is written again, since it was evicted too early; each release halves this addition. With 1 the neighbour of the
    // newest run stays Dirty, too: one store may straddle both.
    explicit Rolling(std::size_t rolling_size) noexcept : Protocol(kWriteInvalidate), fixed_(rolling_size) {}

    std::size_t block_bytes(std::size_t object_bytes, std::size_t configured) const noexcept override;
    std::size_t reach_bytes(std::size_t object_bytes, std::size_t configured) const noexcept override;
    void dirtied(RunRef run, bool again, std::size_t allocations, Plan& plan) noexcept override;
    // What a large read of a file brought is flushed while the next part is read: there is no next store to wait for.
    void overwritten(RunRef run, std::size_t allocations, Plan& plan) noexcept override;
    void released() noexcept override;

    std::size_t limit(std::size_t allocations) const noexcept;

    // Adaptive blocks: kSmallest, unless the object would have more than kMostBlocks; kLargest bytes are opened at
    // once.
    static constexpr std::size_t kSmallest = std::size_t{64} << 10, kMostBlocks = std::size_t{1} << 14;
    static constexpr std::size_t kLargest = std::size_t{32} << 20;
    // Overwritten at once, it is flushed at once.
    static constexpr std::size_t kLargeCall = std::size_t{1} << 20;

private:
    // A ring in the order of first writes. An entry whose blocks are no longer Dirty costs a flush that does nothing.
    static constexpr std::size_t kRing = 1 << 16;
    static constexpr std::size_t kRunsPerAllocation = 2;

    const std::size_t fixed_;
    std::size_t more_ = 0;  // runs, in addition to the paper's two per allocation
    std::size_t head_ = 0, count_ = 0;
    std::array<RunRef, kRing> ring_;  // uninitialised: filling 1.5 MiB would be most of what a start costs
};

}  // namespace hpe
