// SPDX-License-Identifier: MIT
// A coherence protocol: pure logic. It says how a block changes state on an event (one table, data) and, for rolling
// update, which blocks to flush early. It never calls out: the runtime carries a Plan out, then commits. Batch- and
// lazy-update (ADSM/GMAC paper section 4.3) move whole objects, and are this class with their tables.
//
// Threads: any, also inside the fault path; dirtied(), overwritten() and released() one at a time, which the caller
// sees to. Nothing locks or allocates.
//
// The plan and what it names belong to the caller, the table to nobody. Errors: none; make_protocol() returns nullptr
// for another name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocols/blocks.h"
#include "protocols/plan.h"
#include "protocols/state.h"

namespace hpe {

class Protocol {
public:
    explicit Protocol(const TransitionTable& transitions) noexcept : transitions_(transitions) {}
    virtual ~Protocol() = default;

    // The unit of coherence for an object of this size; `configured` is HPE_BLOCK_SIZE, 0: adaptive. Bytes, a multiple
    // of the page.
    virtual std::size_t block_bytes(std::size_t object_bytes, std::size_t /*configured*/) const noexcept {
        return object_bytes;
    }
    // How much one fault may open, where accesses sweep through the object. Bytes, whole blocks.
    virtual std::size_t reach_bytes(std::size_t object_bytes, std::size_t configured) const noexcept {
        return block_bytes(object_bytes, configured);
    }

    // Whether Acquire moves anything: if not, the runtime skips synchronisation points altogether.
    bool acts_on_acquire() const noexcept { return on(State::Invalid, Event::Acquire).action != Action::Nothing; }

    // One access made neighbouring blocks Dirty; `again`: the accessed block had been evicted since the last release;
    // `allocations`: how many the program has (rolling update adapts its size, paper section 4.3). May ask for
    // evictions: the caller flushes the blocks that the plan names, and reports nothing back.
    virtual void dirtied(RunRef, bool /*again*/, std::size_t /*allocations*/, Plan&) noexcept {}

    // A call has overwritten neighbouring blocks, which are Dirty now. The plan is as of dirtied().
    virtual void overwritten(RunRef run, std::size_t allocations, Plan& plan) noexcept {
        dirtied(run, false, allocations, plan);
    }

    // Every Dirty block was flushed.
    virtual void released() noexcept {}

    Transition on(State state, Event event) const noexcept {
        return transitions_[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
    }

private:
    const TransitionTable& transitions_;
};

// Names that HPE_PROTOCOL takes. rolling_size 0: adaptive. The protocol lives as long as the process.
Protocol* make_protocol(std::string_view name, std::size_t rolling_size);

}  // namespace hpe
