// SPDX-License-Identifier: MIT
// One record per stream that ever had work; looked up by a cache per thread, then by a list.
#include "shim/driver/inflight.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <vector>

#include "shim/base/flag.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/spin_lock.h"
#include "shim/base/waiting.h"
#include "shim/driver/driver.h"

namespace hpe {

constinit InFlight in_flight;

namespace {

using Clock = std::chrono::steady_clock;

struct Record {
    CUcontext context = nullptr;
    std::atomic<CUstream> stream{nullptr};  // kGone once destroyed; kOwn
    std::atomic<std::uint64_t> owner{0};    // of kOwn: the thread's number
    std::atomic<bool> blocking{true};       // ordered with the legacy stream
    std::atomic<bool> messages{false};      // a communication library's
    LaunchCount enqueued;
    std::atomic<std::uint64_t> finished{0};
    Record* next = nullptr;

    SpinLock lock;  // also of the event itself
    CUevent event HPE_GUARDED_BY(lock) = nullptr;
    std::uint64_t recorded HPE_GUARDED_BY(lock) = 0;  // the event covers this much of `enqueued`

    bool outstanding() const noexcept { return finished.load(std::memory_order_acquire) < enqueued.sum(); }
    void settle(std::uint64_t count) noexcept {
        auto seen = finished.load(std::memory_order_relaxed);
        while (seen < count && !finished.compare_exchange_weak(seen, count, std::memory_order_release)) {
        }
    }
};

const CUstream kGone = reinterpret_cast<CUstream>(~std::uintptr_t{0});
// A thread's own default stream while something is captured. The legacy stream may take no event then, and no other
// thread has a name for this stream: so each launch records an event.
const CUstream kOwn = reinterpret_cast<CUstream>(~std::uintptr_t{1});
bool can_be_asked(CUstream stream) noexcept { return stream != kGone && stream != kOwn; }

HPE_READ_OFTEN constinit std::atomic<Record*> records{nullptr};
constinit Mutex records_mutex;                        // adding and reusing records; captures
constinit std::atomic<std::uint64_t> cache_epoch{1};  // changes when a record comes to stand for another stream

struct Cache {
    std::uint64_t epoch;
    CUcontext context;
    CUstream stream;
    Record* record;
};
thread_local constinit Cache cache __attribute__((tls_model("initial-exec"))){0, nullptr, nullptr, nullptr};

constinit std::atomic<std::uint64_t> owners{0};
thread_local constinit std::uint64_t this_owner __attribute__((tls_model("initial-exec"))) = 0;

// The default streams of a context share one record. An event on the legacy stream comes after the work of all blocking
// streams of the context, and every thread's own default stream is one of those (CUDA programming guide, "Default
// stream"). The handle of a thread's own default stream would mean the stream of the thread that uses the handle.
CUstream normal(CUstream stream) noexcept {
    return stream == CU_STREAM_PER_THREAD || stream == nullptr ? CU_STREAM_LEGACY : stream;
}

struct Capture {
    CUcontext context;
    CUstream origin;
};
std::vector<Capture>& captures() HPE_REQUIRES(records_mutex) {
    static NeverDestroyed<std::vector<Capture>> all;
    return *all;
}

// nullptr: the driver did not tell.
CUcontext context_of(CUstream stream) noexcept {
    CUcontext context = nullptr;
    const bool of_default = normal(stream) == CU_STREAM_LEGACY;
    const auto asked = of_default ? driver.cuCtxGetCurrent(&context) : driver.cuStreamGetCtx(stream, &context);
    return asked == CUDA_SUCCESS ? context : nullptr;
}

Record* find(CUcontext context, CUstream stream) noexcept {
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r->stream.load(std::memory_order_acquire) == stream && r->context == context) return r;
    }
    return nullptr;
}

