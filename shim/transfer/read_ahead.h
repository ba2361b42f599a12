// SPDX-License-Identifier: MIT
// Blocks fetched before the CPU asks for them: while it works through what it has, the next of its sweep are on their
// way into the view, or, as long as that is not pinned, into memory beside it (Parking). Nobody sees them there before
// a fault makes them valid, and they are good only if the device has been given no work since they were sent for.
//
// A block that is sent for is marked, Block::expected(), under its lock. As long as the mark is there the transfer may
// be under way: who wants to make such a block valid in another way, or to free it, ends the transfer first.
//
// Threads: any, also inside the fault path. start() as a fault in the room, with all device work waited for; the others
// anywhere but in a host callback. Objects are borrowed for a call; streams and events belong to the context.
//
// Errors: only that the end of a transfer could not be waited for; its bytes may then still arrive. A transfer that
// cannot be begun is not made.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "protocols/object.h"
#include "protocols/sweeps.h"

namespace hpe::read_ahead {

// Once, before anything else (HPE_READ_AHEAD).
void configure(bool on) noexcept;
bool on() noexcept;

// Sends for the blocks of the stretch: locked by the caller, not valid on the host, not expected. `work` is
// InFlight::work() of this moment. Fewer, or none, where memory to park them is missing.
void start(Object& object, const Stretch& stretch, std::uint64_t work) noexcept;

// Instead of InFlight::work(), which is never 0: while device work is under way nothing that was sent for is of use.
constexpr std::uint64_t kNothing = 0;

// No transfer to the blocks [first, first + count), locked by the caller, is under way on return. Those still marked
// then are in the view as the device has them, given that `work` is InFlight::work() of this moment; with kNothing none
// is marked. Who takes the mark of a block away (Block::take_expected) may make it valid, or calls wasted().
CUresult settle(Object& object, std::uint32_t first, std::uint32_t count, std::uint64_t work) noexcept;

// What a block that was marked turned out to be.
void used(Object& object, std::uint32_t block) noexcept;
void wasted(Object& object, std::uint32_t block) noexcept;

// No transfer to the object is under way on return, and no block is marked. Nobody starts one meanwhile.
CUresult drop(Object& object) noexcept;

// The context's streams and events died with it.
void forget(CUcontext context) noexcept;

}  // namespace hpe::read_ahead
