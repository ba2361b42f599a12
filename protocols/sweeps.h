// SPDX-License-Identifier: MIT
// Predicts a thread's next accesses from its faults: sequential and strided sweeps through an object's blocks, in both
// directions. Pure logic: it answers how many blocks a fault should open and which to prefetch.
//
// A sweep begins with few blocks and doubles their number each time it goes on as predicted, as file systems read ahead
// (Linux, mm/readahead.c, "on-demand readahead"); the double buffer is the paper's idea for streaming through a bounded
// host memory (ADSM/GMAC section 4.3). A wrong prediction costs the transfers under way, and the sweep starts anew.
//
// Units: blocks of the object. One thread at a time, also inside the fault path: no lock, no allocation, no constructor
// that runs. Objects are named, never looked into. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hpe {

// Blocks first, first + step, ... : `count` of them. step is never 0 where count is above 1.
struct Stretch {
    std::uint32_t first = 0;
    std::int32_t step = 1;
    std::uint32_t count = 0;

    bool contiguous() const noexcept { return step == 1 || step == -1 || count <= 1; }
    std::uint32_t at(std::uint32_t i) const noexcept {
        return static_cast<std::uint32_t>(static_cast<std::int64_t>(first) + std::int64_t{step} * i);
    }
    std::uint32_t lowest() const noexcept { return step > 0 || count == 0 ? first : at(count - 1); }
};

class Sweeps {
public:
    struct Fault {
        const void* object;
        std::uint32_t serial;
        std::uint32_t block;
        bool is_write;
    };
    struct Limits {
        std::uint32_t blocks;    // of the object
        std::uint32_t most;      // blocks that one fault may open; 1: each fault opens only its own
        std::uint32_t unit = 1;  // in blocks: half a unit or more is opened so that it ends at a multiple of the unit
    };
    struct Reach {
        Stretch open;            // begins with the faulting block
        Stretch ahead;           // to prefetch; count 0: nothing
        bool scattered = false;  // the fault belongs to no known sweep
    };
    // How far the fault should reach.
    Reach fault(const Fault& fault, const Limits& limits) noexcept;
    // Only the first `count` blocks of the last answer's `open` were opened.
    void opened(std::uint32_t count) noexcept;

    // Blocks that are not neighbours are fetched one by one: so many are prefetched at most.
    static constexpr std::uint32_t kMostStrided = 32;
    // Blocks that the first fault at an object's beginning opens: such a sweep is likely to go on.
    static constexpr std::uint32_t kAtBeginning = 4;

private:
    struct Sweep {
        const void* object;
        std::uint32_t serial;
        bool is_write;
        bool confirmed;        // went on as predicted at least once
        std::uint32_t last;    // where it faulted
        std::int32_t delta;    // from the fault before; 0: none
        std::uint32_t next;    // where it faults next if it goes on
        std::int32_t step;     // between the blocks it opens
        std::uint32_t count;   // blocks to open then; 0: the object's end is reached
        std::uint64_t recent;  // number of its last fault among the thread's
    };
    static constexpr std::size_t kSweeps = 8;

    Sweep* going_on(const Fault& fault) noexcept;
    Sweep& begin(const Fault& fault, const Limits& limits) noexcept;

    std::array<Sweep, kSweeps> sweeps_{};
    std::size_t latest_ = 0;
    std::uint64_t faults_ = 0;
};

}  // namespace hpe
