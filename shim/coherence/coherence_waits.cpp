// SPDX-License-Identifier: MIT
// Coherence: what a CPU access waits for. Class of this file: that of the fault path.
#include <algorithm>
#include <chrono>

#include "shim/base/helper.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/coherence/launches_blocked.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/trace.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {
constinit LaunchesBlocked launches_blocked;
}

// Waits until no device work that was enqueued before the access is outstanding, and enters the gate, so that no launch
// can come between. Outside the gate while it waits, since a launch of another thread must not wait for a kernel.
// Inside the gate on return. An error: the device may still be writing.
CUresult Coherence::wait_in_order() noexcept {
    using Clock = LaunchesBlocked::Clock;
    const trace::Span span(trace::Kind::Wait, "wait for device work");
    const call_stacks::Waiting waiting;
    // A lost context does nothing any more; the others go on.
    const auto but_lost = [](CUresult result) { return lost_context(result) ? CUDA_SUCCESS : result; };
    constexpr int kPatience = 8;  // attempts, before threads that launch without a pause are blocked
    constexpr std::chrono::milliseconds kShortest{1};
    for (int attempt = 0;; ++attempt) {
        const auto work = in_flight.work();
        const auto begin = Clock::now() - launches_blocked.total();
        const auto waited = but_lost(in_flight.wait());
        const auto took = std::max<Clock::duration>(Clock::now() - launches_blocked.total() - begin, kShortest);
        launch_gate_.enter_fault();
        if (in_flight.work() == work || waited != CUDA_SUCCESS) return waited;
        if (attempt >= kPatience) {
            // For as long as the work took that such threads keep enqueued, and no longer: the device may be waiting
            // for a launch that is blocked here.
            const LaunchesBlocked::Scope blocking(launches_blocked);
            const auto last = but_lost(in_flight.wait_until(Clock::now() + 2 * took));
            if (last != CUDA_ERROR_NOT_READY) return last;
        }
        launch_gate_.leave_fault();
    }
}

// Of a host function, which must not wait in front of the gate. False: not over after a second. An end that is the
// context's last waits for the host function.
bool Coherence::wait_for_ending() const noexcept {
    const auto until = LaunchesBlocked::Clock::now() + std::chrono::seconds(1);
    const auto ended = ends_.load(std::memory_order_acquire);
    while (ending_.load(std::memory_order_acquire) != 0 && ends_.load(std::memory_order_acquire) == ended) {
        if (LaunchesBlocked::Clock::now() > until) return false;
        nap(std::chrono::microseconds(100));
    }
    return true;
}

CUresult Coherence::wait_before_access(bool by_helper) noexcept {
    if (!may_wait_for_device()) return CUDA_SUCCESS;
    auto waited = CUDA_SUCCESS;
    helper::with_driver(by_helper, helper::Kind::Fault, [&] {
        waited = wait_in_order();
        launch_gate_.leave_fault();
    });
    return waited;
}

}  // namespace hpe
