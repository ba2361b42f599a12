// SPDX-License-Identifier: MIT
// One pool of buffers per context, and the two loops that keep buffers, helpers and the device busy.
#include "shim/transfer/staging.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "shim/base/machine.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"
#include "shim/observe/trace.h"
#include "shim/transfer/pieces.h"

namespace hpe::staging {

struct Pool {
    static constexpr unsigned kMost = 128;

    SpinLock lock;
    // Those that are held are their holders' alone.
    std::array<BounceBuffer, kMost> buffers HPE_GUARDED_BY(lock){};
    std::array<bool, kMost> held HPE_GUARDED_BY(lock){};
    unsigned count HPE_GUARDED_BY(lock) = 0;
    std::atomic<bool> met{false};  // helpers were placed near its device
    CUstream to_device = nullptr, to_host = nullptr;
};

namespace {

// The smallest copy in the fault path for which helpers are used: most of its memory has never been touched.
constexpr std::size_t kWorthATeam = std::size_t{512} << 10;

constinit ByContext<Pool> pools;
constinit std::size_t buffer_bytes = std::size_t{4} << 20;
constinit unsigned wanted_helpers = 0;
constinit bool fixed_helpers = false;       // the number is the user's
constinit std::atomic<unsigned> active{0};  // copies under way
constinit std::atomic<std::size_t> bytes_in_pools{0};

// Adds up to `more` buffers. The pool is locked, its context current.
void grow(Pool& pool, unsigned more) noexcept HPE_REQUIRES(pool.lock) {
    more = std::min(more, Pool::kMost - pool.count);
    const trace::Span span(trace::Kind::Setup, "bounce buffers", more * buffer_bytes);
    if (make_stream(pool.to_device) != CUDA_SUCCESS || make_stream(pool.to_host) != CUDA_SUCCESS) return;
    unsigned granted = 0;
    while (granted < more && pinned::take(buffer_bytes)) ++granted;
    if (granted == 0) return;
    void* memory = nullptr;
    const auto bytes = granted * buffer_bytes;
    if (driver.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
        pinned::give_back(bytes);
        return;
    }
    for (unsigned i = 0; i < granted; ++i) {
        BounceBuffer& buffer = pool.buffers[pool.count];
        buffer = {};
        buffer.memory = static_cast<std::byte*>(memory) + i * buffer_bytes;
        buffer.broken = make_event(buffer.event) != CUDA_SUCCESS;
        pool.held[pool.count++] = false;
    }
    bytes_in_pools.fetch_add(bytes, std::memory_order_relaxed);
}

// Whether the buffer may be written. With `wait` it waits, and returns false only on an error. Without, a query that
// fails returns false like "not yet": it must not wait, since the device may be waiting for this thread.
bool is_free(BounceBuffer& buffer, bool wait, CUresult& result) noexcept {
    if (!buffer.in_flight) return true;
    const auto said = wait ? driver.cuEventSynchronize(buffer.event) : driver.cuEventQuery(buffer.event);
    if (said == CUDA_SUCCESS) {
        buffer.in_flight = false;
        return true;
    }
    if (wait) {
        buffer.broken = true;
        result = said;
    }
    return false;
}

using Jobs = std::array<copiers::Job, Lane::kMost>;  // one for each piece in the lane

// Enqueues the transfer, and with `mark` the event that tells its end.
template <class Transfer>
CUresult send(BounceBuffer& buffer, CUstream stream, bool mark, Transfer&& transfer) noexcept {
    const auto sent = transfer();
    if (sent != CUDA_SUCCESS) return sent;
    buffer.in_flight = true;
    const auto recorded = mark ? driver.cuEventRecord(buffer.event, stream) : CUDA_SUCCESS;
    buffer.broken = recorded != CUDA_SUCCESS;
    return recorded;
}

}  // namespace

CUresult wait_until_free(BounceBuffer& buffer) noexcept {
    auto result = CUDA_SUCCESS;
    is_free(buffer, true, result);
    return result;
}

void configure(unsigned threads, std::size_t bytes) noexcept {
    buffer_bytes = bytes;
    Pieces::configure();
    // Enough to fill a PCIe 5 link; other processes share the node. With 12 of an H200's host, copies of 64 and 120 MiB
    // to the device reach 43 to 49 GB/s, with 14 always 48.
    constexpr unsigned kEnough = 14;
    fixed_helpers = threads != kAutomatic;
    wanted_helpers = threads != kAutomatic ? threads : std::min(machine::processors() - 1, kEnough);
}

unsigned helpers() noexcept { return wanted_helpers; }
bool asked_for() noexcept { return fixed_helpers; }

namespace {

// The processors near the current context's device. False: not known, or too few of them are this process's.
bool near_current(cpu_set_t& near) noexcept {
    constexpr int kFew = 4;
    CUdevice device = 0;
    char bus[32] = "";
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           driver.cuDeviceGetPCIBusId(bus, sizeof bus, device) == CUDA_SUCCESS && machine::processors_near(bus, near) &&
           CPU_COUNT(&near) >= kFew;
}

unsigned place_helpers() noexcept {
    cpu_set_t near;
    const auto processors = copiers::place(near_current(near) ? &near : nullptr);
    return fixed_helpers || processors == 0 ? wanted_helpers : std::min(wanted_helpers, processors - 1);
}

unsigned start_helpers(Pool& pool) noexcept {
    if (pool.met.exchange(true, std::memory_order_relaxed)) return copiers::start(wanted_helpers);
    const trace::Span span(trace::Kind::Setup, "helper threads");
    return copiers::start(place_helpers());
}

}  // namespace

unsigned start_helpers() noexcept {
    const auto context = current_context();
    Pool* pool = context != nullptr ? pools.of(context) : nullptr;
    return pool != nullptr ? start_helpers(*pool) : copiers::start(wanted_helpers);
}

Lane::Lane(CUcontext context, std::size_t bytes, std::size_t most_pinned, bool (*may_pin)()) noexcept
    : context_(context), pool_(pools.of(context)), buffer_bytes_(staging::buffer_bytes) {
    if (pool_ == nullptr) return;
    const auto others = active.fetch_add(1, std::memory_order_relaxed);
    only_copy_ = others == 0;
    // Callers copy, too: with more than half as many callers as helpers, handing over would only cost.
    team_ = start_helpers(*pool_) / (others + 1);
    if (others != 0 && team_ < 2) team_ = 0;
    const auto pieces = (bytes + Pieces::kSmallest - 1) / Pieces::kSmallest;
    const auto most = std::clamp<std::size_t>(pieces, 2, team_ != 0 ? kMost : 2);
    const auto collect = [&] {
        pool_->lock.assume_held();
        for (unsigned i = 0; i < pool_->count && count_ < most; ++i) {
            auto ignored = CUDA_SUCCESS;
            if (pool_->held[i] || pool_->buffers[i].broken || !is_free(pool_->buffers[i], false, ignored)) continue;
            pool_->held[i] = true;
            buffers_[count_++] = &pool_->buffers[i];
        }
    };
    {
        const Locked lock(pool_->lock);
        collect();
        if (count_ == most || pool_->count == Pool::kMost) return;
    }
    const auto pinned = bytes_in_pools.load(std::memory_order_relaxed);
    const auto missing = most - count_, room = most_pinned > pinned ? (most_pinned - pinned) / buffer_bytes_ : 0;
    growing_ = room < missing;
    // may_pin() is called without the lock: it may take a while.
    if (room == 0 || !may_pin()) return;
    growing_ = true;
    const Locked lock(pool_->lock);
    grow(*pool_, static_cast<unsigned>(std::min(missing, room)));
    collect();
}

Lane::Lane(CUcontext context, std::span<BounceBuffer* const> own, std::size_t bytes_of_each, std::size_t bytes) noexcept
    : context_(context),
      buffer_bytes_(bytes_of_each),
      count_(static_cast<unsigned>(std::min<std::size_t>(own.size(), kMost))),
      team_(bytes >= kWorthATeam ? copiers::running() : 0) {
    std::copy_n(own.begin(), count_, buffers_.begin());
}

Lane::~Lane() {
    if (pool_ == nullptr) return;
    active.fetch_sub(1, std::memory_order_relaxed);
    const Locked lock(pool_->lock);
    for (unsigned i = 0; i < count_; ++i) {
        const auto index = buffers_[i] - pool_->buffers.data();
        pool_->held[static_cast<std::size_t>(index)] = false;
    }
}

bool Lane::owns(CUstream stream) const noexcept {
    return pool_ == nullptr || stream == pool_->to_device || stream == pool_->to_host;
}
CUstream Lane::to_device() const noexcept { return pool_->to_device; }
CUstream Lane::to_host() const noexcept { return pool_->to_host; }

bool takes(const Extent& extent) noexcept { return extent.rows == 1 || extent.width <= buffer_bytes; }

bool has_room(const Lane& lane, const Extent& extent) noexcept {
    return Pieces(extent, lane, Pieces::Way::Fill).count() <= lane.size();
}

namespace {

// How far a copy to the device came.
struct Sent {
    CUresult result = CUDA_SUCCESS;
    std::size_t pieces = 0;  // that were sent, from the first on
};

// `fill(job, piece)` begins to fill the buffer of a piece; the copy ends where `filled(piece)` is false afterwards.
template <class Fill, class Filled>
Sent fill_and_send(Lane& lane, const Pieces& pieces, CUdeviceptr to, CUstream stream, bool wait, const Fill& fill,
                   const Filled& filled) noexcept {
    trace::InStream in_stream(false);
    const bool ends = wait && lane.owns(stream);
    const auto count = pieces.count(), window = std::size_t{lane.size()};
    Jobs jobs;
    Sent sent;
    auto& result = sent.result;
    bool goes_on = true;
    std::size_t begun = 0, finished = 0;
    while (finished < count) {
        while (begun < count && begun - finished < window && result == CUDA_SUCCESS && goes_on &&
               is_free(lane[begun], begun == finished, result)) {
            auto& job = jobs[begun % window];
            fill(job, begun);
            ++begun;
            if (job.done()) break;  // the device can have it
        }
        if (begun == finished) break;
        jobs[finished % window].finish();
        goes_on = goes_on && filled(finished);
        if (result == CUDA_SUCCESS && goes_on) {
            BounceBuffer& buffer = lane[finished];
            // Only the events that will be asked for.
            if (ends) in_stream.sent(pieces.moved(to, finished));
            const bool mark = !wait || finished + window < count || finished + 1 == count;
            result = send(buffer, stream, mark, [&] { return pieces.send_to(to, finished, buffer.memory, stream); });
            if (result == CUDA_SUCCESS) sent.pieces = finished + 1;
        }
        ++finished;
    }
    if (!wait) return sent;
    // The last piece's event comes after all pieces; where it was not sent, the stream itself is waited for.
    const auto waited =
        sent.pieces == count ? driver.cuEventSynchronize(lane[count - 1].event) : driver.cuStreamSynchronize(stream);
    in_stream.ended(lane.context());
    for (unsigned i = 0; i < lane.size(); ++i) {
        if (waited == CUDA_SUCCESS) lane[i].in_flight = false;
        if (waited != CUDA_SUCCESS && lane[i].in_flight) lane[i].broken = true;
    }
    if (result == CUDA_SUCCESS) result = waited;
    return sent;
}

}  // namespace

CUresult copy_to_device(Lane& lane, CUdeviceptr to, const std::byte* from, const Extent& extent, CUstream stream,
                        bool wait) noexcept {
    trace::Transfer traced(trace::Kind::Staging, "staged copy to device", extent.bytes());
    const Pieces pieces(extent, lane, Pieces::Way::Fill);
    const auto sent = fill_and_send(
        lane, pieces, to, stream, wait,
        [&](copiers::Job& job, std::size_t piece) {
            pieces.hand_over(job, pieces.filling(piece, lane[piece].memory, from));
        },
        [](std::size_t) { return true; });
    if (sent.result == CUDA_SUCCESS) traced.done();
    return sent.result;
}

std::size_t read_to_device(Lane& lane, CUdeviceptr to, const copiers::File& file, std::size_t bytes) noexcept {
    // A helper's system call costs little beside so many bytes.
    constexpr std::size_t kPart = std::size_t{256} << 10;
    trace::Transfer traced(trace::Kind::Staging, "staged file to device", bytes);
    const Pieces pieces({.width = bytes}, lane, Pieces::Way::Fill);
    std::array<std::atomic<bool>, Lane::kMost> missing{};
    const auto sent = fill_and_send(
        lane, pieces, to, lane.to_device(), true,
        [&](copiers::Job& job, std::size_t piece) {
            const auto offset = file.offset + static_cast<std::int64_t>(pieces.begin(piece));
            job.begin_reading(lane[piece].memory, file.from(offset), pieces.size(piece), kPart,
                              missing[piece % lane.size()]);
        },
        [&](std::size_t piece) { return !missing[piece % lane.size()].load(std::memory_order_relaxed); });
    if (sent.result != CUDA_SUCCESS) return 0;
    const auto read = sent.pieces == pieces.count() ? bytes : pieces.begin(sent.pieces);
    if (read == bytes) traced.done();
    return read;
}

CUresult copy_to_host(Lane& lane, std::byte* to, CUdeviceptr from, const Extent& extent, CUstream stream) noexcept {
    const auto bytes = extent.bytes();
    trace::Transfer traced(trace::Kind::Staging, "staged copy to host", bytes);
    trace::InStream in_stream(true);
    const bool own = lane.owns(stream);
    const Pieces pieces(extent, lane, Pieces::Way::Drain);
    const auto count = pieces.count(), window = std::size_t{lane.size()};
    Jobs jobs;
    auto result = CUDA_SUCCESS;
    std::size_t asked = 0, arrived = 0, drained = 0;
    while (drained < count) {
        while (asked < count && asked - drained < window && result == CUDA_SUCCESS) {
            BounceBuffer& buffer = lane[asked];
            if (!is_free(buffer, true, result)) break;
            if (own) in_stream.sent(pieces.moved(from, asked));
            result = send(buffer, stream, true, [&] { return pieces.send_from(from, asked, buffer.memory, stream); });
            if (result == CUDA_SUCCESS) ++asked;
        }
        // Waits for the device only if there is nothing to drain.
        while (arrived < asked && is_free(lane[arrived], arrived == drained, result)) {
            pieces.hand_over(jobs[arrived % window], pieces.draining(arrived, to, lane[arrived].memory));
            if (++arrived == count) in_stream.ended(lane.context());
        }
        if (drained == arrived) break;  // an error
        auto& oldest = jobs[drained % window];
        if (!oldest.help() && (oldest.done() || arrived == asked)) oldest.finish();
        if (oldest.done()) {
            oldest.finish();
            ++drained;
        }
    }
    if (result == CUDA_SUCCESS) traced.done();
    return result;
}

std::size_t copy_to_sink(Lane& lane, Sink& sink, CUdeviceptr from, std::size_t bytes) noexcept {
    trace::Transfer traced(trace::Kind::Staging, "staged copy to file", bytes);
    trace::InStream in_stream(true);
    const Pieces pieces({.width = bytes}, lane, Pieces::Way::Drain);
    const auto count = pieces.count(), window = std::size_t{lane.size()};
    auto result = CUDA_SUCCESS;
    std::size_t asked = 0, taken = 0, total = 0;
    while (taken < count) {
        while (asked < count && asked - taken < window && result == CUDA_SUCCESS) {
            BounceBuffer& buffer = lane[asked];
            in_stream.sent(pieces.size(asked));
            result = send(buffer, lane.to_host(), true,
                          [&] { return pieces.send_from(from, asked, buffer.memory, lane.to_host()); });
            if (result == CUDA_SUCCESS) ++asked;
        }
        if (asked == taken || !is_free(lane[taken], true, result)) break;
        const auto got = sink.take(lane[taken].memory, pieces.size(taken));
        total += got;
        if (got != pieces.size(taken++)) break;
    }
    for (; taken < asked; ++taken) is_free(lane[taken], true, result);  // they are another copy's next
    in_stream.ended(lane.context());
    if (total == bytes) traced.done();
    return total;
}

void forget(CUcontext context) noexcept {
    Pool* pool = pools.known(context);
    if (pool == nullptr) return;
    const Locked lock(pool->lock);
    pinned::give_back(pool->count * buffer_bytes);
    bytes_in_pools.fetch_sub(pool->count * buffer_bytes, std::memory_order_relaxed);
    pool->count = 0;
    pool->to_device = pool->to_host = nullptr;
    pool->met.store(false, std::memory_order_relaxed);
}

}  // namespace hpe::staging
