// SPDX-License-Identifier: MIT
// When kernels ran, for the timeline: a pair of timing events around a launch, of a bounded number that are used again
// and again, asked for where the program waits anyway and never waited for. The device's clock is mapped to the host's
// by one reference event per context, renewed every few seconds.
//
// All of it never takes more than a three-hundredth of the time that has passed: what the driver calls take is
// measured, what the events cost the device is assumed. Launches for which nothing is left, and those where events must
// not be (captures, host callbacks, other contexts than the current one), have no times: their calls say so (trace.h).
//
// Only while a timeline is recorded. Threads: any, outside the fault path. Errors: none are told; after one that says
// that the context is lost nothing more is done in it. Contexts and streams are the program's.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "shim/driver/inflight.h"

namespace hpe::kernel_times {

// How default streams appear in records.
constexpr std::uint64_t kDefaultStream = 0;

// The ticks from which on one more launch may be given times; every payment puts it off. 0: none was given any yet.
inline constinit std::atomic<std::uint64_t> affordable_from{0};

// One launch, from just before the true call to just after it. Most have no times, and that is what they cost.
class Launch {
public:
    // `function` names it; nullptr: a graph. `now`: ticks, when the program's call began.
    Launch(CUstream stream, Flavour flavour, CUfunction function, std::uint64_t now) noexcept {
        if (now >= affordable_from.load(std::memory_order_relaxed)) [[unlikely]] {
            begin(stream, flavour, function, now);
        }
    }
    bool has_times() const noexcept { return pair_ != nullptr; }
    void launched(CUresult result) noexcept {
        if (pair_ != nullptr) [[unlikely]] {
            end(result);
        }
    }

private:
    [[gnu::cold]] void begin(CUstream stream, Flavour flavour, CUfunction function, std::uint64_t now) noexcept;
    [[gnu::cold]] void end(CUresult result) noexcept;

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

// How many launches had their events in vain: their times were never known.
std::uint64_t lost() noexcept;

}  // namespace hpe::kernel_times
