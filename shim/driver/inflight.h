// SPDX-License-Identifier: MIT
// Which streams hold device work that the program has not been seen to wait for.
//
// A launch costs one counter here. Events are recorded only when a CPU access has to wait: on each stream with work
// outstanding, and waited for one by one on the host, so that no stream is held up.
//
// Threads: any. wait() may run inside the fault path; it takes only locks of its own.
//
// Streams and contexts are the program's. Errors: only the waits return one; a stream that cannot be asked counts as
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
// The context of a stream by that name; nullptr if that is not the current context.
CUcontext context_if_current(CUstream stream) noexcept;
// Whether the stream's work is ordered with its context's legacy stream; true where the driver does not tell.
bool is_blocking(CUstream stream) noexcept;

class InFlight {
public:
    // The program put work into the stream. Called after the true call; inside the gate, if the call was made there,
    // with the slot that it holds.
    [[gnu::hot]] void enqueued(CUstream stream, Flavour flavour, unsigned slot = LaunchGate::kNoSlot) noexcept;

    // A counter that increases with every enqueued() of any thread. It adds up all streams: too slow for launches.
    [[gnu::hot]] std::uint64_t work() const noexcept;

    // Waits until everything enqueued before the call has finished. Tries every stream, and returns the first error.
    // Called without block locks, outside host callbacks.
    CUresult wait() noexcept { return wait_until(std::chrono::steady_clock::time_point::max()); }
    // CUDA_ERROR_NOT_READY: some work has not finished by then.
    CUresult wait_until(std::chrono::steady_clock::time_point end) noexcept;

    // The stream is a communication library's own, and has just been made. Its work touches only the bytes of messages
    // under way, which nobody else may use, and the library says when a message is over.
    void carries_messages(CUstream stream) noexcept;
    // wait(), but for such streams: for who uses exactly the bytes that the program names.
    CUresult wait_but_for_messages() noexcept;
    // Whether that would find nothing to wait for. Asks no stream.
    bool only_messages() const noexcept;
    // Whether nothing is outstanding, as far as events tell without waiting; but for one stream's work (Mark::record),
    // if that is given.
    [[gnu::hot]] bool idle(const void* but_for = nullptr) noexcept;
    // The same after the program has waited. Asks for some microseconds: an event takes that long to complete even in a
    // stream that has nothing else to do.
    bool idle_after_wait() noexcept;
    // Whether no other stream than this one (Mark::record) has work outstanding, as far as work was seen to end. Asks
    // no stream: one that is full would not answer, and asking a captured one would end its capture.
    bool idle_except(const void* stream) const noexcept;

    // Whether work in the stream may be ordered with the context's legacy stream. Does not ask the driver: the stream
    // is another thread's, which may destroy it at any moment.
    bool blocks_legacy(CUstream stream, CUcontext context) const noexcept;

    // The program waits for a stream, or for a whole context: mark() before the true call, finished() after it.
    struct Mark {
        void* record;  // nullptr: the stream shares its record with others
        std::uint64_t count;
    };
    Mark mark(CUstream stream, Flavour flavour) noexcept;
    void finished(const Mark& mark) noexcept;
    static constexpr unsigned kMaxMarks = 64;
    // All streams of the current context. Returns how many were written (never more than kMaxMarks).
    unsigned mark_context(Mark* marks) noexcept;

    // The stream is about to be destroyed or captured, and cannot be asked later: records an event after its work.
    void snapshot(CUstream stream) noexcept;
    void snapshot_all() noexcept;
    void destroyed(CUstream stream) noexcept;
    // The context has ended with everything in it.
    void forget(CUcontext context) noexcept;

    // Captures under way, by the streams that they began with, so that nothing of ours enters them. A capture ends when
    // its stream is destroyed or its context ends. capture_began() is called before snapshot_all(): work enqueued in a
    // thread's own default stream from then on can be waited for without the legacy stream.
    void capture_began(CUstream origin, Flavour flavour);           // may throw std::bad_alloc
    void capture_ended(CUstream origin, Flavour flavour) noexcept;  // of a stream that no capture began with: nothing
    bool capturing_anywhere() const noexcept { return captures_.load(std::memory_order_relaxed) > 0; }
    bool capturing(CUstream stream, Flavour flavour) const noexcept {
        return capturing_anywhere() && captured(stream, flavour);
    }

private:
    static CUresult wait_for_records(std::chrono::steady_clock::time_point end, bool of_messages) noexcept;
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
