// SPDX-License-Identifier: MIT
// Peer streams, the pipeline of bounce buffers, and the trials that tell which way is faster.
#include "shim/copies/peer_staging.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "shim/base/log.h"
#include "shim/base/spin_lock.h"
#include "shim/copies/crossover.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"
#include "shim/observe/report.h"
#include "shim/observe/trace.h"

namespace hpe::peer_staging {

namespace detail {

constexpr unsigned kBuffers = 4;
constexpr std::size_t kBufferBytes = std::size_t{4} << 20, kBytes = kBuffers * kBufferBytes;

// A stream of libhpe's in the other GPU's context, with its bounce buffers. It follows one stream of the program's at a
// time, and fills the buffers from its own GPU or empties them there; the program's stream does the other.
struct PeerStream {
    bool ready = false;             // all members below are made, and the events tell what was done
    std::atomic<bool> held{false};  // by a copy that is being enqueued
    bool empties = false;
    CUcontext context = nullptr;     // its own
    CUcontext partner = nullptr;     // where the program's stream is; null: the entry is free
    unsigned long long follows = 0;  // the stream that it followed last
    CUstream stream = nullptr;
    CUevent after_own = nullptr;      // recorded in this stream
    CUevent after_program = nullptr;  // recorded in the program's; of the partner
    std::byte* memory = nullptr;
    std::array<CUevent, kBuffers> emptied{};  // of the context that buffers are emptied in
    std::array<bool, kBuffers> filled{};      // at least once: only then the event means anything
};

// Two timing events around one copy.
struct Trial {
    enum class State : unsigned char { Free, Held, Pending };
    std::atomic<State> state{State::Free};
    CUcontext context = nullptr;
    CUevent begin = nullptr, end = nullptr;
    std::size_t bytes = 0;
    Crossover::Way way = Crossover::Way::Driver;
};

constinit std::atomic<unsigned> requests{0};

}  // namespace detail

using namespace detail;

namespace {

// Copies of more pieces fill the device's queue, and to enqueue them may then wait for the device, which may be waiting
// for this thread.
constexpr std::size_t kMostAhead = 128;

struct PeerStreams {
    static constexpr unsigned kMost = 8;

    std::atomic<CUcontext> context{nullptr};
    SpinLock lock;  // guards what follows but not the members of a held peer stream
    std::array<PeerStream, kMost> streams{};
    // Made while the device was at work.
    struct Request {
        CUcontext partner = nullptr;
        bool empties = false;
    } request;
};

constinit ByContext<PeerStreams> all;
constinit Crossover ways;
constinit Trial trial;
constinit std::atomic<unsigned> waits{0};  // while there are requests

std::size_t class_of(std::size_t bytes) noexcept { return std::min(bytes, Crossover::kDecisive); }

// Small ones fill the pipeline sooner, large ones cost less.
std::size_t piece_of(std::size_t bytes) noexcept {
    constexpr std::size_t kPage = 4096, kSmall = std::size_t{1} << 20, kMiddling = std::size_t{2} << 20;
    if (bytes > (std::size_t{64} << 20)) return kBufferBytes;
    return std::clamp(bytes / 8 / kPage * kPage, kSmall, kMiddling);
}

bool make_event(CUcontext context, CUevent& event) noexcept {
    if (event != nullptr) return true;
    ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS &&
        with_retry([&] { return driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); }) == CUDA_SUCCESS) {
        return true;
    }
    event = nullptr;
    return false;
}

// Makes what is missing; what cannot be made now is tried again the next time. A peer stream whose events tell nothing
// can be used again once it has done all its work.
bool make(PeerStream& peer_stream) noexcept {
    const auto context = peer_stream.context;
    ContextScope scope(context);
    if (scope.result() != CUDA_SUCCESS) return false;
    if (peer_stream.stream == nullptr &&
        with_retry([&] { return driver.cuStreamCreateWithPriority(&peer_stream.stream, CU_STREAM_NON_BLOCKING, 0); }) !=
            CUDA_SUCCESS) {
        peer_stream.stream = nullptr;
        return false;
    }
    if (driver.cuStreamQuery(peer_stream.stream) != CUDA_SUCCESS) return false;
    peer_stream.filled = {};
    const auto emptier = peer_stream.empties ? context : peer_stream.partner;
    if (!make_event(context, peer_stream.after_own) || !make_event(peer_stream.partner, peer_stream.after_program) ||
        !std::all_of(peer_stream.emptied.begin(), peer_stream.emptied.end(),
                     [&](CUevent& event) { return make_event(emptier, event); })) {
        return false;
    }
    if (peer_stream.memory == nullptr) {
        if (!pinned::take(kBytes)) return false;
        void* memory = nullptr;
        if (with_retry([&] { return driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE); }) !=
            CUDA_SUCCESS) {
            pinned::give_back(kBytes);
            return false;
        }
        peer_stream.memory = static_cast<std::byte*>(memory);
    }
    log::debug("copies between contexts {} and {} can go through bounce buffers", static_cast<const void*>(context),
               static_cast<const void*>(peer_stream.partner));
    return peer_stream.ready = true;
}

