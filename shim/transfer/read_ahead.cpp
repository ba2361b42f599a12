// SPDX-License-Identifier: MIT
// Windows: the stretches of blocks that are on their way, by context.
#include "shim/transfer/read_ahead.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "shim/base/spin_lock.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/parking.h"
#include "shim/observe/trace.h"
#include "shim/transfer/copiers.h"

namespace hpe::read_ahead {

namespace {

struct Window {
    Object* object = nullptr;  // nullptr: free
    Stretch stretch;
    std::uint64_t work = kNothing;  // InFlight::work() when it was sent for; kNothing: who knows what is in the view
    CUevent event = nullptr;        // after its last transfer
    bool recorded = false;
    bool arrived = false;
    std::uint64_t sent = 0;  // when, and in how many bytes, for the timeline
    std::size_t bytes = 0;
    std::uint64_t number = 0;  // in the order of sending
    // Where they go that cannot go to the view: so many blocks of the stretch into each bay.
    std::array<std::byte*, Parking::kMostAtOnce> bays{};
    std::uint32_t bay_count = 0, blocks_per_bay = 0;

    // The same order in the bays as in the object: neighbours are one transfer, also of a sweep that goes backwards.
    std::uint32_t begin() const noexcept { return stretch.contiguous() ? stretch.lowest() : stretch.first; }
    std::int32_t step() const noexcept { return stretch.contiguous() ? 1 : stretch.step; }
    std::uint32_t at(std::uint32_t place) const noexcept { return Stretch{begin(), step(), stretch.count}.at(place); }
    bool contains(std::uint32_t block) const noexcept {
        const auto from = std::int64_t{block} - begin();
        return from % step() == 0 && from / step() >= 0 && from / step() < stretch.count;
    }
    std::byte* parked(const Object& o, std::uint32_t place) const noexcept {
        return bays[place / blocks_per_bay] + std::size_t{place % blocks_per_bay} * o.block_bytes();
    }
};

struct Lookout {
    std::atomic<CUcontext> context{nullptr};
    std::atomic<unsigned> windows_used{0};
    SpinLock lock;  // guards what follows; taken after blocks' locks
    // Of low priority: what a thread is waiting for goes first.
    CUstream stream = nullptr;
    std::array<Window, 16> windows{};
    std::uint64_t sent = 0;  // windows
    Parking parking;
};

constinit ByContext<Lookout> lookouts;
constinit bool enabled = true;

// Whether the block, which the window contains, is still marked on its account: a mark that was taken away may stand
// there again for a later window, whose transfer may be under way.
bool is_left(const Lookout& lookout, const Window& window, std::uint32_t block) noexcept {
    return window.object->block(block).expected() &&
           std::none_of(lookout.windows.begin(), lookout.windows.end(), [&](const Window& w) {
               return w.object == window.object && w.number > window.number && w.contains(block);
           });
}

// Takes the window's marks away and frees it. Its transfer has ended.
void close(Lookout& lookout, Window& window) noexcept {
    for (std::uint32_t i = 0; i < window.stretch.count; ++i) {
        if (!is_left(lookout, window, window.stretch.at(i))) continue;
        if (window.object->block(window.stretch.at(i)).take_expected()) wasted(*window.object, window.stretch.at(i));
    }
    while (window.bay_count != 0) lookout.parking.give_back(window.bays[--window.bay_count]);
    window.object = nullptr;
    lookout.windows_used.fetch_sub(1, std::memory_order_release);
}

bool any_left(const Lookout& lookout, const Window& window) noexcept {
    for (std::uint32_t i = 0; i < window.stretch.count; ++i) {
        if (is_left(lookout, window, window.stretch.at(i))) return true;
    }
    return false;
}

// It is known to have ended.
void arrived(Lookout& lookout, Window& window) noexcept {
    window.arrived = true;
    if (window.sent == 0) [[likely]] {
        return;
    }
    trace::add_until_now({.begin = window.sent,
                          .name = "to host",
                          .bytes = window.bytes,
                          .place = reinterpret_cast<std::uintptr_t>(lookout.context.load(std::memory_order_relaxed)),
                          .number = 1,
                          .kind = trace::Kind::Stream,
                          .flag = true});
}

// Of a lost context: nothing arrives any more, and who knows what did.
CUresult give_up(Window& window) noexcept {
    window.work = kNothing;
    return CUDA_SUCCESS;
}

// Locked, its context current.
CUresult wait(Lookout& lookout, Window& window) noexcept {
    if (window.arrived) return CUDA_SUCCESS;
    auto result = CUDA_ERROR_UNKNOWN;
    if (window.recorded) result = twice([&] { return driver.cuEventSynchronize(window.event); });
    // One error may pass for a lost context: the stream is asked, too.
    if (result != CUDA_SUCCESS) result = twice([&] { return driver.cuStreamSynchronize(lookout.stream); });
    if (lost_context(result)) result = give_up(window);
    if (result == CUDA_SUCCESS) arrived(lookout, window);
    return result;
}

// Closes what is used up. Locked, its context current.
void tidy(Lookout& lookout) noexcept {
    for (auto& window : lookout.windows) {
        if (window.object == nullptr) continue;
        if (!window.arrived && window.recorded && driver.cuEventQuery(window.event) == CUDA_SUCCESS) {
            arrived(lookout, window);
        }
        if (window.arrived && !any_left(lookout, window)) close(lookout, window);
    }
}

// Gives up the oldest window that `chosen` accepts, if there is one and it has arrived.
template <class Chosen>
bool close_oldest(Lookout& lookout, Chosen&& chosen) noexcept {
    Window* oldest = nullptr;
    for (auto& window : lookout.windows) {
        if (window.object != nullptr && chosen(window) && (oldest == nullptr || window.number < oldest->number)) {
            oldest = &window;
        }
    }
    if (oldest == nullptr || !oldest->arrived) return false;
    close(lookout, *oldest);
    return true;
}

// Tidied before.
Window* free_window(Lookout& lookout) noexcept {
    const auto find = [&]() -> Window* {
        for (auto& window : lookout.windows) {
            if (window.object == nullptr) return &window;
        }
        return nullptr;
    };
    if (Window* window = find()) return window;
    return close_oldest(lookout, [](const Window&) { return true; }) ? find() : nullptr;
}

bool prepare(Lookout& lookout, Window& window) noexcept {
    if (lookout.stream == nullptr) {
        int lowest = 0, highest = 0;
        twice([&] { return driver.cuCtxGetStreamPriorityRange(&lowest, &highest); });
        if (twice([&] { return driver.cuStreamCreateWithPriority(&lookout.stream, CU_STREAM_NON_BLOCKING, lowest); }) !=
            CUDA_SUCCESS) {
            lookout.stream = nullptr;
            return false;
        }
    }
    if (window.event == nullptr &&
        twice([&] { return driver.cuEventCreate(&window.event, CU_EVENT_DISABLE_TIMING); }) != CUDA_SUCCESS) {
        window.event = nullptr;
        return false;
    }
    return true;
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

// The same, cut at the boundaries of what is pinned as one.
template <class Run>
bool for_pieces(const Object& object, const Stretch& stretch, Run&& run) noexcept {
    return for_ranges(object, stretch, [&](std::size_t offset, std::size_t bytes) {
        while (bytes != 0) {
            const auto at = reinterpret_cast<std::uintptr_t>(object.view + offset) % Arena::kChunk;
            const auto part = std::min(bytes, Arena::kChunk - at);
            if (!run(offset, part)) return false;
            offset += part;
            bytes -= part;
        }
        return true;
    });
}

// Calls run(offset, bytes, bay's memory) for the longest runs of blocks that `wanted` accepts and that are neighbours
// in the object and in a bay.
template <class Wanted, class Run>
bool for_parked(const Object& object, const Window& window, Wanted&& wanted, Run&& run) noexcept {
    for (std::uint32_t place = 0; place < window.stretch.count;) {
        if (!wanted(window.at(place))) {
            ++place;
            continue;
        }
        const auto begin = place;
        auto bytes = object.bytes_of(window.at(place++));
        while (place < window.stretch.count && place % window.blocks_per_bay != 0 && window.step() == 1 &&
               wanted(window.at(place))) {
            bytes += object.bytes_of(window.at(place++));
        }
        if (!run(object.offset_of(window.at(begin)), bytes, window.parked(object, begin))) return false;
    }
    return true;
}

bool view_is_pinned(const Object& object, const Stretch& stretch) noexcept {
    // None is pinned for a stretch that then goes elsewhere.
    return for_pieces(object, stretch, [&](std::size_t at, std::size_t) { return Arena::used(object.view + at); }) &&
           for_pieces(object, stretch, [&](std::size_t at, std::size_t) {
               return Arena::pinned(object.view + at, Arena::Pinning::IfUsedBefore);
           });
}

// Bays for as much of the window's stretch as there is room for. Its context is current. False: for nothing.
bool park(Lookout& lookout, Window& window, const Object& object) noexcept {
    // What is over at once is not worth memory that stays.
    constexpr std::size_t kWorthIt = 2 * Parking::kBay;
    window.blocks_per_bay = static_cast<std::uint32_t>(Parking::kBay / object.block_bytes());
    if (object.size < kWorthIt || window.blocks_per_bay == 0) return false;
    const auto wanted = std::min<std::size_t>(
        (window.stretch.count + window.blocks_per_bay - 1) / window.blocks_per_bay, Parking::kMostAtOnce);
    while (window.bay_count < wanted) {
        auto* bay = lookout.parking.take();
        if (bay == nullptr && close_oldest(lookout, [&](const Window& w) { return w.bay_count != 0; })) {
            bay = lookout.parking.take();
        }
        if (bay == nullptr) break;
        window.bays[window.bay_count++] = bay;
    }
    window.stretch.count = std::min(window.stretch.count, window.bay_count * window.blocks_per_bay);
    return window.bay_count != 0;
}

// From the bays to the view, of the blocks [first, first + count).
void deliver(Object& object, const Window& window, std::uint32_t first, std::uint32_t count) noexcept {
    for_parked(
        object, window,
        [&](std::uint32_t block) {
            return block >= first && block - first < count && object.block(block).expected() &&
                   !valid_on_host(object.block(block).peek().state);
        },
        [&](std::size_t offset, std::size_t bytes, const std::byte* from) {
            copiers::move_together(object.view + offset, from, bytes, copiers::Reader::Processor);
            // It counts as a use: the next one finds the view pinned.
            for (std::size_t at = offset; at < offset + bytes; at += kPage) {
                if (!Arena::used(object.view + at)) Arena::pinned(object.view + at, Arena::Pinning::Use);
            }
            return true;
        });
}

bool covers(const Window& window, std::uint32_t first, std::uint32_t count) noexcept {
    const auto lowest = window.stretch.lowest();
    const auto span = window.stretch.contiguous()
                          ? window.stretch.count
                          : (window.stretch.count - 1) * static_cast<std::uint32_t>(std::abs(window.stretch.step)) + 1;
    return lowest < first + count && first < lowest + span;
}

// Calls end(window) for the windows of the object that `chosen` accepts, after their transfers ended.
template <class Chosen, class End>
CUresult end_windows(Object& object, Chosen&& chosen, End&& end) noexcept {
    Lookout* lookout = lookouts.known(static_cast<CUcontext>(object.context));
    if (lookout == nullptr || lookout->windows_used.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    auto result = CUDA_SUCCESS;
    std::scoped_lock lock(lookout->lock);
    ContextScope scope(object.context);
    CaptureRelaxed relaxed;
    for (auto& window : lookout->windows) {
        if (window.object != &object || !chosen(window)) continue;
        auto waited = scope.result();
        if (waited == CUDA_SUCCESS || window.arrived) waited = wait(*lookout, window);
        if (lost_context(waited)) waited = give_up(window);
        if (waited == CUDA_SUCCESS) {
            end(*lookout, window);
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
    Lookout* lookout = lookouts.of(static_cast<CUcontext>(object.context));
    if (lookout == nullptr || stretch.count == 0) return;
    ContextScope scope(object.context);
    if (scope.result() != CUDA_SUCCESS) return;
    CaptureRelaxed relaxed;
    const bool direct = view_is_pinned(object, stretch);
    std::scoped_lock lock(lookout->lock);
    tidy(*lookout);
    Window* window = free_window(*lookout);
    if (window == nullptr || !prepare(*lookout, *window)) return;
    window->stretch = stretch;
    if (!direct && !park(*lookout, *window, object)) return;
    window->object = &object;
    window->work = work;
    window->recorded = window->arrived = false;
    window->number = ++lookout->sent;
    lookout->windows_used.fetch_add(1, std::memory_order_release);
    std::size_t wanted = 0, bytes = 0, transfers = 0;
    for (std::uint32_t i = 0; i < window->stretch.count; ++i) {
        object.block(window->stretch.at(i)).expect();
        wanted += object.bytes_of(window->stretch.at(i));
    }
    trace::Transfer traced(trace::Kind::Fetch, "fetch ahead", wanted, object.report_id);
    window->sent = trace::on() ? ticks::look() : 0;
    window->bytes = wanted;
    auto result = CUDA_SUCCESS;
    const auto send = [&](std::size_t offset, std::size_t part, std::byte* to) {
        result = twice([&] { return driver.cuMemcpyDtoHAsync_v2(to, object.base + offset, part, lookout->stream); });
        if (result != CUDA_SUCCESS) return false;
        bytes += part;
        ++transfers;
        return true;
    };
    if (direct) {
        for_pieces(object, window->stretch,
                   [&](std::size_t at, std::size_t part) { return send(at, part, object.view + at); });
    } else {
        for_parked(
            object, *window, [](std::uint32_t) { return true; }, send);
    }
    if (result == CUDA_SUCCESS) {
        result = twice([&] { return driver.cuEventRecord(window->event, lookout->stream); });
        window->recorded = result == CUDA_SUCCESS;
    }
    object.traffic.to_host_bytes.fetch_add(bytes, std::memory_order_relaxed);
    object.traffic.to_host_transfers.fetch_add(transfers, std::memory_order_relaxed);
    if (result == CUDA_SUCCESS) return traced.done();
    // Blocks that nothing was sent for are not wasted.
    for (std::uint32_t i = 0; i < window->stretch.count; ++i) {
        const auto size = object.bytes_of(window->at(i));
        if (bytes == 0) object.block(window->at(i)).take_expected();
        bytes -= std::min(bytes, size);
    }
    // What has been sent for already must not arrive later: without an end the window stays, and whoever needs one of
    // its blocks waits again.
    window->work = kNothing;
    if (wait(*lookout, *window) == CUDA_SUCCESS) close(*lookout, *window);
}

CUresult settle(Object& object, std::uint32_t first, std::uint32_t count, std::uint64_t work) noexcept {
    return end_windows(
        object, [&](const Window& window) { return covers(window, first, count); },
        [&](Lookout& lookout, Window& window) {
            if (window.work != work || work == kNothing) {
                close(lookout, window);
            } else if (window.bay_count != 0) {
                deliver(object, window, first, count);
            }
        });
}

CUresult drop(Object& object) noexcept {
    return end_windows(
        object, [](const Window&) { return true; }, [](Lookout& lookout, Window& window) { close(lookout, window); });
}

void used(Object& object, std::uint32_t block) noexcept {
    object.traffic.ahead_used_bytes.fetch_add(object.bytes_of(block), std::memory_order_relaxed);
}
void wasted(Object& object, std::uint32_t block) noexcept {
    object.traffic.ahead_wasted_bytes.fetch_add(object.bytes_of(block), std::memory_order_relaxed);
}

void forget(CUcontext context) noexcept {
    Lookout* lookout = lookouts.known(context);
    if (lookout == nullptr) return;
    std::scoped_lock lock(lookout->lock);
    lookout->stream = nullptr;
    // An object that could not be freed keeps no mark of what will never arrive.
    for (auto& window : lookout->windows) {
        if (window.object != nullptr) close(*lookout, window);
    }
    lookout->windows = {};
    lookout->parking.forget();
}

}  // namespace hpe::read_ahead
