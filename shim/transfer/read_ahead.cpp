// SPDX-License-Identifier: MIT
// By context: windows, the stretches of blocks that were requested together.
#include "shim/transfer/read_ahead.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pinned.h"
#include "shim/observe/progress.h"
#include "shim/observe/trace.h"
#include "shim/transfer/copiers.h"

#include "shim/base/in_fault_path.h"

namespace hpe::read_ahead {

namespace {

// Pinned buffers for prefetched blocks whose view is not pinned: a copy straight to such a view would keep the CPU
// waiting. A few of one context, made as they are needed. The one that was used last, which may still be in a cache, is
// the next one.
class Buffers {
public:
    // For two sweeps with two windows each, a window being four buffers at most.
    static constexpr std::size_t kBytes = std::size_t{2} << 20, kMost = 16, kMostAtOnce = 4;

    // With the context current, and all device work waited for. nullptr: there is none.
    std::byte* take() noexcept {
        if (free_count_ != 0) return free_[--free_count_];
        if (made_ == kMost || !pinned::take(kBytes)) return nullptr;
        void* memory = nullptr;
        if (driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
            pinned::give_back(kBytes);
            return nullptr;
        }
        ++made_;
        return static_cast<std::byte*>(memory);
    }
    void give_back(std::byte* buffer) noexcept { free_[free_count_++] = buffer; }
    // The context's memory went with it. No buffer is taken.
    void forget() noexcept {
        pinned::give_back(made_ * kBytes);
        free_count_ = made_ = 0;
    }

private:
    std::array<std::byte*, kMost> free_{};
    std::size_t free_count_ = 0, made_ = 0;
};

struct Window {
    Object* object = nullptr;  // nullptr: free
    // In the order of the object where the blocks are neighbours, so that they are one transfer, also in a sweep that
    // goes backwards.
    Stretch stretch;
    std::uint64_t work = kNothing;  // InFlight::work() at the request; kNothing: the bytes must not be used
    CUevent event = nullptr;        // after its last transfer
    bool recorded = false;
    bool arrived = false;
    std::uint64_t sent_at = 0;  // for the timeline
    std::size_t bytes = 0;
    std::uint64_t number = 0;  // in the order of requests
    // Where the blocks go if the view is not pinned: `blocks_per_buffer` of the stretch into each buffer.
    std::array<std::byte*, Buffers::kMostAtOnce> buffers{};
    std::uint32_t buffer_count = 0, blocks_per_buffer = 0;

