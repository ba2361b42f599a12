// SPDX-License-Identifier: MIT
// Transfers, cut at the arena's chunks: a copy that spans two pinned ranges is not one the driver promises to take.
#include "shim/runtime/engine.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "shim/base/log.h"
#include "shim/runtime/arena.h"
#include "shim/runtime/inflight.h"
#include "shim/runtime/real.h"

namespace hpe {

constinit Engine engine;

namespace {

// What was flushed and not yet waited for: kept so that it can be sent again should the wait fail.
struct Sent {
    CUdeviceptr device;
    std::byte* view;
    std::size_t bytes;
};

struct Channel {
    std::atomic<CUcontext> context{nullptr};
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    CUstream to_host = nullptr, to_device = nullptr;
    static constexpr std::size_t kSent = 256;
    std::array<Sent, kSent> sent{};
    std::atomic<std::size_t> sent_count{0};
};

class Locked {
public:
    explicit Locked(Channel& channel) noexcept : channel_(channel) {
        while (channel_.busy.test_and_set(std::memory_order_acquire)) channel_.busy.wait(true);
    }
    ~Locked() {
        channel_.busy.clear(std::memory_order_release);
        channel_.busy.notify_one();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    Channel& channel_;
};

constexpr std::size_t kMaxChannels = 64;
constinit std::array<Channel, kMaxChannels> channels;
constinit std::atomic<std::size_t> outstanding{0};  // entries of `sent` in all channels

Channel* channel_of(void* context) noexcept {
    const auto wanted = static_cast<CUcontext>(context);
    for (auto& channel : channels) {
        auto found = channel.context.load(std::memory_order_acquire);
        if (found == wanted) return &channel;
        if (found == nullptr && channel.context.compare_exchange_strong(found, wanted)) return &channel;
        if (found == wanted) return &channel;
    }
    return nullptr;  // more contexts than a process can have devices for
}

// The stream of one direction, made at first use; nullptr when the driver refuses, and then copies are synchronous.
CUstream open(CUstream& stream) noexcept {
    if (stream == nullptr && driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS &&
        driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        stream = nullptr;
    }
    return stream;
}

// Calls piece(device, view, bytes) for each part of the range that lies in one chunk of the arena.
template <class Piece>
CUresult by_chunk(Object& object, std::size_t offset, std::size_t bytes, Piece&& piece) noexcept {
    while (bytes != 0) {
        auto* view = object.view + offset;
        const auto room = Arena::kChunk - reinterpret_cast<std::uintptr_t>(view) % Arena::kChunk;
        const auto part = std::min(bytes, room);
        Arena::pin(view);
        const auto result = piece(static_cast<CUdeviceptr>(object.base + offset), view, part);
        if (result != CUDA_SUCCESS) return result;
        offset += part;
        bytes -= part;
    }
    return CUDA_SUCCESS;
}

// The way without streams. The driver may return with the last bytes still on their way (cuda.h: cuMemcpyHtoD from
// pageable memory), hence the wait.
CUresult send_now(CUdeviceptr device, const std::byte* view, std::size_t bytes) noexcept {
    const auto result = driver.cuMemcpyHtoD_v2(device, view, bytes);
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(CU_STREAM_LEGACY) : result;
}

// The channel is locked and its context current.
CUresult drain_channel(Channel& channel) noexcept {
    const auto count = channel.sent_count.load(std::memory_order_acquire);
    if (count == 0) return CUDA_SUCCESS;
    auto result = driver.cuStreamSynchronize(channel.to_device);
    if (result != CUDA_SUCCESS) {
        result = CUDA_SUCCESS;
        for (std::size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
            const auto& again = channel.sent[i];
            result = send_now(again.device, again.view, again.bytes);
        }
    }
    channel.sent_count.store(0, std::memory_order_release);
    outstanding.fetch_sub(count, std::memory_order_release);
    return result;
}

}  // namespace

CUresult Engine::fetch(Object& object, std::size_t offset, std::size_t bytes) noexcept {
    Channel* channel = channel_of(object.context);
    ContextScope scope(object.context);
    if (scope.result() != CUDA_SUCCESS) return scope.result();
    CaptureRelaxed relaxed;
    CUstream stream = nullptr;
    if (channel != nullptr) {
        Locked lock(*channel);
        stream = open(channel->to_host);
    }
    auto result = CUDA_ERROR_NOT_SUPPORTED;
    if (stream != nullptr) {
        result = by_chunk(object, offset, bytes, [&](CUdeviceptr device, std::byte* view, std::size_t part) {
            return driver.cuMemcpyDtoHAsync_v2(view, device, part, stream);
        });
        const auto waited = driver.cuStreamSynchronize(stream);
        if (result == CUDA_SUCCESS) result = waited;
    }
    if (result != CUDA_SUCCESS) {
        result = by_chunk(object, offset, bytes, [&](CUdeviceptr device, std::byte* view, std::size_t part) {
            return driver.cuMemcpyDtoH_v2(view, device, part);
        });
    }
    if (result == CUDA_SUCCESS) {
        object.traffic.to_host_bytes.fetch_add(bytes, std::memory_order_relaxed);
        object.traffic.to_host_transfers.fetch_add(1, std::memory_order_relaxed);
    }
    return result;
}

CUresult Engine::flush(Object& object, std::size_t offset, std::size_t bytes) noexcept {
    Channel* channel = channel_of(object.context);
    ContextScope scope(object.context);
    if (scope.result() != CUDA_SUCCESS) return scope.result();
    CaptureRelaxed relaxed;
    auto result = CUDA_SUCCESS;
    if (channel == nullptr) {
        result = send_now(object.base + offset, object.view + offset, bytes);
    } else {
        Locked lock(*channel);
        CUstream stream = open(channel->to_device);
        result = by_chunk(object, offset, bytes, [&](CUdeviceptr device, std::byte* view, std::size_t part) {
            if (stream != nullptr) {
                if (channel->sent_count.load(std::memory_order_relaxed) == Channel::kSent) {
                    const auto drained = drain_channel(*channel);
                    if (drained != CUDA_SUCCESS) return drained;
                }
                if (driver.cuMemcpyHtoDAsync_v2(device, view, part, stream) == CUDA_SUCCESS) {
                    channel->sent[channel->sent_count.load(std::memory_order_relaxed)] = {device, view, part};
                    channel->sent_count.fetch_add(1, std::memory_order_release);
                    outstanding.fetch_add(1, std::memory_order_release);
                    return CUDA_SUCCESS;
                }
            }
            // Behind what is on its way to the same place.
            const auto drained = drain_channel(*channel);
            return drained != CUDA_SUCCESS ? drained : send_now(device, view, part);
        });
    }
    if (result == CUDA_SUCCESS) {
        object.traffic.to_device_bytes.fetch_add(bytes, std::memory_order_relaxed);
        object.traffic.to_device_transfers.fetch_add(1, std::memory_order_relaxed);
    }
    return result;
}

CUresult Engine::drain() noexcept {
    if (outstanding.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    auto first = CUDA_SUCCESS;
    for (auto& channel : channels) {
        const auto context = channel.context.load(std::memory_order_acquire);
        if (context == nullptr) break;
        if (channel.sent_count.load(std::memory_order_acquire) == 0) continue;
        Locked lock(channel);
        ContextScope scope(context);
        CaptureRelaxed relaxed;
        const auto result = scope.result() == CUDA_SUCCESS ? drain_channel(channel) : scope.result();
        if (first == CUDA_SUCCESS) first = result;
    }
    return first;
}

void Engine::forget(CUcontext context) noexcept {
    for (auto& channel : channels) {
        if (channel.context.load(std::memory_order_acquire) != context) continue;
        Locked lock(channel);
        outstanding.fetch_sub(channel.sent_count.exchange(0), std::memory_order_release);
        // The slot stays with the handle: a primary context comes back under the same one.
        channel.to_host = nullptr;
        channel.to_device = nullptr;
    }
}

}  // namespace hpe
