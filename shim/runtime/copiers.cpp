// SPDX-License-Identifier: MIT
// A table of jobs that helpers and callers take from, each by one compare-and-swap.
#include "shim/runtime/copiers.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "shim/base/shared_copy.h"
#include "shim/base/stream_copy.h"
#include "shim/base/thread.h"
#include "shim/runtime/trace.h"

namespace hpe::copiers {

namespace {

enum class Stage : std::uint32_t { Free, Filling, Ready, Taken, Done };

struct alignas(64) Place {
    std::atomic<Stage> stage{Stage::Free};
    Rows rows{};  // from nowhere: nothing to copy, pages to map
    Reader reader = Reader::Processor;
};

// As many as a dozen large copies at once keep busy.
constexpr unsigned kPlaces = 256;
constinit std::array<Place, kPlaces> places;
// A queue in the order of handing over, so that what was wanted first is there first: jobs [first, last) stand at their
// number modulo kPlaces. Some of them their own thread has copied meanwhile.
constinit std::atomic<std::uint64_t> first{0}, last{0};
constinit std::atomic<std::uint32_t> handed_over{0};  // moves with each: what sleeping helpers watch
constinit std::atomic<bool> sleeping{false};          // some may be asleep
constinit std::atomic<unsigned> helpers{0};
constinit std::mutex start_mutex;

void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

bool take(Place& place) noexcept {
    auto stage = Stage::Ready;
    return place.stage.compare_exchange_strong(stage, Stage::Taken, std::memory_order_acquire);
}

// Reading maps the pages around those that are there already at once, writing takes a trap for each; shared memory is
// writable then, too, if its mapping is (256 MiB: 31 against 180 ms).
void map(void* at, std::size_t bytes) noexcept {
#ifndef MADV_POPULATE_READ
    constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14
#endif
    madvise(at, bytes, MADV_POPULATE_READ);
}

void carry_out(const Rows& rows, Reader reader) noexcept {
    if (rows.from == nullptr) {
        map(rows.to, rows.width);
    } else {
        move(rows, reader);
    }
}

void copy(Place& place) noexcept {
    carry_out(place.rows, place.reader);
    // Sequentially consistent: the stores of a copy leave the processor long after it; notify_one() must not look for
    // sleepers before they can see this one (seen on an H200's host: the caller slept for ever).
    place.stage.store(Stage::Done, std::memory_order_seq_cst);
    place.stage.notify_one();
}

// The oldest job that nobody has begun.
bool work() noexcept {
    for (;;) {
        auto number = first.load(std::memory_order_acquire);
        if (number == last.load(std::memory_order_acquire)) return false;
        Place& place = places[number % kPlaces];
        if (place.stage.load(std::memory_order_relaxed) == Stage::Filling) return false;  // in a moment
        const bool mine = take(place);
        first.compare_exchange_strong(number, number + 1, std::memory_order_acq_rel);
        if (!mine) continue;
        copy(place);
        return true;
    }
}

// Where helpers are to run; `placements` moves with it.
constinit std::mutex place_mutex;
cpu_set_t wanted_place;
constinit std::atomic<unsigned> placements{0};

void move_if_placed(unsigned& known) noexcept {
    const auto now = placements.load(std::memory_order_acquire);
    if (now == known) [[likely]] {
        return;
    }
    std::scoped_lock lock(place_mutex);
    known = now;
    sched_setaffinity(0, sizeof wanted_place, &wanted_place);
}

void serve(void*) noexcept {
    // Between the blocks of one copy a helper is wanted again within microseconds: less than a sleep and a wake cost.
    constexpr unsigned kSpins = 2000;
    unsigned placed = 0;
    for (;;) {
        const auto seen = handed_over.load(std::memory_order_acquire);
        move_if_placed(placed);
        bool worked = work();
        for (unsigned i = 0; !worked && i < kSpins; ++i) {
            pause();
            worked = work();
        }
        if (worked) continue;
        sleeping.store(true, std::memory_order_seq_cst);
        handed_over.wait(seen, std::memory_order_seq_cst);
    }
}

}  // namespace

void move(const Rows& rows, Reader reader) noexcept {
    const trace::Span span(trace::Kind::Copy, "copy", rows.width * rows.count);
    for (std::size_t i = 0; i < rows.count; ++i) {
        auto* const to = rows.to + i * rows.to_pitch;
        const auto* const from = rows.from + i * rows.from_pitch;
        switch (reader) {
            case Reader::Processor: std::memcpy(to, from, rows.width); break;
            case Reader::Nobody: stream_copy(to, from, rows.width); break;
            case Reader::Device: shared_copy(to, from, rows.width); break;
        }
    }
}

unsigned running() noexcept { return helpers.load(std::memory_order_acquire); }

unsigned start(unsigned wanted) noexcept {
    const auto now = helpers.load(std::memory_order_acquire);
    if (now != 0 || wanted == 0) return now;
    std::scoped_lock lock(start_mutex);
    auto made = helpers.load(std::memory_order_relaxed);
    if (made != 0) return made;
    while (made < wanted && start_thread("hpe-copier", serve)) ++made;
    helpers.store(made, std::memory_order_release);
    return made;
}

void place(const cpu_set_t& processors) noexcept {
    std::scoped_lock lock(place_mutex);
    wanted_place = processors;
    placements.fetch_add(1, std::memory_order_release);
}

void Job::begin(const Rows& rows, Reader reader) noexcept { hand_over(rows, reader); }

void Job::begin_mapping(void* at, std::size_t bytes) noexcept {
    hand_over({static_cast<std::byte*>(at), nullptr, bytes}, Reader::Processor);
}

void Job::hand_over(const Rows& rows, Reader reader) noexcept {
    constexpr int kTries = 4;  // others may hand over at the same moment
    for (int i = 0; i < kTries && helpers.load(std::memory_order_acquire) != 0; ++i) {
        // Before the number is given out nobody looks at the place, but for those who still hold it.
        auto number = last.load(std::memory_order_relaxed);
        Place& place = places[number % kPlaces];
        auto stage = Stage::Free;
        if (!place.stage.compare_exchange_strong(stage, Stage::Filling, std::memory_order_acquire)) continue;
        if (!last.compare_exchange_strong(number, number + 1, std::memory_order_acq_rel)) {
            place.stage.store(Stage::Free, std::memory_order_release);
            continue;
        }
        place.rows = rows;
        place.reader = reader;
        place_ = static_cast<unsigned>(&place - places.data());
        place.stage.store(Stage::Ready, std::memory_order_release);
        handed_over.fetch_add(1, std::memory_order_seq_cst);
        // All at once: the first of many jobs wakes those who will do the others.
        if (sleeping.load(std::memory_order_seq_cst) && sleeping.exchange(false, std::memory_order_seq_cst)) {
            handed_over.notify_all();
        }
        return;
    }
    place_ = kNone;
    carry_out(rows, reader);
}

bool Job::help() noexcept {
    if (place_ == kNone || !take(places[place_])) return false;
    copy(places[place_]);
    return true;
}

bool Job::done() const noexcept {
    return place_ == kNone || places[place_].stage.load(std::memory_order_acquire) == Stage::Done;
}

void Job::finish() noexcept {
    if (place_ == kNone) return;
    Place& place = places[place_];
    help();
    constexpr unsigned kSpins = 1000;  // a helper has begun it: it takes less than a sleep
    for (unsigned i = 0; i < kSpins && !done(); ++i) pause();
    for (auto stage = place.stage.load(std::memory_order_acquire); stage != Stage::Done;
         stage = place.stage.load(std::memory_order_acquire)) {
        place.stage.wait(stage, std::memory_order_acquire);
    }
    place.stage.store(Stage::Free, std::memory_order_release);
    place_ = kNone;
}

namespace {

// begin(job, offset, bytes) for each of a few jobs of at least `smallest` bytes; done on return.
template <class Begin>
void together(std::size_t bytes, std::size_t smallest, Begin&& begin) noexcept {
    constexpr std::size_t kMost = 64, kPage = 4096;
    const auto piece = std::max(smallest, (bytes / kMost / kPage + 1) * kPage);
    std::array<Job, kMost> jobs;
    std::size_t count = 0;
    for (std::size_t from = 0; from < bytes; from += piece) begin(jobs[count++], from, std::min(piece, bytes - from));
    for (std::size_t i = 0; i < count; ++i) jobs[i].help();
    for (std::size_t i = 0; i < count; ++i) jobs[i].finish();
}

}  // namespace

void move_together(void* to, const void* from, std::size_t bytes, Reader reader) noexcept {
    constexpr std::size_t kSmallest = std::size_t{64} << 10;  // below, a job costs more to hand over than to copy
    auto* const target = static_cast<std::byte*>(to);
    const auto* const source = static_cast<const std::byte*>(from);
    if (bytes < 2 * kSmallest || running() == 0) return move({target, source, bytes}, reader);
    together(bytes, kSmallest, [&](Job& job, std::size_t offset, std::size_t part) {
        job.begin({target + offset, source + offset, part}, reader);
    });
}

void map_pages(void* at, std::size_t bytes, bool made) noexcept {
    // To wake helpers for pages that are there costs more than to map them, and each processor that took part is
    // interrupted by every change of the mapping that follows (H200's host: 46 against 53 ms for arrays of 32 MiB).
    if (!made || running() == 0) return map(at, bytes);
    // A helper holds the kernel's lock on the address space as long as it maps one.
    constexpr std::size_t kSmallest = std::size_t{256} << 10;
    together(bytes, kSmallest, [&](Job& job, std::size_t offset, std::size_t part) {
        job.begin_mapping(static_cast<std::byte*>(at) + offset, part);
    });
}

}  // namespace hpe::copiers