void destroy(CUcontext context, CUevent& event) noexcept {
    if (event == nullptr) return;
    ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS) with_retry([&] { return driver.cuEventDestroy_v2(event); });
    event = nullptr;
}

// One of the peer stream's two contexts ended, with what was made in it. What was made in the other context is
// destroyed, or kept for another partner.
void end(PeerStream& peer_stream, CUcontext context) noexcept {
    const bool own = context == peer_stream.context;
    if (!own) peer_stream.after_program = nullptr;
    destroy(peer_stream.partner, peer_stream.after_program);
    for (auto& event : peer_stream.emptied) {
        if (own == peer_stream.empties) event = nullptr;
        destroy(own ? peer_stream.partner : peer_stream.context, event);
    }
    peer_stream.filled = {};
    peer_stream.partner = nullptr;
    peer_stream.ready = false;
    if (!own) return;
    if (peer_stream.memory != nullptr) pinned::give_back(kBytes);
    peer_stream.memory = nullptr;
    peer_stream.stream = nullptr;
    peer_stream.after_own = nullptr;
}

// The device may still use these, and nothing tells until when: they stay until their context ends.
void lose(PeerStream& peer_stream) noexcept {
    peer_stream.stream = nullptr;
    peer_stream.memory = nullptr;
    peer_stream.after_own = peer_stream.after_program = nullptr;
    peer_stream.emptied = {};
}

// Returns a peer stream, held, or nullptr. With `make_one` it is made if none is free.
PeerStream* take(PeerStreams& peer_streams, CUcontext partner, bool empties, unsigned long long stream,
                 bool make_one) noexcept {
    std::scoped_lock lock(peer_streams.lock);
    const auto fits = [&](const PeerStream& c) {
        return !c.held.load(std::memory_order_acquire) && c.partner == partner && c.empties == empties;
    };
    PeerStream* found = nullptr;
    for (auto& c : peer_streams.streams) {
        if (!fits(c) || !c.ready) continue;
        if (c.follows == stream) {
            found = &c;
            break;
        }
        // A stream that has done all its work can follow any other.
        if (found == nullptr && driver.cuStreamQuery(c.stream) == CUDA_SUCCESS) found = &c;
    }
    if (found == nullptr && make_one) {
        const auto place = std::find_if(peer_streams.streams.begin(), peer_streams.streams.end(),
                                        [&](const PeerStream& c) { return fits(c) || c.partner == nullptr; });
        if (place == peer_streams.streams.end()) return nullptr;
        place->context = peer_streams.context.load(std::memory_order_relaxed);
        place->partner = partner;
        place->empties = empties;
        if (make(*place)) found = place;
    }
    if (found == nullptr) return nullptr;
    found->held.store(true, std::memory_order_relaxed);
    found->follows = stream;
    return found;
}

// False: there is a request already.
bool add_request(PeerStreams& peer_streams, PeerStreams::Request request) noexcept {
    std::scoped_lock lock(peer_streams.lock);
    if (peer_streams.request.partner != nullptr) return false;
    peer_streams.request = request;
    requests.fetch_add(1, std::memory_order_relaxed);
    return true;
}

PeerStreams::Request take_request(PeerStreams& peer_streams) noexcept {
    std::scoped_lock lock(peer_streams.lock);
    if (peer_streams.request.partner != nullptr) requests.fetch_sub(1, std::memory_order_relaxed);
    return std::exchange(peer_streams.request, {});
}

bool change(Trial::State from, Trial::State to) noexcept {
    return trial.state.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

void end_trial() noexcept {
    destroy(trial.context, trial.begin);
    destroy(trial.context, trial.end);
    trial.state.store(Trial::State::Free, std::memory_order_release);
}

// Learns from the last trial, if it has ended.
void learn() noexcept {
    if (!change(Trial::State::Pending, Trial::State::Held)) return;
    ContextScope scope(trial.context);
    const auto ended = scope.result() == CUDA_SUCCESS ? driver.cuEventQuery(trial.end) : scope.result();
    if (ended == CUDA_ERROR_NOT_READY) {
        trial.state.store(Trial::State::Pending, std::memory_order_release);
        return;
    }
    float milliseconds = 0;
    if (ended == CUDA_SUCCESS &&
        with_retry([&] { return driver.cuEventElapsedTime(&milliseconds, trial.begin, trial.end); }) == CUDA_SUCCESS) {
        const auto bytes = class_of(trial.bytes);
        const auto share = static_cast<double>(bytes) / static_cast<double>(trial.bytes);
        ways.took(bytes, trial.way, static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6 * share));
    }
    end_trial();
}

