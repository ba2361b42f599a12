// SPDX-License-Identifier: MIT
// Coherence: what a CPU access waits for. Class of this file: that of the fault path.
#include <algorithm>
#include <chrono>

#include "shim/base/helper.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/trace.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

using Clock = std::chrono::steady_clock;

// For how long faults have blocked launches (kept them out of the gate) to wait for the device. A fault that measures
// how long the device takes subtracts this time: otherwise each fault would block launches for twice as long as the one
// before.
class LaunchesBlocked {
public:
    class Scope {
    public:
        Scope() noexcept { blocked.change(1); }
        ~Scope() { blocked.change(-1); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
    };
    static Clock::duration total() noexcept { return blocked.change(0); }

private:
    Clock::duration change(int by) noexcept {
        const Locked lock(lock_);
        const auto now = Clock::now();
        if (by_ != 0) total_ += now - last_;
        last_ = now;
        by_ += by;
        return total_;
    }
    static LaunchesBlocked blocked;
    SpinLock lock_;
    int by_ HPE_GUARDED_BY(lock_) = 0;  // faults that do so now
    Clock::time_point last_ HPE_GUARDED_BY(lock_);
    Clock::duration total_ HPE_GUARDED_BY(lock_){};  // up to then
};
constinit LaunchesBlocked LaunchesBlocked::blocked;

}  // namespace

// Waits until no device work that was enqueued before the access is outstanding, and enters the gate, so that no launch
// can come between. Outside the gate while it waits, since a launch of another thread must not wait for a kernel.
// Inside the gate on return. An error: the device may still be writing.
CUresult Coherence::wait_in_order() noexcept {
    const trace::Span span(trace::Kind::Wait, "wait for device work");
    const call_stacks::Waiting waiting;
    // A lost context does nothing any more; the others go on.
    const auto but_lost = [](CUresult result) { return lost_context(result) ? CUDA_SUCCESS : result; };
    constexpr int kPatience = 8;  // attempts, before threads that launch without a pause are blocked
    constexpr std::chrono::milliseconds kShortest{1};
    for (int attempt = 0;; ++attempt) {
        const auto work = in_flight.work();
        const auto begin = Clock::now() - LaunchesBlocked::total();
        const auto waited = but_lost(in_flight.wait());
        const auto took = std::max<Clock::duration>(Clock::now() - LaunchesBlocked::total() - begin, kShortest);
        launch_gate_.enter_fault();
        if (in_flight.work() == work || waited != CUDA_SUCCESS) return waited;
        if (attempt >= kPatience) {
            // For as long as the work took that such threads keep enqueued, and no longer: the device may be waiting
            // for a launch that is blocked here.
            const LaunchesBlocked::Scope blocking;
            const auto last = but_lost(in_flight.wait_until(Clock::now() + 2 * took));
            if (last != CUDA_ERROR_NOT_READY) return last;
        }
        launch_gate_.leave_fault();
    }
}

// Of a host function, which must not wait in front of the gate. False: not over after a second. An end that is the
// context's last waits for the host function.
bool Coherence::wait_for_ending() const noexcept {
    const auto until = Clock::now() + std::chrono::seconds(1);
    const auto ended = ends_.load(std::memory_order_acquire);
    while (ending_.load(std::memory_order_acquire) != 0 && ends_.load(std::memory_order_acquire) == ended) {
        if (Clock::now() > until) return false;
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