// Reuses a record whose stream cannot be asked and that has nothing outstanding, or makes one. nullptr: no memory.
Record* new_record(CUcontext context, CUstream stream, bool blocking, std::uint64_t owner) noexcept
    HPE_REQUIRES(records_mutex) {
    const auto become = [&](Record& r) {
        r.owner.store(owner, std::memory_order_relaxed);
        r.blocking.store(blocking, std::memory_order_relaxed);
        r.messages.store(false, std::memory_order_relaxed);
        r.stream.store(stream, std::memory_order_release);
    };
    for (auto* r = records.load(std::memory_order_relaxed); r != nullptr; r = r->next) {
        const auto free = [&] { return !can_be_asked(r->stream.load(std::memory_order_relaxed)) && !r->outstanding(); };
        if (r->context != context || !free()) continue;
        if (!r->lock.try_lock()) continue;  // its owner is using it right now
        const Locked lock(r->lock, std::adopt_lock);
        if (!free()) continue;
        become(*r);
        return r;
    }
    auto* record = new (std::nothrow) Record;
    if (record == nullptr) return nullptr;
    record->context = context;
    become(*record);
    record->next = records.load(std::memory_order_relaxed);
    records.store(record, std::memory_order_release);
    return record;
}

Record* record_for(CUstream given) noexcept {
    const auto stream = normal(given);
    CUcontext context = nullptr;
    if (stream == CU_STREAM_LEGACY && driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
        return nullptr;
    }
    const auto epoch = cache_epoch.load(std::memory_order_acquire);
    if (cache.epoch == epoch && cache.stream == stream && (stream != CU_STREAM_LEGACY || cache.context == context)) {
        return cache.record;
    }
    if (stream != CU_STREAM_LEGACY && driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
        return nullptr;
    }
    if (context == nullptr) return nullptr;
    Record* record = find(context, stream);
    if (record == nullptr) {
        const bool blocking = is_blocking(stream);
        const Locked lock(records_mutex);
        record = find(context, stream);
        if (record == nullptr) record = new_record(context, stream, blocking, 0);
        if (record == nullptr) return nullptr;
    }
    cache = {epoch, context, stream, record};
    return record;
}