Trial* begin_trial(const Copy& copy, CUcontext context, CUstream stream, Crossover::Way way) noexcept {
    if (!change(Trial::State::Free, Trial::State::Held)) return nullptr;
    trial.context = context;
    trial.bytes = copy.bytes;
    trial.way = way;
    const auto create = [](CUevent& event) {
        const auto result = with_retry([&] { return driver.cuEventCreate(&event, CU_EVENT_DEFAULT); });
        if (result != CUDA_SUCCESS) event = nullptr;
        return result == CUDA_SUCCESS;
    };
    if (create(trial.begin) && create(trial.end) &&
        with_retry([&] { return driver.cuEventRecord(trial.begin, stream); }) == CUDA_SUCCESS) {
        return &trial;
    }
    end_trial();
    return nullptr;
}

// Enqueues one copy in two streams. After a step that fails nothing more is enqueued.
class Pipeline {
public:
    Pipeline(PeerStream& peer_stream, CUstream program) noexcept : peer_stream_(peer_stream), program_(program) {}

    bool run(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept {
        auto& c = peer_stream_;
        const auto filler = c.empties ? program_ : c.stream, emptier = c.empties ? c.stream : program_;
        const auto filled = c.empties ? c.after_program : c.after_own;
        if (!c.empties) {
            in(program_, [&] { record(c.after_program, program_); });
            in(c.stream, [&] { wait(c.stream, c.after_program); });
        }
        const auto piece = piece_of(bytes);
        unsigned buffer = 0;
        for (std::size_t at = 0; at < bytes && ok_; at += piece, buffer = (buffer + 1) % kBuffers) {
            auto* const memory = c.memory + buffer * kBufferBytes;
            const auto size = std::min(piece, bytes - at);
            in(filler, [&] {
                if (c.filled[buffer]) wait(filler, c.emptied[buffer]);
                step([&] { return driver.cuMemcpyDtoHAsync_v2(memory, from + at, size, filler); });
                record(filled, filler);
            });
            in(emptier, [&] {
                wait(emptier, filled);
                step([&] { return driver.cuMemcpyHtoDAsync_v2(to + at, memory, size, emptier); });
                record(c.emptied[buffer], emptier);
            });
            c.filled[buffer] = ok_;
        }
        if (c.empties) in(program_, [&] { wait(program_, c.emptied[(buffer + kBuffers - 1) % kBuffers]); });
        return ok_;
    }

    // After an error: later work of both streams comes after everything that was enqueued in either.
    CUresult join() noexcept {
        auto& c = peer_stream_;
        c.ready = false;
        ok_ = true;
        in(program_, [&] { record(c.after_program, program_); });
        in(c.stream, [&] {
            wait(c.stream, c.after_program);
            record(c.after_own, c.stream);
        });
        in(program_, [&] { wait(program_, c.after_own); });
        if (ok_) return CUDA_SUCCESS;
        ContextScope scope(c.context);
        const auto stream = c.stream;
        lose(c);
        return with_retry([&] { return driver.cuStreamSynchronize(stream); });
    }

private:
    // The program's context is current; for the peer stream its own is made current.
    template <class Steps>
    void in(CUstream stream, Steps&& steps) noexcept {
        if (stream == program_) return steps();
        ContextScope scope(peer_stream_.context);
        ok_ = ok_ && scope.result() == CUDA_SUCCESS;
        steps();
    }
    template <class Call>
    void step(Call&& call) noexcept {
        ok_ = ok_ && with_retry(call) == CUDA_SUCCESS;
    }
    void record(CUevent event, CUstream stream) noexcept {
        step([&] { return driver.cuEventRecord(event, stream); });
    }
    void wait(CUstream stream, CUevent event) noexcept {
        step([&] { return driver.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT); });
    }

    PeerStream& peer_stream_;
    const CUstream program_;
    bool ok_ = true;
};

}  // namespace

