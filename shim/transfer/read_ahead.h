// SPDX-License-Identifier: MIT
// Prefetching: while the CPU works on the blocks that it has, the next blocks of its sweep are copied to the view, or,
// as long as the view is not pinned, to pinned memory elsewhere. The program cannot see these bytes before a fault
// makes their blocks valid. They are used only if the device was given no work since the request.
//
// A requested block is marked under its lock (Block::prefetch_requested()). As long as it is marked the transfer may be
// under way: whoever makes such a block valid in another way, or frees it, waits for the transfer first.
//
// Threads: any, also inside the fault path. start() as a fault inside the gate, with all device work waited for; the
// others anywhere but in a host callback. Objects are borrowed for a call; streams and events belong to the context.
//
// Errors: only that the end of a transfer could not be waited for; its bytes may then still arrive. A transfer that
// cannot be begun is not made.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "protocols/sweeps.h"
#include "shim/memory/object.h"

namespace hpe::read_ahead {

// Once, before anything else (HPE_READ_AHEAD).
void configure(bool on) noexcept;
bool on() noexcept;

// Requests the blocks of the stretch, which the caller has locked, and which are neither valid on the host nor
// requested. `work` is InFlight::work() of this moment. Requests fewer, or none, where pinned memory for them is
// missing.
void start(Object& object, const Stretch& stretch, std::uint64_t work) noexcept;

// Instead of InFlight::work(), which is never 0: while device work is under way no prefetched block may be used.
constexpr std::uint64_t kNothing = 0;

// Waits for the transfers to the blocks [first, first + count), which the caller has locked. `work` is InFlight::work()
// of this moment: the bytes of blocks that are still requested on return are in the view, and the device has the same
// ones. With kNothing no block is requested on return. Whoever takes a block's request (Block::take_prefetch_request)
// makes the block valid, or calls wasted().
CUresult settle(Object& object, std::uint32_t first, std::uint32_t count, std::uint64_t work) noexcept;

// Counts a block that was prefetched.
void used(Object& object, std::uint32_t block) noexcept;
void wasted(Object& object, std::uint32_t block) noexcept;

// Waits for the transfers to the object and drops its requests. Nobody may start one meanwhile.
CUresult drop(Object& object) noexcept;

// The context's streams and events died with it.
void forget(CUcontext context) noexcept;

}  // namespace hpe::read_ahead
