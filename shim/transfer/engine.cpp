// SPDX-License-Identifier: MIT
// Transfers are cut at the arena's chunks: the driver does not promise to take a copy that spans two pinned ranges. A
// chunk that is not pinned goes through the channel's own bounce buffers.
#include "shim/transfer/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/progress.h"
#include "shim/observe/trace.h"
#include "shim/transfer/across.h"
#include "shim/transfer/channel.h"
#include "shim/transfer/staging.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

constinit Engine engine;

namespace {

constinit ByContext<Channel> channels;
constinit std::atomic<std::size_t> outstanding{0};  // the sum of `sent` in all channels

// Memory of one context.
struct Range {
    CUdeviceptr device;
    std::byte* view;
    std::size_t bytes;
    across::Over over;
};

Range range_of(std::span<const Engine::Part> parts, CUfunction kernel = nullptr) noexcept {
    const auto& first = parts.front();
    const auto& last = parts.back();
    const auto begin = first.object->base + first.offset;
    const auto end = last.object->base + std::min(last.offset + last.bytes, last.object->device_size);
    return {begin,
            first.object->view + first.offset,
            end - begin,
            {first.object->is_region() ? first.object : nullptr, kernel}};
}

// Of which several are copied sooner by the kernel.
bool many_allocations(std::span<const Engine::Part> parts) noexcept {
    if (parts.size() > 1) return true;
    const auto& [object, offset, bytes] = parts.front();
    unsigned count = 0;
    object->for_allocated(offset, bytes, [&](std::size_t, std::size_t) { return ++count < 2; });
    return count > 1;
}

std::size_t allocated_bytes(std::span<const Engine::Part> parts) noexcept {
    std::size_t sum = 0;
    for (const auto& [object, offset, bytes] : parts) sum += object->allocated_bytes(offset, bytes);
    return sum;
}

// Calls piece(device, view, bytes, pinned) for each part of the range that lies in one chunk of the arena.
template <class Piece>
CUresult by_chunk(const Range& range, Engine::Order order, Piece&& piece) noexcept {
    auto result = CUDA_SUCCESS;
    Arena::for_chunks(range.view, range.bytes, [&](std::byte* view, std::size_t part) {
        const bool may_pin = order == Engine::Order::Ordered;
        const bool pinned = Arena::pinned(view, may_pin);
        if (may_pin && !pinned) Arena::note_use(view, part);
        result = piece(range.device + static_cast<std::size_t>(view - range.view), view, part, pinned);
        return result == CUDA_SUCCESS;
    });
    return result;
}

// Through the channel's own bounce buffers.
CUresult stage_to_host(Channel& channel, const HeldBuffers& held, CUdeviceptr device, std::byte* view,
                       std::size_t bytes, across::Over over) noexcept {
    staging::Lane lane(channels.context_of(channel), held.all(), Channel::kBufferBytes, bytes);
    return staging::copy_to_host(lane, view, device, {.width = bytes, .over = over}, channel.to_host);
}

// Copies without a channel. They wait for the device, and so cannot be made during a host callback, for which the
// device waits. The driver may return with the last bytes still on their way (cuda.h: cuMemcpyHtoD from pageable
// memory), hence the wait.
CUresult send_now(CUdeviceptr device, const std::byte* view, std::size_t bytes, const Object* region,
                  Engine::Order order) noexcept {
    if (order == Engine::Order::Unordered) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto sent = across::for_allocated(region, device, bytes, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyHtoD_v2(device + offset, view + offset, part);
    });
    return sent == CUDA_SUCCESS ? driver.cuStreamSynchronize(CU_STREAM_LEGACY) : sent;
}

CUresult fetch_now(CUdeviceptr device, std::byte* view, std::size_t bytes, const Object* region,
                   Engine::Order order) noexcept {
    if (order == Engine::Order::Unordered) return CUDA_ERROR_OUT_OF_MEMORY;
    return across::for_allocated(region, device, bytes, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyDtoH_v2(view + offset, device + offset, part);
    });
}