    bool contains(std::uint32_t block) const noexcept {
        const auto from = std::int64_t{block} - stretch.first, place = from / stretch.step;
        return from % stretch.step == 0 && place >= 0 && place < stretch.count;
    }
    std::byte* in_buffer(const Object& o, std::uint32_t place) const noexcept {
        return buffers[place / blocks_per_buffer] + std::size_t{place % blocks_per_buffer} * o.block_bytes();
    }
};

struct Prefetcher {
    std::atomic<unsigned> windows_used{0};
    SpinLock lock;  // taken after blocks' locks
    // Of low priority: fetches that a thread waits for go first.
    CUstream stream HPE_GUARDED_BY(lock) = nullptr;
    std::array<Window, 16> windows HPE_GUARDED_BY(lock){};
    std::uint64_t windows_sent HPE_GUARDED_BY(lock) = 0;
    Buffers buffers HPE_GUARDED_BY(lock);
};

constinit ByContext<Prefetcher> prefetchers;
constinit bool enabled = true;

// Whether the block's request is still this window's. If it was taken, a later window may have requested the block
// again, and that window's transfer may be under way.
bool still_requested(const Prefetcher& prefetcher, const Window& window, std::uint32_t block) noexcept
    HPE_REQUIRES(prefetcher.lock) {
    return window.object->block(block).prefetch_requested() &&
           std::none_of(prefetcher.windows.begin(), prefetcher.windows.end(), [&](const Window& w) {
               return w.object == window.object && w.number > window.number && w.contains(block);
           });
}

// Drops the window's requests and frees the window, whose transfer has ended.
void close(Prefetcher& prefetcher, Window& window) noexcept HPE_REQUIRES(prefetcher.lock) {
    for (std::uint32_t i = 0; i < window.stretch.count; ++i) {
        const auto block = window.stretch.at(i);
        if (still_requested(prefetcher, window, block) && window.object->block(block).take_prefetch_request())
            wasted(*window.object, block);
    }
    while (window.buffer_count != 0) prefetcher.buffers.give_back(window.buffers[--window.buffer_count]);
    window.object = nullptr;
    prefetcher.windows_used.fetch_sub(1, std::memory_order_release);
}

bool any_still_requested(const Prefetcher& prefetcher, const Window& window) noexcept HPE_REQUIRES(prefetcher.lock) {
    for (std::uint32_t i = 0; i < window.stretch.count; ++i) {
        if (still_requested(prefetcher, window, window.stretch.at(i))) return true;
    }
    return false;
}

// The window's transfer is known to have ended.
void arrived(Prefetcher& prefetcher, Window& window) noexcept HPE_REQUIRES(prefetcher.lock) {
    window.arrived = true;
    if (window.sent_at == 0) [[likely]] {
        return;
    }
    trace::add_until_now({.begin = window.sent_at,
                          .name = "to host",
                          .bytes = window.bytes,
                          .place = reinterpret_cast<std::uintptr_t>(prefetchers.context_of(prefetcher)),
                          .number = 1,
                          .kind = trace::Kind::Stream,
                          .flag = true});
}

// The context is lost: nothing arrives any more, and it is unknown which bytes did.
CUresult give_up(Window& window) noexcept {
    window.work = kNothing;
    return CUDA_SUCCESS;
}

// The prefetcher is locked, its context current.
CUresult wait(Prefetcher& prefetcher, Window& window) noexcept HPE_REQUIRES(prefetcher.lock) {
    if (window.arrived) return CUDA_SUCCESS;
    auto result = CUDA_ERROR_UNKNOWN;
    if (window.recorded) result = driver.cuEventSynchronize(window.event);
    // A single failed call may look like a lost context: the stream is asked, too.
    if (result != CUDA_SUCCESS) result = driver.cuStreamSynchronize(prefetcher.stream);
    if (lost_context(result)) result = give_up(window);
    if (result == CUDA_SUCCESS) arrived(prefetcher, window);
    return result;
}

// Closes the windows whose blocks have all been used. The prefetcher is locked, its context current.
void tidy(Prefetcher& prefetcher) noexcept HPE_REQUIRES(prefetcher.lock) {
    for (auto& window : prefetcher.windows) {
        if (window.object == nullptr) continue;
        if (!window.arrived && window.recorded && driver.cuEventQuery(window.event) == CUDA_SUCCESS) {
            arrived(prefetcher, window);
        }
        if (window.arrived && !any_still_requested(prefetcher, window)) close(prefetcher, window);
    }
}

// Closes the oldest window that `chosen` accepts, if there is one and its transfer has ended: it is free then.
template <class Chosen>
Window* close_oldest(Prefetcher& prefetcher, Chosen&& chosen) noexcept HPE_REQUIRES(prefetcher.lock) {
    Window* oldest = nullptr;
    for (auto& window : prefetcher.windows) {
        if (window.object != nullptr && chosen(window) && (oldest == nullptr || window.number < oldest->number)) {
            oldest = &window;
        }
    }
    if (oldest == nullptr || !oldest->arrived) return nullptr;
    close(prefetcher, *oldest);
    return oldest;
}

// After tidy().
Window* free_window(Prefetcher& prefetcher) noexcept HPE_REQUIRES(prefetcher.lock) {
    for (auto& window : prefetcher.windows) {
        if (window.object == nullptr) return &window;
    }
    return close_oldest(prefetcher, [](const Window&) { return true; });
}

// Calls run(offset, bytes) for each range of the object that the stretch covers.
template <class Run>
bool for_ranges(const Object& object, const Stretch& stretch, Run&& run) noexcept {
    if (stretch.contiguous()) {
        const auto first = stretch.lowest();
        const auto last = first + stretch.count - 1;
        return run(object.offset_of(first), object.offset_of(last) + object.bytes_of(last) - object.offset_of(first));
    }
    for (std::uint32_t i = 0; i < stretch.count; ++i) {
        if (!run(object.offset_of(stretch.at(i)), object.bytes_of(stretch.at(i)))) return false;
    }
    return true;
}

// The same, cut at the arena's chunks, which are pinned one by one.
template <class Run>
bool for_pieces(const Object& object, const Stretch& stretch, Run&& run) noexcept {
    return for_ranges(object, stretch, [&](std::size_t offset, std::size_t bytes) {
        return Arena::for_chunks(object.view + offset, bytes, [&](std::byte* at, std::size_t part) {
            return run(static_cast<std::size_t>(at - object.view), part);
        });
    });
}

// Calls run(offset, bytes, buffer's memory) for the longest runs of blocks that `wanted` accepts and that are
// neighbours in the object and in a buffer.
template <class Wanted, class Run>
bool for_buffered(const Object& object, const Window& window, Wanted&& wanted, Run&& run) noexcept {
    for (std::uint32_t place = 0; place < window.stretch.count;) {
        if (!wanted(window.stretch.at(place))) {
            ++place;
            continue;
        }
        const auto begin = place;
        auto bytes = object.bytes_of(window.stretch.at(place++));
        while (place < window.stretch.count && place % window.blocks_per_buffer != 0 && window.stretch.step == 1 &&
               wanted(window.stretch.at(place))) {
            bytes += object.bytes_of(window.stretch.at(place++));
        }
        if (!run(object.offset_of(window.stretch.at(begin)), bytes, window.in_buffer(object, begin))) return false;
    }
    return true;
}

bool view_is_pinned(const Object& object, const Stretch& stretch) noexcept {
    // First ask of all chunks, so that none is pinned for a stretch that goes to buffers in the end.
    return for_pieces(object, stretch, [&](std::size_t at, std::size_t) { return Arena::used(object.view + at); }) &&
           for_pieces(object, stretch,
                      [&](std::size_t at, std::size_t) { return Arena::pinned(object.view + at, true); });
}

// Takes buffers for the window's stretch, which is shortened to as much as they hold. The context is current. False: no
// buffer is to be had.
bool take_buffers(Prefetcher& prefetcher, Window& window, const Object& object) noexcept HPE_REQUIRES(prefetcher.lock) {
    // An object that is read in no time is not worth pinned memory that stays.
    constexpr std::size_t kWorthIt = 2 * Buffers::kBytes;
    window.blocks_per_buffer = static_cast<std::uint32_t>(Buffers::kBytes / object.block_bytes());
    if (object.size < kWorthIt || window.blocks_per_buffer == 0) return false;
    const auto wanted = std::min<std::size_t>(
        (window.stretch.count + window.blocks_per_buffer - 1) / window.blocks_per_buffer, Buffers::kMostAtOnce);
    while (window.buffer_count < wanted) {
        auto* buffer = prefetcher.buffers.take();
        if (buffer == nullptr && close_oldest(prefetcher, [](const Window& w) { return w.buffer_count != 0; })) {
            buffer = prefetcher.buffers.take();
        }
        if (buffer == nullptr) break;
        window.buffers[window.buffer_count++] = buffer;
    }
    window.stretch.count = std::min(window.stretch.count, window.buffer_count * window.blocks_per_buffer);
    return window.buffer_count != 0;
}

// From the buffers to the view, of the blocks [first, first + count).
void deliver(Object& object, const Window& window, std::uint32_t first, std::uint32_t count) noexcept {
    for_buffered(
        object, window,
        [&](std::uint32_t block) {
            return block >= first && block - first < count && object.block(block).prefetch_requested() &&
                   !valid_on_host(object.block(block).peek().state);
        },
        [&](std::size_t offset, std::size_t bytes, const std::byte* from) {
            copiers::move_together(object.view + offset, from, bytes, copiers::Reader::Processor);
            Arena::note_use(object.view + offset, bytes);
            return true;
        });
}

bool covers(const Window& window, std::uint32_t first, std::uint32_t count) noexcept {
    const auto lowest = window.stretch.lowest();
    const auto span = (window.stretch.count - 1) * static_cast<std::uint32_t>(std::abs(window.stretch.step)) + 1;
    return lowest < first + count && first < lowest + span;
}

// Calls end(window) for the windows of the object that `chosen` accepts, after their transfers ended.
template <class Chosen, class End>
CUresult end_windows(Object& object, Chosen&& chosen, End&& end) noexcept {
    Prefetcher* prefetcher = prefetchers.known(object.context);
    if (prefetcher == nullptr || prefetcher->windows_used.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    auto result = CUDA_SUCCESS;
    const Locked lock(prefetcher->lock);
    ContextScope scope(object.context);
    CaptureRelaxed relaxed;
    for (auto& window : prefetcher->windows) {
        if (window.object != &object || !chosen(window)) continue;
        auto waited = no_context(scope.result()) ? give_up(window) : CUDA_ERROR_UNKNOWN;
        if (scope.result() == CUDA_SUCCESS || window.arrived) waited = wait(*prefetcher, window);
        if (waited == CUDA_SUCCESS) {
            end(*prefetcher, window);
        } else {
            result = waited;
        }
    }
    return result;
}

}  // namespace

void configure(bool wanted) noexcept { enabled = wanted; }
bool on() noexcept { return enabled; }

void start(Object& object, const Stretch& stretch, std::uint64_t work) noexcept {
    Prefetcher* prefetcher = prefetchers.of(object.context);
    if (prefetcher == nullptr || stretch.count == 0) return;
    ContextScope scope(object.context);
    if (scope.result() != CUDA_SUCCESS) return;
    CaptureRelaxed relaxed;
    const bool direct = view_is_pinned(object, stretch);
    const Locked lock(prefetcher->lock);
    tidy(*prefetcher);
    Window* window = free_window(*prefetcher);
    if (window == nullptr || make_stream(prefetcher->stream, Priority::Lowest) != CUDA_SUCCESS ||
        make_event(window->event) != CUDA_SUCCESS) {
        return;
    }
    window->stretch = stretch;
    if (!direct && !take_buffers(*prefetcher, *window, object)) return;
    if (window->stretch.contiguous()) window->stretch = {window->stretch.lowest(), 1, window->stretch.count};
    window->object = &object;
    window->work = work;
    window->recorded = window->arrived = false;
    window->number = ++prefetcher->windows_sent;
    prefetcher->windows_used.fetch_add(1, std::memory_order_release);
    std::size_t wanted = 0, bytes = 0, transfers = 0;
    for (std::uint32_t i = 0; i < window->stretch.count; ++i) {
        object.block(window->stretch.at(i)).request_prefetch();
        wanted += object.bytes_of(window->stretch.at(i));
    }
    trace::Transfer traced(trace::Kind::Fetch, "fetch ahead", wanted, object.report_id);
    window->sent_at = trace::on() ? ticks::now() : 0;
    window->bytes = wanted;
    auto result = CUDA_SUCCESS;
    const auto send = [&](std::size_t offset, std::size_t part, std::byte* to) {
        prefetcher->lock.assume_held();
        result = driver.cuMemcpyDtoHAsync_v2(to, object.base + offset, part, prefetcher->stream);
        if (result != CUDA_SUCCESS) return false;
        bytes += part;
        ++transfers;
        return true;
    };
    if (direct) {
        for_pieces(object, window->stretch,
                   [&](std::size_t at, std::size_t part) { return send(at, part, object.view + at); });
    } else {
        for_buffered(
            object, *window, [](std::uint32_t) { return true; }, send);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventRecord(window->event, prefetcher->stream);
        window->recorded = result == CUDA_SUCCESS;
    }
    object.traffic->to_host_bytes.fetch_add(bytes, std::memory_order_relaxed);
    progress::bytes_to_host.fetch_add(bytes, std::memory_order_relaxed);
    object.traffic->to_host_transfers.fetch_add(transfers, std::memory_order_relaxed);
    if (result == CUDA_SUCCESS) return traced.done();
    // Blocks for which no transfer was enqueued do not count as wasted.
    for (std::uint32_t i = 0; i < window->stretch.count; ++i) {
        const auto block = window->stretch.at(i);
        if (bytes == 0) object.block(block).take_prefetch_request();
        bytes -= std::min(bytes, object.bytes_of(block));
    }
    // Transfers that were enqueued must not arrive later. If their end cannot be waited for, the window stays, and
    // whoever needs one of its blocks waits again.
    window->work = kNothing;
    if (wait(*prefetcher, *window) == CUDA_SUCCESS) close(*prefetcher, *window);
}

CUresult settle(Object& object, std::uint32_t first, std::uint32_t count, std::uint64_t work) noexcept {
    return end_windows(
        object, [&](const Window& window) { return covers(window, first, count); },
        [&](Prefetcher& prefetcher, Window& window) {
            prefetcher.lock.assume_held();
            if (window.work != work || work == kNothing) {
                close(prefetcher, window);
            } else if (window.buffer_count != 0) {
                deliver(object, window, first, count);
            }
        });
}

CUresult drop(Object& object) noexcept {
    return end_windows(
        object, [](const Window&) { return true; },
        [](Prefetcher& prefetcher, Window& window) {
            prefetcher.lock.assume_held();
            close(prefetcher, window);
        });
}

void used(Object& object, std::uint32_t block) noexcept {
    object.traffic->ahead_used_bytes.fetch_add(object.bytes_of(block), std::memory_order_relaxed);
}
void wasted(Object& object, std::uint32_t block) noexcept {
    object.traffic->ahead_wasted_bytes.fetch_add(object.bytes_of(block), std::memory_order_relaxed);
}

void forget(CUcontext context) noexcept {
    Prefetcher* prefetcher = prefetchers.known(context);
    if (prefetcher == nullptr) return;
    const SignalsBlocked blocked;
    const Locked lock(prefetcher->lock);
    prefetcher->stream = nullptr;
    // An object that could not be freed must not keep a request whose bytes will never arrive.
    for (auto& window : prefetcher->windows) {
        if (window.object != nullptr) close(*prefetcher, window);
    }
    prefetcher->windows = {};
    prefetcher->buffers.forget();
}

}  // namespace hpe::read_ahead
