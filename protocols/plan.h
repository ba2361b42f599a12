// SPDX-License-Identifier: MIT
// What a protocol asks for in answer to an event: runs of blocks to flush early. A fixed array, since plans are made in
// the fault path, which does not allocate.
//
// A plan belongs to one thread and owns nothing. Errors: none but a full plan, see evict().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hpe {

class Object;

// Names neighbouring blocks that one fault opened, without owning them: the object may be gone by the time the plan is
// carried out, which `serial` tells.
struct RunRef {
    Object* object = nullptr;
    std::uint32_t serial = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 1;
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