Attempt::Attempt(const Copy& copy, Ordered ordered) noexcept : copy_(copy) {
    if (in_flight.capturing_anywhere()) return;
    Inside inside;
    const auto stream = named(copy.stream, copy.flavour);
    const auto context = context_if_current(stream);
    if (context == nullptr || (context != copy.to_context && context != copy.from_context)) return;
    const CaptureRelaxed relaxed;
    learn();
    auto way = ways.choose(class_of(copy.bytes), true);
    const bool measure = ways.measuring(class_of(copy.bytes));
    unsigned long long id = 0;
    if (way == Crossover::Way::Staged &&
        with_retry([&] { return driver.cuStreamGetId(stream, &id); }) == CUDA_SUCCESS &&
        (copy.bytes <= kMostAhead * piece_of(copy.bytes) || in_flight.idle())) {
        const bool empties = context == copy.from_context;
        PeerStreams* peer_streams = all.of(empties ? copy.to_context : copy.from_context);
        if (peer_streams != nullptr) {
            peer_stream_ = take(*peer_streams, context, empties, id, false);
            // The device is asked once whether it is idle; afterwards when the program has waited (make_requested).
            if (peer_stream_ == nullptr && add_request(*peer_streams, {context, empties}) && in_flight.idle()) {
                peer_stream_ = take(*peer_streams, context, empties, id, true);
                if (peer_stream_ != nullptr) take_request(*peer_streams);
            }
        }
    }
    if (peer_stream_ != nullptr) {
        const auto with =
            ordered == Ordered::InStream ? reservations::OrderedWith::Stream : reservations::OrderedWith::Everything;
        reservation_.emplace(stream, Touched{{copy.to, copy.bytes}, {copy.from, copy.bytes}}, with);
        // A capture may have begun while the reservation waited.
        if (!reservation_->held() || in_flight.capturing_anywhere()) {
            reservation_.reset();
            peer_stream_->held.store(false, std::memory_order_release);
            peer_stream_ = nullptr;
        }
    }
    if (peer_stream_ == nullptr) way = Crossover::Way::Driver;
    if (measure) trial_ = begin_trial(copy, context, stream, way);
}

Attempt::~Attempt() {
    if (peer_stream_ != nullptr) peer_stream_->held.store(false, std::memory_order_release);
    if (trial_ == nullptr) return;
    Inside inside;
    end_trial();
}

CUresult Attempt::enqueue(std::size_t begin, std::size_t bytes, bool& made) noexcept {
    Inside inside;
    const CaptureRelaxed relaxed;
    trace::Transfer traced(trace::Kind::Staging, "staged copy between devices", bytes);
    Pipeline pipeline(*peer_stream_, named(copy_.stream, copy_.flavour));
    made = pipeline.run(copy_.to + begin, copy_.from + begin, bytes);
    if (made) {
        report::copy_staged(bytes);
        traced.done();
        return CUDA_SUCCESS;
    }
    // The time of a copy that went both ways tells nothing.
    if (std::exchange(trial_, nullptr) != nullptr) end_trial();
    return pipeline.join();
}

void Attempt::succeeded() noexcept {
    if (trial_ == nullptr) return;
    Inside inside;
    const auto stream = named(copy_.stream, copy_.flavour);
    if (with_retry([&] { return driver.cuEventRecord(trial_->end, stream); }) != CUDA_SUCCESS) return;
    trial_->state.store(Trial::State::Pending, std::memory_order_release);
    trial_ = nullptr;
}

// After 64 attempts only every 64th wait: asking whether the device is idle costs some tens of microseconds.
void detail::make_requested() noexcept {
    const auto turn = waits.fetch_add(1, std::memory_order_relaxed);
    if ((turn >= 64 && turn % 64 != 0) || in_flight.capturing_anywhere()) return;
    Inside inside;
    const CaptureRelaxed relaxed;
    if (!in_flight.idle_after_wait()) return;
    for (auto& peer_streams : all) {
        const auto request = take_request(peer_streams);
        if (request.partner == nullptr) continue;
        if (PeerStream* made = take(peer_streams, request.partner, request.empties, 0, true)) {
            made->held.store(false, std::memory_order_release);
        }
    }
}

void forget(CUcontext context) noexcept {
    // Its events went with it; a trial that another thread holds is another context's.
    if (change(Trial::State::Pending, Trial::State::Held)) {
        const bool gone = trial.context == context;
        if (gone) trial.begin = trial.end = nullptr;
        trial.state.store(gone ? Trial::State::Free : Trial::State::Pending, std::memory_order_release);
    }
    for (auto& peer_streams : all) {
        const auto owner = peer_streams.context.load(std::memory_order_acquire);
        std::scoped_lock lock(peer_streams.lock);
        if (peer_streams.request.partner != nullptr && (owner == context || peer_streams.request.partner == context)) {
            peer_streams.request = {};
            requests.fetch_sub(1, std::memory_order_relaxed);
        }
        for (auto& peer_stream : peer_streams.streams) {
            if (peer_stream.context == context || peer_stream.partner == context) end(peer_stream, context);
        }
    }
}

}  // namespace hpe::peer_staging
