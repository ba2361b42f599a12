// SPDX-License-Identifier: MIT
// When kernels ran, for the timeline: a pair of timing events around a launch, of a bounded number that are used again
// and again, asked for where the program waits anyway and never waited for. The device's clock is mapped to the host's
// by one reference event per context, renewed every few seconds.
//
// All of it never takes more than a three-hundredth of the time that has passed: what the driver calls take is
// measured, what the events cost the device is assumed. Launches for which nothing is left, and those where events must
// not be (captures, host callbacks, other contexts than the current one), have no times, and are counted.
//
// Only while a timeline is recorded. Threads: any, outside the fault path. Errors: none are told; after one that says
// that the context is lost nothing more is done in it. Contexts and streams are the program's.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "shim/runtime/inflight.h"

namespace hpe::kernel_times {

// How default streams appear in records.
constexpr std::uint64_t kDefaultStream = 0;

// One launch, from just before the true call to just after it.
class Launch {
public:
    // `function` names it; nullptr: a graph. `now`: ticks, when the program's call began.
    Launch(CUstream stream, Flavour flavour, CUfunction function, std::uint64_t now) noexcept;
    void launched(CUresult result) noexcept;

private:
    struct Context* context_ = nullptr;
    struct Pair* pair_ = nullptr;
    CUstream stream_ = nullptr;
};

// The program waited for something: kernels may have ended.
void collect() noexcept;

// A context is about to go; it went; it stayed after all.
void ending(CUcontext context) noexcept;
void forget(CUcontext context) noexcept;
void stayed(CUcontext context) noexcept;

// A launch has no times.
void skip() noexcept;
// How many have none.
std::uint64_t skipped() noexcept;

}  // namespace hpe::kernel_times
