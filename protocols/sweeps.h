// SPDX-License-Identifier: MIT
// What one thread's faults tell about where it goes next: sequential and strided sweeps through an object's blocks, in
// both directions. Pure logic: it answers how many blocks a fault should open and which to fetch ahead.
//
// A sweep begins with little and doubles what it opens each time it goes on as foreseen, as file systems read ahead
// (Linux, mm/readahead.c, "on-demand readahead"); the double buffer is the paper's idea for streaming through a bounded
// host memory (ADSM/GMAC section 4.3). A guess that was wrong costs what was under way, and the sweep starts anew.
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
        std::uint32_t most;      // blocks that one fault may open; 1: each fault opens its own alone
        std::uint32_t unit = 1;  // what is opened ends where so many blocks end, counted from the first, once it is
                                 // half as much
    };
    struct Reach {
        Stretch open;            // begins with the faulting block
        Stretch ahead;           // count 0: nothing
        bool scattered = false;  // belongs to no sweep that is known
    };
    // How far the fault should reach.
    Reach fault(const Fault& fault, const Limits& limits) noexcept;
    // Of what the last answer wanted open, only the first `count` blocks are.
    void opened(std::uint32_t count) noexcept;

    // Two blocks that are not neighbours are fetched one by one: so many of them ahead at most.
    static constexpr std::uint32_t kMostStrided = 32;
    // A sweep from an object's very beginning is likely to go on.
    static constexpr std::uint32_t kAtBeginning = 4;

private:
    struct Sweep {
        const void* object;
        std::uint32_t serial;
        bool is_write;
        bool confirmed;        // went on as foreseen at least once
        std::uint32_t last;    // where it faulted
        std::int32_t delta;    // from the fault before; 0: none
        std::uint32_t next;    // where it faults next if it goes on
        std::int32_t step;     // between the blocks it opens
        std::uint32_t count;   // blocks to open then; 0: the object's end is reached
        std::uint64_t recent;  // of all faults of the thread
    };
    static constexpr std::size_t kSweeps = 8;

    Sweep* going_on(const Fault& fault) noexcept;
    Sweep& begin(const Fault& fault, const Limits& limits) noexcept;

    std::array<Sweep, kSweeps> sweeps_{};
    std::size_t latest_ = 0;
    std::uint64_t faults_ = 0;
};

}  // namespace hpe