// Whether the stream itself says that it has work, before an event is recorded: a full stream would keep that call.
// Asked only where nothing is captured, since to ask ends a capture; one that begins meanwhile waits for the record's
// lock.
bool is_busy(const Record& r) noexcept HPE_REQUIRES(r.lock) {
    const auto stream = r.stream.load(std::memory_order_acquire);
    return r.recorded < r.enqueued.sum() && can_be_asked(stream) && !in_flight.capturing_anywhere() &&
           driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

// Records the event so that it covers everything enqueued by now. The record is locked, its context current.
CUresult cover(Record& r) noexcept HPE_REQUIRES(r.lock) {
    const auto stream = r.stream.load(std::memory_order_acquire);
    const auto target = r.enqueued.sum();
    if (r.recorded >= target || !can_be_asked(stream)) return CUDA_SUCCESS;
    if (in_flight.capturing_anywhere()) {
        // A captured stream would take the event into the graph; for the legacy stream the driver says so by an error.
        // Another error says nothing of the stream, whose work is then to be waited for.
        auto status = CU_STREAM_CAPTURE_STATUS_NONE;
        const auto asked = driver.cuStreamIsCapturing(stream, &status);
        if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return CUDA_SUCCESS;
        if (asked != CUDA_SUCCESS) return asked;
        if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
    }
    const auto result = record(r.event, stream);
    if (result == CUDA_SUCCESS) r.recorded = target;
    return result;
}

// The same for a stream that cannot be asked later: if no event can be recorded, waits for its work now.
void cover_or_wait(Record& r) noexcept HPE_REQUIRES(r.lock) {
    const auto target = r.enqueued.sum();
    if (cover(r) == CUDA_SUCCESS) return;
    const auto stream = r.stream.load(std::memory_order_acquire);
    if (driver.cuStreamSynchronize(stream) == CUDA_SUCCESS) r.settle(target);
}

// The same from wherever, if there is any.
void cover_outstanding(Record& r) noexcept {
    if (!r.outstanding()) return;
    const Locked lock(r.lock);
    ContextScope scope(r.context);
    CaptureRelaxed relaxed;
    if (scope.result() == CUDA_SUCCESS) cover_or_wait(r);
}

// Counts work of this thread's own default stream, with an event after it. False: the event could not be recorded.
bool enqueued_in_own(unsigned slot) noexcept {
    CUcontext context = context_of(CU_STREAM_PER_THREAD);
    if (context == nullptr) return false;
    if (this_owner == 0) this_owner = owners.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto is_own = [&](const Record& r) {
        return r.stream.load(std::memory_order_acquire) == kOwn &&
               r.owner.load(std::memory_order_relaxed) == this_owner && r.context == context;
    };
    for (;;) {
        auto* r = records.load(std::memory_order_acquire);
        while (r != nullptr && !is_own(*r)) r = r->next;
        if (r == nullptr) {
            const Locked lock(records_mutex);
            r = new_record(context, kOwn, true, this_owner);
            if (r == nullptr) return false;
        }
        const Locked lock(r->lock);
        if (!is_own(*r)) continue;  // the record had nothing outstanding and was reused for another stream
        const CaptureRelaxed relaxed;
        if (record(r->event, CU_STREAM_PER_THREAD) != CUDA_SUCCESS) return false;
        r->enqueued.add(slot);
        r->recorded = r->enqueued.sum();
        return true;
    }
}

constexpr std::chrono::microseconds kNap{20};

// CUDA_ERROR_NOT_READY: the event has not completed by then.
CUresult wait_for_event(CUevent event, Clock::time_point end) noexcept {
    if (end == Clock::time_point::max()) return driver.cuEventSynchronize(event);
    for (;;) {
        const auto result = driver.cuEventQuery(event);
        if (result != CUDA_ERROR_NOT_READY || Clock::now() >= end) return result;
        nap(kNap);
    }
}

CUresult wait_for(Record& r, Clock::time_point end) noexcept {
    Locked lock(r.lock);
    if (!r.outstanding()) return CUDA_SUCCESS;
    ContextScope scope(r.context);
    // This error says nothing of the work: only a wait can tell that the context is lost.
    if (scope.result() != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    CaptureRelaxed relaxed;
    // Who may not wait longer asks the stream until then: a full one would keep the recording of an event.
    while (end != Clock::time_point::max() && is_busy(r)) {
        if (Clock::now() >= end) return CUDA_ERROR_NOT_READY;
        lock.unlock();
        nap(kNap);
        lock.lock();
    }
    auto result = cover(r);
    const auto covered = r.recorded;
    if (result == CUDA_SUCCESS && r.event != nullptr && covered > r.finished.load(std::memory_order_relaxed)) {
        // Unlocked: another thread that wants the record must not wait for the device, which may be waiting for that
        // thread. The event may be recorded again meanwhile: then it covers more.
        const auto event = r.event;
        lock.unlock();
        result = wait_for_event(event, end);
        if (result == CUDA_ERROR_NOT_READY) return result;
        lock.lock();
        if (!r.outstanding()) return CUDA_SUCCESS;  // its context ended, or another thread saw the work end
    }
    if (result == CUDA_SUCCESS) {
        r.settle(covered);
        return result;
    }
    // The event could not be recorded, or not be waited for. The stream itself is asked, or its context if the stream
    // is gone: a single error may look like a lost context, so both calls have to fail.
    const auto stream = r.stream.load(std::memory_order_acquire);
    const auto target = r.enqueued.sum();
    result = can_be_asked(stream) ? driver.cuStreamSynchronize(stream) : driver.cuCtxSynchronize();
    if (result == CUDA_SUCCESS) r.settle(target);
    return result;
}

}  // namespace

bool is_blocking(CUstream stream) noexcept {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return true;
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    // The next call would end the capture of a captured stream.
    if (in_flight.capturing_anywhere() &&
        (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)) {
        return true;
    }
    unsigned flags = 0;
    return driver.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || (flags & CU_STREAM_NON_BLOCKING) == 0;
}

CUcontext context_if_current(CUstream stream) noexcept {
    CUcontext streams = nullptr;
    const auto current = current_context();
    if (current == nullptr) return nullptr;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return current;
    return driver.cuStreamGetCtx(stream, &streams) == CUDA_SUCCESS && streams == current ? current : nullptr;
}

void InFlight::enqueued(CUstream stream, Flavour flavour, unsigned slot) noexcept {
    const bool own = named(stream, flavour) == CU_STREAM_PER_THREAD;
    const auto beside_capture = [&] { return own && capturing_anywhere() && enqueued_in_own(slot); };
    if (beside_capture()) return;
    Record* r = record_for(stream);
    (r != nullptr ? r->enqueued : unrecorded_).add(slot);
    // Looks again: a capture that began meanwhile may not have waited until this work was counted (begin_capture).
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (own && capturing_anywhere()) r = beside_capture() ? r : nullptr;
    if (r != nullptr) return;
    // No record: nothing would wait for this work later.
    const CaptureRelaxed relaxed;
    driver.cuStreamSynchronize(named(stream, flavour));
}

std::uint64_t InFlight::work() const noexcept {
    auto sum = 1 + unrecorded_.sum();  // never 0, which Object::birth uses for "unknown"
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        sum += r->enqueued.sum();
    }
    return sum;
}

