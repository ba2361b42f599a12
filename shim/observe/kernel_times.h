// SPDX-License-Identifier: MIT
// When kernels ran, for the timeline: a pair of timing events around a launch. The number of pairs is bounded, and they
// are reused. They are queried where the program waits anyway, and never waited for. The device's clock is mapped to
// the host's by one reference event per context, renewed every few seconds.
//
// All of this takes at most a three-hundredth of the time that has passed: the time of the driver calls is measured,
// the cost of the events on the device is assumed. Launches beyond that budget have no times, nor have those where
// events must not be recorded (captures, host callbacks, other contexts than the current one): their calls say so
// (trace.h).
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

// From these ticks on the next launch may have times; every cost moves it later. 0: no launch has had times yet.
inline constinit std::atomic<std::uint64_t> affordable_from{0};

// One launch, from just before the true call to just after it. Made for speed where the launch gets no times.
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

    struct Pair* pair_ = nullptr;  // what follows is of such a launch alone
    struct Context* context_;
    std::uint64_t ended_, issued_;
    CUevent end_;
    CUstream stream_;
};

// The program waited: kernels may have ended.
void collect() noexcept;

// A context is about to end; has ended; stayed after all.
void ending(CUcontext context) noexcept;
void forget(CUcontext context) noexcept;
void stayed(CUcontext context) noexcept;

// Launches that had events, but whose times never became known.
std::uint64_t lost() noexcept;

}  // namespace hpe::kernel_times
