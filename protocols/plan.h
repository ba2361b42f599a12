// SPDX-License-Identifier: MIT
// What a protocol asks for beyond what its table (transitions.h) says of an event: runs of blocks to flush early. The
// fetches and flushes of the event's own blocks stand in the table, where they can be checked for all states; a plan
// would say them a second time. A fixed array, since plans are made in the fault path, which does not allocate.
//
// A plan belongs to one thread and owns nothing. Errors: none but a full plan, see evict().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hpe {

class Blocks;

// Neighbouring blocks that one fault opened. Not owned: the object may have been freed when the plan is carried out,
// which `serial` tells. Members have no initial values, so that a large queue touches its pages only when it is used.
struct RunRef {
    Blocks* object;
    std::uint32_t serial;
    std::uint32_t first;
    std::uint32_t count;
};

class Plan {
public:
    static constexpr std::size_t kCapacity = 4;
    // False when full: the protocol keeps the run and asks again next time.
    bool evict(RunRef run) noexcept {
        if (count_ == kCapacity) return false;
        evictions_[count_++] = run;
        return true;
    }
    const RunRef* begin() const noexcept { return evictions_.data(); }
    const RunRef* end() const noexcept { return evictions_.data() + count_; }
    std::size_t size() const noexcept { return count_; }

private:
    std::array<RunRef, kCapacity> evictions_;
    std::size_t count_ = 0;
};

}  // namespace hpe
