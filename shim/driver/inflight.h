// SPDX-License-Identifier: MIT
// Which streams hold device work that the program has not been seen to wait for.
//
// A launch costs one counter here. Events are recorded only when a CPU access has to wait: on each stream with work
// outstanding, and waited for one by one on the host, so that no stream is held up.
//
// Threads: any. wait() may run inside the fault path; it takes only locks of its own.
//
// Streams and contexts are the program's. Errors: only wait() returns one; a stream that cannot be asked counts as
// having work outstanding.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "shim/base/launch_gate.h"

namespace hpe {

// How the program's entry point reads stream 0 (cuda.h: CUDA_API_PER_THREAD_DEFAULT_STREAM).
enum class Flavour : std::uint8_t { Legacy, PerThread };

// The stream by the name that every entry point reads alike.
inline CUstream named(CUstream stream, Flavour flavour) noexcept {
    if (stream != nullptr) return stream;
    return flavour == Flavour::PerThread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}
// Of a stream by that name; nullptr if it is not the current one.
CUcontext context_if_current(CUstream stream) noexcept;
// Whether its work is ordered with that in the legacy stream of its context; true where that cannot be told.
bool is_blocking(CUstream stream) noexcept;

class InFlight {
public:
    // The program put work into the stream: after the true call, and before the gate is left if it was entered, with
    // the slot held there.
    [[gnu::hot]] void enqueued(CUstream stream, Flavour flavour, unsigned slot = LaunchGate::kNoSlot) noexcept;

    // Work of any kind enqueued so far, by any thread: moves with every enqueued(). Adds up the streams: not for
    // launches.
    std::uint64_t work() const noexcept;

    // Waits until everything enqueued before the call has finished. The first error is returned, all the same after
    // trying every stream. Called without block locks, outside host callbacks.
    CUresult wait() noexcept { return wait_until(std::chrono::steady_clock::time_point::max()); }
    // CUDA_ERROR_NOT_READY: some has not by then.
    CUresult wait_until(std::chrono::steady_clock::time_point end) noexcept;
    // Whether nothing is outstanding, as far as events tell without waiting.
    bool idle() noexcept;
    // The same after the program has waited, with the patience that the device needs to say so: events recorded only
    // now in streams that have nothing else to do take some microseconds.
    bool idle_after_wait() noexcept;
    // Whether no other stream than this one (Mark::record) has work outstanding, as far as work was seen to end. Asks
    // no stream: one that is full would not answer, and asking a captured one would end its capture.
    bool idle_except(const void* stream) const noexcept;

    // Whether work in the stream may be ordered with that in the context's legacy stream. For a stream that is another
    // thread's, and may go at any moment: the driver is not asked.
    bool blocks_legacy(CUstream stream, CUcontext context) const noexcept;

    // The program waited for a stream, or for a whole context: what was enqueued before `before` has finished.
    // Take the mark before the true call.
    struct Mark {
        void* record;  // nullptr: of a stream that shares its own with others
        std::uint64_t count;
    };
    Mark mark(CUstream stream, Flavour flavour) noexcept;
    void finished(const Mark& mark) noexcept;
    static constexpr unsigned kMaxMarks = 64;
    // All streams of the current context. Returns how many were written (never more than kMaxMarks).
    unsigned mark_context(Mark* marks) noexcept;

    // The stream is about to be destroyed or captured: remember its work in an event, since it can't be asked later.
    void snapshot(CUstream stream, Flavour flavour) noexcept;
    void snapshot_all() noexcept;
    void destroyed(CUstream stream) noexcept;
    // A context and all that is in it is gone.
    void forget(CUcontext context) noexcept;

    // Captures that are under way, by the streams they began with, so that nothing of ours enters them. A stream that
    // is destroyed, or goes with its context, is captured no more. Told before the snapshot of all: what is enqueued in
    // a thread's own default stream from then on can be waited for without the legacy stream.
    void capture_began(CUstream origin, Flavour flavour) noexcept;
    void capture_ended(CUstream origin, Flavour flavour) noexcept;  // of a stream that no capture began with: nothing
    bool capturing_anywhere() const noexcept { return captures_.load(std::memory_order_relaxed) > 0; }
    bool capturing(CUstream stream, Flavour flavour) const noexcept {
        return capturing_anywhere() && captured(stream, flavour);
    }

private:
    bool captured(CUstream stream, Flavour flavour) const noexcept;

    LaunchCount unrecorded_;  // work in streams that could not be told apart
    std::atomic<int> captures_{0};
};

extern constinit InFlight in_flight;

// The library's own driver calls must not count as the program's, which some captures of streams forbid on every thread
// (cuda.h: cuThreadExchangeStreamCaptureMode). Whether there is a capture now says nothing: another thread may begin
// one at any moment.
class CaptureRelaxed {
public:
    CaptureRelaxed() noexcept;
    ~CaptureRelaxed();
    CaptureRelaxed(const CaptureRelaxed&) = delete;
    CaptureRelaxed& operator=(const CaptureRelaxed&) = delete;
    bool sure() const noexcept { return exchanged_; }

private:
    bool exchanged_ = false;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace hpe