// For copies to the host. They must not arrive later, when the view may hold what the program wrote, and a wait that
// fails says nothing about them: then the stream is asked until it has ended.
CUresult wait_for_host(const Channel& channel) noexcept {
    const auto waited = driver.cuStreamSynchronize(channel.to_host);
    if (waited == CUDA_SUCCESS) return waited;
    constexpr std::chrono::microseconds kNap{20};
    for (;;) {
        const auto asked = driver.cuStreamQuery(channel.to_host);
        if (asked != CUDA_ERROR_NOT_READY) return asked == CUDA_SUCCESS ? asked : waited;
        nap(kNap);
    }
}

// The channel is locked and its context current. A wait that fails says nothing about the copies: they stay
// outstanding. Nothing else may be tried instead, since their blocks are ReadOnly or Invalid already, and a copy still
// under way would overwrite what a kernel writes later.
CUresult drain_channel(Channel& channel) noexcept HPE_REQUIRES(channel.lock) {
    const auto count = channel.sent.load(std::memory_order_acquire);
    if (count == 0) return CUDA_SUCCESS;
    auto result = driver.cuStreamSynchronize(channel.to_device);
    // A single failed call may look like a lost context: the stream is asked, too.
    if (lost_context(result)) result = driver.cuStreamQuery(channel.to_device);
    if (result == CUDA_SUCCESS || lost_context(result)) {
        channel.sent.store(0, std::memory_order_release);
        outstanding.fetch_sub(count, std::memory_order_release);
        channel.in_to_device.ended(channels.context_of(channel));
    }
    return result;
}