CUresult InFlight::wait_until(Clock::time_point end) noexcept { return wait_for_records(end, true); }

void InFlight::carries_messages(CUstream stream) noexcept {
    if (Record* const r = record_for(stream)) r->messages.store(true, std::memory_order_relaxed);
}

CUresult InFlight::wait_but_for_messages() noexcept { return wait_for_records(Clock::time_point::max(), false); }

bool InFlight::only_messages() const noexcept {
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r->outstanding() && !r->messages.load(std::memory_order_relaxed)) return false;
    }
    return true;
}

CUresult InFlight::wait_for_records(Clock::time_point end, bool of_messages) noexcept {
    auto first = CUDA_SUCCESS;
    // The legacy streams last: an event in one comes after the work of all blocking streams, and holds up what is
    // enqueued in these behind it.
    for (const bool legacy : {false, true}) {
        for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
            if (!r->outstanding() || (r->stream.load(std::memory_order_acquire) == CU_STREAM_LEGACY) != legacy)
                continue;
            if (!of_messages && r->messages.load(std::memory_order_relaxed)) continue;
            const auto result = wait_for(*r, end);
            // NOT_READY comes before all errors: the work is still under way.
            if (first == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) first = result;
            if (result == CUDA_ERROR_NOT_READY) return result;
        }
    }
    return first;
}

bool InFlight::idle(const void* but_for) noexcept {
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r == but_for || !r->outstanding()) continue;
        // Not waited for: the lock's holder may be waiting for the device, and the device for this thread.
        if (!r->lock.try_lock()) return false;
        const Locked lock(r->lock, std::adopt_lock);
        ContextScope scope(r->context);
        CaptureRelaxed relaxed;
        const auto target = r->enqueued.sum();
        if (scope.result() != CUDA_SUCCESS || is_busy(*r) || cover(*r) != CUDA_SUCCESS || r->recorded < target ||
            driver.cuEventQuery(r->event) != CUDA_SUCCESS) {
            return false;
        }
        r->settle(target);
    }
    return true;
}

bool InFlight::idle_after_wait() noexcept {
    constexpr std::chrono::microseconds kPatience{20};
    for (const auto end = Clock::now() + kPatience; !idle();) {
        if (Clock::now() >= end) return false;
    }
    return true;
}

