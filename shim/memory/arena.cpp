// SPDX-License-Identifier: MIT
// Segments of shared memory, cut into page-granular ranges; pinning by chunk.
#include "shim/memory/arena.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <new>
#include <unordered_map>
#include <utility>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/machine.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"

namespace hpe {

namespace {

constexpr std::size_t kSegment = std::size_t{1} << 30;
constexpr std::size_t kMaxSegments = 4096;

// A program with sparse accesses uses most chunks only once, for which pinning does not pay: it takes as long as six
// small transfers through bounce buffers. These hold up each other, so what is used again and again is pinned.
constexpr std::uint32_t kMovedBeforePinning = 64u << 10;
enum class Pin : std::uint8_t { No, Busy, Pinned, Refused };
enum class Pages : std::uint8_t { Small, Asked, Huge };
struct Chunk {
    std::atomic<Pin> pin{Pin::No};
    std::atomic<std::uint32_t> moved{0};  // bytes, up to kMovedBeforePinning
    std::atomic<Pages> pages{Pages::Small};
    std::atomic<void*> context{nullptr};
};

struct Segment {
    std::byte* view = nullptr;
    std::size_t size = 0;
    std::byte* closed = nullptr;
    Chunk* chunks = nullptr;
};

// Read without a lock: entries are added in order, and stay as they were when they were counted.
std::array<Segment, kMaxSegments> segments;
constinit std::atomic<std::size_t> segment_count{0};

Mutex mutex;
std::size_t idle_touched HPE_GUARDED_BY(mutex) = 0;  // bytes in free ranges that may still own pages
constinit std::atomic<bool> huge_pages_to_be_had{true};

// A chunk that is shared by what was taken for one chunk of device addresses.
struct Shared {
    std::byte* view = nullptr;
    std::size_t takers = 0;
    bool touched = false;
};
std::unordered_map<std::uintptr_t, Shared>& shared_chunks() HPE_REQUIRES(mutex) {
    static NeverDestroyed<std::unordered_map<std::uintptr_t, Shared>> chunks;
    return *chunks;
}

// Ranges that do not end in the chunk where they begin, or fill it, share none.
bool shares(std::uintptr_t address, std::size_t size) noexcept {
    return size < Arena::kChunk && address % Arena::kChunk + size <= Arena::kChunk;
}

std::map<std::byte*, std::size_t>& free_ranges() HPE_REQUIRES(mutex) {
    static NeverDestroyed<std::map<std::byte*, std::size_t>> ranges;
    return *ranges;
}

Segment* segment_of(const std::byte* view) noexcept {
    const auto count = segment_count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        if (view >= segments[i].view && view < segments[i].view + segments[i].size) return &segments[i];
    }
    return nullptr;
}

// That holds `view`.
Chunk& chunk_of(const std::byte* view) noexcept {
    const Segment& segment = *segment_of(view);
    return segment.chunks[static_cast<std::size_t>(view - segment.view) / Arena::kChunk];
}

// Calls run(chunk, at) for each chunk that lies wholly in the range.
template <class Run>
void for_whole_chunks(std::byte* view, std::size_t size, Run&& run) noexcept {
    const Segment& segment = *segment_of(view);
    const auto begin = static_cast<std::size_t>(view - segment.view);
    for (auto i = (begin + Arena::kChunk - 1) / Arena::kChunk; i < (begin + size) / Arena::kChunk; ++i) {
        run(segment.chunks[i], segment.view + i * Arena::kChunk);
    }
}

// Machines may have more memory later than at the start.
bool too_much_idle(std::size_t bytes) noexcept {
    static std::size_t bound = 0;
    if (bytes > bound) bound = machine::physical_memory() / 8;
    return bytes > bound;
}

// Addresses for a segment and for its closed duplicate, which lies in front of it; nothing may be accessed there yet.
// They are far from where the kernel places mappings by itself. That is where the driver takes its addresses, and an
// allocation that lies half a gigabyte from its other ones costs page directories of the device that it makes and drops
// with it (docs/hardware.md).
std::byte* reserve_addresses(std::size_t bytes) noexcept HPE_REQUIRES(mutex) {
    constexpr std::size_t kFar = std::size_t{64} << 30;
    const auto reserve = [&](std::uintptr_t wanted) {
        auto* const there = kernel::mmap(reinterpret_cast<void*>(wanted), bytes, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        return there == MAP_FAILED ? nullptr : static_cast<std::byte*>(there);
    };
    if (const auto count = segment_count.load(std::memory_order_relaxed); count != 0) {
        const auto last = reinterpret_cast<std::uintptr_t>(segments[count - 1].closed);
        return reserve(last > bytes ? last - bytes : 0);
    }
    auto* const near = reserve(0);
    const auto at = reinterpret_cast<std::uintptr_t>(near);
    auto* const far = at > kFar ? reserve(at - kFar) : nullptr;
    if (far == nullptr) return near;
    kernel::munmap(near, bytes);
    return far;
}

// Maps a segment's memory, aligned to a huge page, and its closed duplicate. The kernel aligns only to a page: so one
// chunk more is reserved, and the rest is unmapped.
bool map_segment(Segment& segment, std::size_t size) noexcept HPE_REQUIRES(mutex) {
    const auto reserved = 2 * size + Arena::kChunk;
    auto* const raw = reserve_addresses(reserved);
    if (raw == nullptr) return false;
    const auto before = (Arena::kChunk - reinterpret_cast<std::uintptr_t>(raw) % Arena::kChunk) % Arena::kChunk;
    auto* const closed = raw + before;
    auto* const view = closed + size;
    // In a process that locks its memory (mlockall(2)) all of an accessible mapping would be filled at once. Every
    // mapping made from this one inherits MADV_DONTFORK: a forked child has no device and must not write our copies. A
    // length of 0 duplicates a shared mapping instead of moving it (mremap(2)).
    const bool mapped =
        kernel::mmap(view, size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED) != MAP_FAILED &&
        kernel::munlock(view, size) == 0 && kernel::madvise(view, size, MADV_DONTFORK) == 0 &&
        kernel::mremap(view, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, closed) != MAP_FAILED &&
        kernel::mprotect(view, size, PROT_READ | PROT_WRITE) == 0;
    if (!mapped) {
        kernel::munmap(raw, reserved);
        return false;
    }
    if (before != 0) kernel::munmap(raw, before);
    kernel::munmap(view + size, reserved - before - 2 * size);
    segment.size = size;
    segment.closed = closed;
    segment.view = view;
    return true;
}

// False: there is no memory for the entry.
bool add_free_range(std::byte* view, std::size_t size) noexcept HPE_REQUIRES(mutex) {
    auto& ranges = free_ranges();
    try {
        ranges.emplace(view, size);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

bool add_segment(std::size_t at_least) HPE_REQUIRES(mutex) {
    const auto index = segment_count.load(std::memory_order_relaxed);
    if (index == kMaxSegments) return false;
    const auto size = std::max(kSegment, (at_least + Arena::kChunk - 1) / Arena::kChunk * Arena::kChunk);
    auto& segment = segments[index];
    segment.chunks = new (std::nothrow) Chunk[size / Arena::kChunk];
    if (segment.chunks == nullptr || !map_segment(segment, size)) {
        delete[] segment.chunks;
        return false;
    }
    if (!add_free_range(segment.view, size)) {
        kernel::munmap(segment.closed, 2 * size);
        delete[] segment.chunks;
        return false;
    }
    segment_count.store(index + 1, std::memory_order_release);
    return true;
}

// Where in a free range an allocation of `size` may start, or nullptr.
std::byte* place_in(std::byte* begin, std::size_t length, std::size_t size) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const auto in_chunk = address % Arena::kChunk;
    const bool align = in_chunk != 0 && (size >= Arena::kChunk || in_chunk + size > Arena::kChunk);
    auto* start = align ? begin + (Arena::kChunk - in_chunk) : begin;
    return static_cast<std::size_t>(start - begin) + size <= length ? start : nullptr;
}

// Before the chunk is pinned: pinned pages cannot be replaced.
void make_huge(Chunk& chunk, std::byte* at) noexcept {
    if (chunk.pages.load(std::memory_order_relaxed) != Pages::Small ||
        !huge_pages_to_be_had.load(std::memory_order_relaxed) ||
        chunk.pages.exchange(Pages::Asked, std::memory_order_relaxed) != Pages::Small) {
        return;
    }
    const ErrnoKept kept;
    constexpr std::size_t kPage = 4096;
    kernel::madvise(at, kPage, MADV_POPULATE_READ);  // the kernel collapses only ranges with a page in them
    if (kernel::madvise(at, Arena::kChunk, MADV_COLLAPSE) == 0) {
        chunk.pages.store(Pages::Huge, std::memory_order_relaxed);
    } else if (errno != EAGAIN) {
        // Not with this kernel or for this process, or memory is short or fragmented: further attempts would cost time.
        huge_pages_to_be_had.store(false, std::memory_order_relaxed);
    }
}

void unpin(Chunk& chunk, std::byte* view) noexcept {
    if (chunk.pin.load(std::memory_order_acquire) == Pin::Pinned) {
        ContextScope scope(chunk.context.load(std::memory_order_relaxed));
        if (scope.result() == CUDA_SUCCESS) driver.cuMemHostUnregister(view);
        pinned::give_back(Arena::kChunk);
    }
    chunk.moved.store(0, std::memory_order_relaxed);
    chunk.pin.store(Pin::No, std::memory_order_release);
}

// Gives the pages of a free range back to the kernel; whole chunks only, since a chunk is pinned as a whole.
void trim(std::byte* view, std::size_t size) noexcept {
    for_whole_chunks(view, size, [](Chunk& chunk, std::byte* at) {
        unpin(chunk, at);
        kernel::madvise(at, Arena::kChunk, MADV_REMOVE);
        chunk.pages.store(Pages::Small, std::memory_order_relaxed);
    });
}

std::byte* take_range(std::size_t size) HPE_REQUIRES(mutex) {
    auto& ranges = free_ranges();
    for (int attempt = 0; attempt < 2; ++attempt) {
        for (auto it = ranges.begin(); it != ranges.end(); ++it) {
            auto* const begin = it->first;
            const auto length = it->second;
            auto* const start = place_in(begin, length, size);
            if (start == nullptr) continue;
            const auto before = static_cast<std::size_t>(start - begin), after = length - before - size;
            if (before == 0) {
                auto entry = ranges.extract(it);
                entry.key() = start + size;
                entry.mapped() = after;
                if (after != 0) ranges.insert(std::move(entry));
            } else if (after == 0 || add_free_range(start + size, after)) {
                it->second = before;
            } else {
                return nullptr;
            }
            idle_touched -= std::min(idle_touched, size);
            return start;
        }
        if (!add_segment(size)) break;
    }
    return nullptr;
}

void give_back_range(std::byte* view, std::size_t size) HPE_REQUIRES(mutex) {
    // Neighbouring ranges of one segment become one again.
    auto& ranges = free_ranges();
    auto after = ranges.lower_bound(view);
    if (after != ranges.end() && view + size == after->first && segment_of(view) == segment_of(after->first)) {
        size += after->second;
        after = ranges.erase(after);
    }
    if (after != ranges.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == view && segment_of(before->first) == segment_of(view)) {
            before->second += size;
            return;
        }
    }
    if (!add_free_range(view, size)) trim(view, size);  // never used again, but its pages are
}

}  // namespace

std::byte* Arena::take(std::uintptr_t address, std::size_t size) noexcept try {
    const Locked lock(mutex);
    if (!shares(address, size)) return take_range(size);
    Shared& shared = shared_chunks()[address / kChunk];
    if (shared.takers == 0) shared = {take_range(kChunk), 0, false};
    if (shared.view == nullptr) return nullptr;
    ++shared.takers;
    return shared.view + address % kChunk;
} catch (const std::bad_alloc&) {
    return nullptr;  // for the entry of a shared chunk
}

void Arena::give_back(std::byte* view, std::uintptr_t address, std::size_t size, bool touched) noexcept {
    Locked lock(mutex);
    if (shares(address, size)) {
        const auto it = shared_chunks().find(address / kChunk);
        Shared& shared = it->second;
        shared.touched = shared.touched || touched;
        if (--shared.takers != 0) return;
        view = shared.view;
        size = kChunk;
        touched = shared.touched;
        shared_chunks().erase(it);
    }
    if (touched && too_much_idle(idle_touched + size)) {
        // Nobody else has the range yet. Unlocked, since the driver may wait for the device before it unpins, and the
        // device for another thread's allocation.
        lock.unlock();
        trim(view, size);
        lock.lock();
    } else {
        // Also where nobody touched it in its last life: take() has subtracted it.
        idle_touched += size;
    }
    give_back_range(view, size);
}

std::byte* Arena::closed(std::byte* view) noexcept {
    const Segment* const segment = segment_of(view);
    return segment->closed + (view - segment->view);
}

void Arena::use_huge_pages(std::byte* view, std::size_t size) noexcept { for_whole_chunks(view, size, make_huge); }

bool Arena::huge(const std::byte* view) noexcept {
    return chunk_of(view).pages.load(std::memory_order_relaxed) == Pages::Huge;
}

bool Arena::used(const std::byte* view) noexcept { return chunk_of(view).moved.load(std::memory_order_relaxed) != 0; }

void Arena::note_use(std::byte* view, std::size_t bytes) noexcept {
    for_chunks(view, bytes, [](const std::byte* at, std::size_t part) {
        auto& moved = chunk_of(at).moved;
        // Two threads that count at once may count for one.
        const auto sum = moved.load(std::memory_order_relaxed) + part;
        moved.store(static_cast<std::uint32_t>(std::min<std::size_t>(sum, kMovedBeforePinning)),
                    std::memory_order_relaxed);
        return true;
    });
}

bool Arena::pinned(std::byte* view, bool may_pin) noexcept {
    Chunk& chunk = chunk_of(view);
    auto pin = chunk.pin.load(std::memory_order_acquire);
    if (pin != Pin::No || !may_pin) return pin == Pin::Pinned;
    if (chunk.moved.load(std::memory_order_relaxed) < kMovedBeforePinning ||
        !chunk.pin.compare_exchange_strong(pin, Pin::Busy, std::memory_order_acquire)) {
        return false;
    }
    bool done = pinned::take(kChunk);
    if (done) {
        auto* const begin = view - reinterpret_cast<std::uintptr_t>(view) % kChunk;
        make_huge(chunk, begin);
        chunk.context.store(current_context(), std::memory_order_relaxed);
        done = driver.cuMemHostRegister_v2(begin, kChunk, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
        if (!done) pinned::give_back(kChunk);
    }
    chunk.pin.store(done ? Pin::Pinned : Pin::Refused, std::memory_order_release);
    return done;
}

void Arena::forget_pins(void* context) noexcept {
    const auto count = segment_count.load(std::memory_order_acquire);
    for (std::size_t s = 0; s < count; ++s) {
        for (std::size_t i = 0; i < segments[s].size / kChunk; ++i) {
            Chunk& chunk = segments[s].chunks[i];
            if (chunk.pin.load(std::memory_order_acquire) == Pin::Pinned &&
                chunk.context.load(std::memory_order_relaxed) == context) {
                pinned::give_back(kChunk);
                chunk.moved.store(0, std::memory_order_relaxed);
                chunk.pin.store(Pin::No, std::memory_order_release);
            }
        }
    }
}

}  // namespace hpe