// Calls run(begin, bytes) for each stretch of bytes that differ, as long as it succeeds.
template <class Run>
CUresult for_changes(const std::byte* now, const std::byte* before, std::size_t bytes, Run&& run) noexcept {
    constexpr std::size_t kStep = 256;  // mostly nothing has changed
    for (std::size_t at = 0; at < bytes;) {
        const auto end = at + std::min(kStep, bytes - at);
        if (std::memcmp(now + at, before + at, end - at) == 0) {
            at = end;
            continue;
        }
        // Who borrowed the block may write the old byte back meanwhile.
        while (at < end && now[at] == before[at]) ++at;
        const auto begin = at;
        while (at < bytes && now[at] != before[at]) ++at;
        if (begin == at) continue;
        if (const auto result = run(begin, at - begin); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// A flush is under way.
void enqueued(Channel& channel, std::size_t bytes) noexcept HPE_REQUIRES(channel.lock) {
    channel.in_to_device.sent(bytes);
    channel.sent.fetch_add(1, std::memory_order_release);
    outstanding.fetch_add(1, std::memory_order_release);
}

// The channel is locked and open; the view is pinned.
CUresult send_pinned(Channel& channel, CUdeviceptr device, const std::byte* view, std::size_t bytes,
                     across::Over over = {}) noexcept HPE_REQUIRES(channel.lock) {
    const auto result = across::to_device(device, view, bytes, over, channel.to_device);
    // Of several copies some may be under way.
    if (result == CUDA_SUCCESS || over.region != nullptr) {
        enqueued(channel, across::allocated_bytes(over.region, device, bytes));
    }
    return result;
}

// The same of a view that is not pinned: its bytes are in bounce buffers on return.
CUresult send_staged(Channel& channel, const HeldBuffers& held, CUdeviceptr device, const std::byte* view,
                     std::size_t bytes, across::Over over) noexcept HPE_REQUIRES(channel.lock) {
    staging::Lane lane(channels.context_of(channel), held.all(), Channel::kBufferBytes, bytes);
    const auto result =
        staging::copy_to_device(lane, device, view, {.width = bytes, .over = over}, channel.to_device, false);
    // Also after a failure: some of it may be under way.
    enqueued(channel, across::allocated_bytes(over.region, device, bytes));
    return result;
}

// Sends the bytes of a view that is not pinned where they differ from `twin`; done on return. Many short transfers out
// of one bounce buffer are waited for once.
CUresult stage_changes(Channel& channel, const Range& range, const std::byte* twin, std::size_t& count,
                       std::size_t& sum) noexcept HPE_REQUIRES(channel.lock) {
    for (std::size_t at = 0; at < range.bytes; at += Channel::kBufferBytes) {
        const auto part = std::min(Channel::kBufferBytes, range.bytes - at);
        if (!channel.open()) return CUDA_ERROR_OUT_OF_MEMORY;
        const HeldBuffers held(channel, part);
        if (!held) return CUDA_ERROR_OUT_OF_MEMORY;
        staging::BounceBuffer& buffer = *held.all().front();
        if (const auto waited = staging::wait_until_free(buffer); waited != CUDA_SUCCESS) return waited;
        std::memcpy(buffer.memory, range.view + at, part);
        const auto before = count;
        auto result = for_changes(buffer.memory, twin + at, part, [&](std::size_t begin, std::size_t changed) {
            ++count;
            sum += changed;
            return across::to_device(range.device + at + begin, buffer.memory + begin, changed, range.over,
                                     channel.to_device);
        });
        if (count == before) continue;
        const auto waited = driver.cuStreamSynchronize(channel.to_device);
        if (waited != CUDA_SUCCESS) buffer.broken = true;
        if (result == CUDA_SUCCESS) result = waited;
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// What surrounds the transfer of the parts, which move(context, channel) makes. nullptr: the context has no channel.
template <class Move>
CUresult transfer(std::span<const Engine::Part> parts, bool to_host, Move&& move) noexcept {
    const auto moved = allocated_bytes(parts);
    if (moved == 0) return CUDA_SUCCESS;  // between the allocations of a region
    const auto& first = parts.front();
    const auto context = first.object->context;
    trace::Transfer traced(to_host ? trace::Kind::Fetch : trace::Kind::Flush, to_host ? "fetch" : "flush", moved,
                           first.object->report_id_at(first.offset));
    Channel* const channel = channels.of(context);
    ContextScope scope(context);
    if (scope.result() != CUDA_SUCCESS) return scope.result();
    CaptureRelaxed relaxed;
    if (const auto result = move(context, channel); result != CUDA_SUCCESS) return result;
    traced.done();
    for (const auto& [object, offset, bytes] : parts) {
        object->for_traffic(offset, bytes, [to_host](Traffic& traffic, std::size_t count) {
            to_host ? traffic.moved_to_host(count) : traffic.moved_to_device(count);
        });
    }
    if (!to_host) call_stacks::add(call_stacks::Cost::FlushedBytes, moved);
    (to_host ? progress::bytes_to_host : progress::bytes_to_device).fetch_add(moved, std::memory_order_relaxed);
    return CUDA_SUCCESS;
}

// All parts are of one object, or the context's kernel copies across their borders.
CUresult fetch_range(std::span<const Engine::Part> parts, Engine::Order order, CUfunction kernel = nullptr) noexcept {
    const auto range = range_of(parts, kernel);
    return transfer(parts, true, [&](CUcontext context, Channel* channel) {
        trace::InStream in_to_host(true);
        bool ready = channel != nullptr;
        if (ready) {
            const Locked lock(channel->lock);
            ready = channel->open();
        }
        const auto result =
            by_chunk(range, order, [&](CUdeviceptr device, std::byte* view, std::size_t bytes, bool pinned) {
                if (!ready) return fetch_now(device, view, bytes, range.over.region, order);
                if (pinned) {
                    in_to_host.sent(across::allocated_bytes(range.over.region, device, bytes));
                    return across::to_host(view, device, bytes, range.over, channel->to_host);
                }
                const HeldBuffers held(*channel, bytes);
                return held ? stage_to_host(*channel, held, device, view, bytes, range.over)
                            : fetch_now(device, view, bytes, range.over.region, order);
            });
        const auto waited = ready ? wait_for_host(*channel) : CUDA_SUCCESS;
        in_to_host.ended(context);
        return result != CUDA_SUCCESS ? result : waited;
    });
}

CUresult flush_range(std::span<const Engine::Part> parts, Engine::Order order, CUfunction kernel = nullptr) noexcept {
    const auto range = range_of(parts, kernel);
    return transfer(parts, false, [&](CUcontext, Channel* channel) {
        if (channel == nullptr) return send_now(range.device, range.view, range.bytes, range.over.region, order);
        const Locked lock(channel->lock);
        return by_chunk(range, order, [&](CUdeviceptr device, std::byte* view, std::size_t bytes, bool pinned) {
            channel->lock.assume_held();
            if (channel->open()) {
                if (pinned) return send_pinned(*channel, device, view, bytes, range.over);
                const HeldBuffers held(*channel, bytes);
                if (held) return send_staged(*channel, held, device, view, bytes, range.over);
            }
            // Not while an older copy of these bytes may be on its way.
            const auto drained = drain_channel(*channel);
            return drained == CUDA_SUCCESS ? send_now(device, view, bytes, range.over.region, order) : drained;
        });
    });
}

// For copies that can only be made in a channel: all other ways wait for the device.
template <class Run>
CUresult in_open_channel(CUcontext context, Run&& run) noexcept {
    Channel* channel = channels.of(context);
    ContextScope scope(context);
    if (scope.result() != CUDA_SUCCESS) return scope.result();
    if (channel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    CaptureRelaxed relaxed;
    {
        const Locked lock(channel->lock);
        if (!channel->open()) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return run(*channel);
}

template <class Move>
CUresult one_by_one(std::span<const Engine::Part> parts, Move&& move) noexcept {
    for (const auto& part : parts) {
        if (const auto result = move(std::span(&part, 1)); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace

CUresult Engine::fetch(Object& object, std::size_t offset, std::size_t bytes, Order order) noexcept {
    const Part part{&object, offset, bytes};
    return fetch({&part, 1}, order);
}

CUresult Engine::flush(Object& object, std::size_t offset, std::size_t bytes, Order order) noexcept {
    const Part part{&object, offset, bytes};
    return flush({&part, 1}, order);
}

CUresult Engine::fetch(std::span<const Part> neighbours, Order order) noexcept {
    const auto context = neighbours.front().object->context;
    const auto kernel = order == Order::Ordered && many_allocations(neighbours) ? across::kernel_of(context) : nullptr;
    if (kernel != nullptr && fetch_range(neighbours, order, kernel) == CUDA_SUCCESS) return CUDA_SUCCESS;
    return one_by_one(neighbours, [&](auto part) { return fetch_range(part, order); });
}

CUresult Engine::flush(std::span<const Part> neighbours, Order order) noexcept {
    const auto context = neighbours.front().object->context;
    const auto kernel =
        order == Order::Launching && many_allocations(neighbours) ? across::kernel_of(context) : nullptr;
    if (kernel != nullptr && in_flight.idle() && flush_range(neighbours, order, kernel) == CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    return one_by_one(neighbours, [&](auto part) { return flush_range(part, order); });
}

void Engine::expect_many(CUcontext context) noexcept {
    if (across::kernel_of(context) != nullptr) return;
    ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS) across::prepare(context);
}

CUresult Engine::flush_changes(Object& object, std::size_t offset, std::size_t bytes, const std::byte* twin) noexcept {
    trace::Transfer traced(trace::Kind::Flush, "flush", bytes, object.report_id_at(offset));
    Channel* channel = channels.of(object.context);
    ContextScope scope(object.context);
    if (scope.result() != CUDA_SUCCESS) return scope.result();
    if (channel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;  // all other ways wait for the device
    CaptureRelaxed relaxed;
    const auto* const first = object.view + offset;
    const across::Over over{object.is_region() ? &object : nullptr};
    std::size_t count = 0, sum = 0;
    const Locked lock(channel->lock);
    const auto piece = [&](CUdeviceptr device, std::byte* view, std::size_t part, bool pinned) {
        channel->lock.assume_held();
        const auto* const before = twin + (view - first);
        if (!channel->open()) return CUDA_ERROR_OUT_OF_MEMORY;
        if (!pinned) return stage_changes(*channel, {device, view, part, over}, before, count, sum);
        return for_changes(view, before, part, [&](std::size_t begin, std::size_t changed) {
            ++count;
            sum += changed;
            channel->lock.assume_held();
            return send_pinned(*channel, device + begin, view + begin, changed, over);
        });
    };
    const Part whole{&object, offset, bytes};
    const auto result = by_chunk(range_of({&whole, 1}), Order::Unordered, piece);
    if (result != CUDA_SUCCESS) return result;
    traced.done();
    auto& traffic = object.traffic_at(offset);
    traffic.to_device_bytes.fetch_add(sum, std::memory_order_relaxed);
    call_stacks::add(call_stacks::Cost::FlushedBytes, sum);
    progress::bytes_to_device.fetch_add(sum, std::memory_order_relaxed);
    traffic.to_device_transfers.fetch_add(count, std::memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult Engine::read(CUcontext context, CUdeviceptr device, std::byte* to, std::size_t bytes) noexcept {
    return in_open_channel(context, [&](Channel& channel) {
        const HeldBuffers held(channel, bytes);
        if (!held) return CUDA_ERROR_OUT_OF_MEMORY;
        const auto result = stage_to_host(channel, held, device, to, bytes, {});
        const auto waited = wait_for_host(channel);
        return result != CUDA_SUCCESS ? result : waited;
    });
}

CUresult Engine::write(CUcontext context, CUdeviceptr device, const std::byte* from, std::size_t bytes) noexcept {
    return in_open_channel(context, [&](Channel& channel) {
        const Locked lock(channel.lock);
        const HeldBuffers held(channel, bytes);
        if (!held) return CUDA_ERROR_OUT_OF_MEMORY;
        const auto sent = send_staged(channel, held, device, from, bytes, {});
        const auto drained = drain_channel(channel);
        return sent != CUDA_SUCCESS ? sent : drained;
    });
}

CUresult Engine::write_changes(CUcontext context, CUdeviceptr device, std::byte* now, const std::byte* before,
                               std::size_t bytes) noexcept {
    if (std::memcmp(now, before, bytes) == 0) return CUDA_SUCCESS;
    return in_open_channel(context, [&](Channel& channel) {
        std::size_t count = 0, sum = 0;
        const Locked lock(channel.lock);
        return stage_changes(channel, {device, now, bytes, {}}, before, count, sum);
    });
}

void Engine::prepare(CUcontext context) noexcept {
    Channel* channel = channels.of(context);
    ContextScope scope(context);
    if (channel == nullptr || scope.result() != CUDA_SUCCESS) return;
    CaptureRelaxed relaxed;
    const SignalsBlocked blocked;
    const Locked lock(channel->lock);
    channel->open();
}

CUresult Engine::drain() noexcept {
    if (outstanding.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    const trace::Span span(trace::Kind::Wait, "wait for flushes");
    auto first = CUDA_SUCCESS;
    for (auto& channel : channels) {
        if (channel.sent.load(std::memory_order_acquire) == 0) continue;
        const Locked lock(channel.lock);
        // Its context may have ended meanwhile, and another context have the channel.
        if (channel.sent.load(std::memory_order_acquire) == 0) continue;
        ContextScope scope(channels.context_of(channel));
        CaptureRelaxed relaxed;
        auto result = scope.result();
        if (result == CUDA_SUCCESS) {
            result = drain_channel(channel);
        } else if (!no_context(result)) {
            result = CUDA_ERROR_UNKNOWN;
        }
        if (first == CUDA_SUCCESS) first = result;
    }
    return first;
}

CUresult Engine::make_wait(CUstream stream) noexcept {
    if (!flushes_outstanding()) return CUDA_SUCCESS;
    for (auto& channel : channels) {
        if (channel.sent.load(std::memory_order_acquire) == 0) continue;
        CaptureRelaxed relaxed;
        auto result = CUDA_SUCCESS;
        CUevent flushed = nullptr;
        {
            const SignalsBlocked blocked;
            const Locked lock(channel.lock);
            if (channel.sent.load(std::memory_order_acquire) == 0) continue;
            ContextScope scope(channels.context_of(channel));
            result = scope.result();
            // Often the flushes have ended already.
            if (result == CUDA_SUCCESS && driver.cuStreamQuery(channel.to_device) == CUDA_SUCCESS &&
                drain_channel(channel) == CUDA_SUCCESS) {
                continue;
            }
            if (result == CUDA_SUCCESS) result = record(channel.flushed, channel.to_device);
            flushed = channel.flushed;
        }
        // In the program's context, since `stream` may be its default stream. Without the lock, since a full stream
        // keeps the call until a host function has ended, which may need the channel; nor are signals blocked then.
        // Another thread may have recorded the event again: then it covers more.
        if (result == CUDA_SUCCESS) {
            result = driver.cuStreamWaitEvent(stream, flushed, 0);
        }
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

bool Engine::flushes_outstanding() const noexcept { return outstanding.load(std::memory_order_acquire) != 0; }

void Engine::forget(CUcontext context) noexcept {
    Channel* channel = channels.known(context);
    if (channel == nullptr) return;
    const SignalsBlocked blocked;
    const Locked lock(channel->lock);
    outstanding.fetch_sub(channel->sent.exchange(0), std::memory_order_release);
    channel->forget();
}

}  // namespace hpe