bool InFlight::idle_except(const void* stream) const noexcept {
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r != stream && r->outstanding()) return false;
    }
    return true;
}

bool InFlight::blocks_legacy(CUstream stream, CUcontext context) const noexcept {
    if (normal(stream) == CU_STREAM_LEGACY) return true;
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r->stream.load(std::memory_order_acquire) == stream) return r->context == context && r->blocking;
    }
    return true;
}

InFlight::Mark InFlight::mark(CUstream stream, Flavour flavour) noexcept {
    // The legacy record also stands for every thread's own default stream: a wait for one of those says nothing of the
    // others.
    Record* r = named(stream, flavour) == CU_STREAM_PER_THREAD ? nullptr : record_for(stream);
    return {r, r == nullptr ? 0 : r->enqueued.sum()};
}

void InFlight::finished(const Mark& mark) noexcept {
    if (mark.record != nullptr) static_cast<Record*>(mark.record)->settle(mark.count);
}

unsigned InFlight::mark_context(Mark* marks) noexcept {
    const auto context = current_context();
    if (context == nullptr) return 0;
    unsigned count = 0;
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr && count < kMaxMarks; r = r->next) {
        if (r->context == context) marks[count++] = {r, r->enqueued.sum()};
    }
    return count;
}

void InFlight::snapshot(CUstream stream) noexcept {
    if (Record* const r = record_for(stream)) cover_outstanding(*r);
}

void InFlight::snapshot_all() noexcept {
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) cover_outstanding(*r);
}

void InFlight::destroyed(CUstream stream) noexcept {
    CUcontext context = nullptr;
    if (driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return;
    Record* r = find(context, stream);
    if (r == nullptr) return;
    cover_outstanding(*r);
    {
        const Locked lock(r->lock);
        r->stream.store(kGone, std::memory_order_release);
    }
    cache_epoch.fetch_add(1, std::memory_order_release);
}

void InFlight::forget(CUcontext context) noexcept {
    const Locked lock(records_mutex);
    const auto gone = std::erase_if(captures(), [&](const Capture& c) { return c.context == context; });
    captures_.fetch_sub(static_cast<int>(gone), std::memory_order_relaxed);
    for (auto* r = records.load(std::memory_order_acquire); r != nullptr; r = r->next) {
        if (r->context != context) continue;
        const Locked hold(r->lock);
        r->stream.store(kGone, std::memory_order_release);
        r->settle(r->enqueued.sum());
        r->event = nullptr;  // went with the context
        r->recorded = r->enqueued.sum();
    }
    cache_epoch.fetch_add(1, std::memory_order_release);
}

void InFlight::capture_began(CUstream origin, Flavour flavour) {
    const Capture begun{context_of(named(origin, flavour)), named(origin, flavour)};
    const Locked lock(records_mutex);
    captures().push_back(begun);
    captures_.fetch_add(1, std::memory_order_relaxed);
}

void InFlight::capture_ended(CUstream origin, Flavour flavour) noexcept {
    const auto stream = named(origin, flavour);
    // Default streams of several contexts have the same name. Of other streams the driver is not asked: they may be
    // gone.
    const auto context = normal(stream) == CU_STREAM_LEGACY ? context_of(stream) : nullptr;
    const auto same = [&](const Capture& c) {
        return c.origin == stream && (context == nullptr || c.context == nullptr || c.context == context);
    };
    const Locked lock(records_mutex);
    auto& all = captures();
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) return;
    all.erase(found);
    captures_.fetch_sub(1, std::memory_order_relaxed);
}

bool InFlight::captured(CUstream stream, Flavour flavour) const noexcept {
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(named(stream, flavour), &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CaptureRelaxed::CaptureRelaxed() noexcept {
    exchanged_ = driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

CaptureRelaxed::~CaptureRelaxed() {
    if (exchanged_) driver.cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace hpe
