// SPDX-License-Identifier: MIT
// Two queues of jobs, for few and for all helpers. Helpers and callers take the parts of a job by counting them.
#include "shim/transfer/copiers.h"

#include <linux/magic.h>
#include <sched.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/base/shared_copy.h"
#include "shim/base/stream_copy.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/observe/trace.h"

namespace hpe::copiers {

namespace {

// State of a job in one word: the low half of its number, how many parts it has, and which part is begun next.
struct Open {
    static constexpr std::uint64_t kMost = 1u << 15;  // parts; as many threads may count past the last one at once
    std::uint64_t word;

    Open(std::uint64_t of) noexcept : word(of) {}
    Open(std::uint64_t number, std::uint64_t parts) noexcept : word(number << 32 | parts << 16) {}
    std::uint64_t next() const noexcept { return word & 0xffff; }
    bool any() const noexcept { return next() < (word >> 16 & 0xffff); }
    // By how much this job's number is higher than `number`; negative: job `number` is not there yet.
    int ahead_of(std::uint64_t number) const noexcept {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(word >> 32) - static_cast<std::uint32_t>(number));
    }
};

}  // namespace

enum class Task : std::uint8_t { Copy, Read, Call };

// What a job does. All but copies have one row, and only copies have `from`.
struct Work {
    Task task = Task::Copy;
    Rows rows{};
    Reader reader = Reader::Processor;
    File file{};
    std::atomic<bool>* incomplete = nullptr;  // set by a part that could not be read
    Job::Call* call = nullptr;
    void* context = nullptr;
    std::size_t step = 0;  // that `call` is called with

    // Rows where there are several, else bytes.
    std::size_t size() const noexcept { return rows.count > 1 ? rows.count : rows.width; }
    void carry_out(std::size_t begin, std::size_t size, trace::Share& share) const noexcept;
};

// Separate cache lines for what changes at the beginning of a part, at its end, and never.
struct Place {
    alignas(64) std::atomic<std::uint64_t> open{0};
    // Parts that have not ended; kAwaited: whose end the job's own thread may be asleep for. Without that mark each end
    // of a job would be a system call while helpers sleep (spin_lock.h says why).
    alignas(64) std::atomic<std::uint32_t> left{0};
    static constexpr std::uint32_t kAwaited = 1u << 31;
    std::atomic<bool> held{false};
    alignas(64) Work work{};
    std::size_t step = 0;  // of a part, as Work::size()

    // Copies up to `most` parts that nobody has begun, of whichever job is in this place: a job stays until all its
    // parts have ended. False: there was no such part.
    bool copy_parts(unsigned most) noexcept {
        trace::Share share;
        unsigned count = 0;
        for (auto mine = begin(); mine.any(); mine = begin()) {
            const auto at = mine.next() * step;
            work.carry_out(at, std::min(step, work.size() - at), share);
            // Sequentially consistent: a copy's stores leave the processor late. Sleepers must see this store before
            // notify_one() looks for them (seen on an H200's host: the caller slept for ever).
            if (left.fetch_sub(1, std::memory_order_seq_cst) == (kAwaited | 1)) left.notify_one();
            if (++count == most) break;
        }
        return count != 0;
    }

    bool done() const noexcept { return (left.load(std::memory_order_acquire) & ~kAwaited) == 0; }
    void wait() noexcept {
        while (!done()) {
            const auto before = left.fetch_or(kAwaited, std::memory_order_seq_cst) | kAwaited;
            if (before != kAwaited) wait_while(left, before);
        }
    }

private:
    Open begin() noexcept {
        const Open now = open.load(std::memory_order_relaxed);
        return now.any() ? open.fetch_add(1, std::memory_order_acq_rel) : now;
    }
};

namespace {

// First in, first out: jobs [first, last) are in the places of their number modulo kPlaces. Some of them may have been
// copied by their own threads meanwhile.
class Queue {
public:
    // nullptr: no place is free.
    Place* add(const Work& work, std::size_t part) noexcept;
    // Copies parts of the oldest job that has some to be begun; false: there is none.
    bool work() noexcept;
    // Number of jobs that were ever added.
    std::uint64_t jobs() const noexcept { return last_.load(std::memory_order_relaxed); }

private:
    static constexpr unsigned kPlaces = 128;  // as many as a dozen large copies at once keep busy
    std::array<Place, kPlaces> places_;
    // From 1: an unused place holds job number 0.
    alignas(64) std::atomic<std::uint64_t> first_{1};
    alignas(64) std::atomic<std::uint64_t> last_{1};
};
constinit std::array<Queue, 2> queues;

// What a crew's helpers sleep on. The first kFew helpers are woken for every job, the others for jobs of Crew::All.
struct alignas(64) Bell {
    std::atomic<std::uint32_t> rings{0};
    std::atomic<bool> sleeping{false};  // some may be asleep, or about to be

    // After a job was added. A helper that sleeps has set `sleeping` before this reads it, or it looked for jobs after
    // this one was added.
    void ring() noexcept {
        if (!sleeping.load(std::memory_order_seq_cst) || !sleeping.exchange(false, std::memory_order_seq_cst)) return;
        rings.fetch_add(1, std::memory_order_seq_cst);
        // Wakes all helpers: more jobs are likely to follow the first.
        rings.notify_all();
    }
};
constinit std::array<Bell, 2> bells;

template <class Array>
auto& of(Array& array, Crew crew) noexcept {
    return array[static_cast<unsigned>(crew)];
}

constinit std::atomic<unsigned> helpers{0}, born{0};
constinit Mutex mutex;  // held while helpers are made or placed

// Populating for reading maps many existing pages at once, for writing it traps for each page; pages of shared memory
// are writable after either, if the mapping is (256 MiB: 31 against 180 ms).
void map(void* at, std::size_t bytes) noexcept { kernel::madvise(at, bytes, MADV_POPULATE_READ); }

void copy(const Rows& rows, Reader reader) noexcept {
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

bool read_part(const File& file, std::byte* to, std::size_t bytes) noexcept {
    const iovec part{to, bytes};
    return kernel::raw(SYS_preadv2, file.descriptor, kernel::word(&part), 1, file.offset, 0, file.flags) ==
           static_cast<long>(bytes);
}

Place* Queue::add(const Work& work, std::size_t part) noexcept {
    const auto& rows = work.rows;
    if (rows.width == 0 || rows.count == 0) return nullptr;
    constexpr std::size_t kPage = 4096;
    const bool in_rows = rows.count > 1;
    const auto all = work.size();
    const auto least = (all + Open::kMost - 1) / Open::kMost;
    const auto step = in_rows ? std::max(part / rows.width, least)
                              : std::max(part, (least + kPage - 1) / kPage * kPage);  // pages are mapped whole
    const auto parts = (all + step - 1) / step;
    constexpr int kTries = 4;  // others may hand over at the same moment
    for (int i = 0; i < kTries; ++i) {
        auto number = last_.load(std::memory_order_relaxed);
        Place& place = places_[number % kPlaces];
        if (place.held.exchange(true, std::memory_order_acquire)) continue;
        if (!last_.compare_exchange_strong(number, number + 1, std::memory_order_seq_cst)) {
            place.held.store(false, std::memory_order_release);
            continue;
        }
        // All parts of the place's last job have been begun: nobody reads these members until `open` is stored.
        place.work = work;
        place.step = step;
        place.left.store(static_cast<std::uint32_t>(parts), std::memory_order_relaxed);
        place.open.store(Open(number, parts).word, std::memory_order_seq_cst);
        return &place;
    }
    return nullptr;
}

bool Queue::work() noexcept {
    for (;;) {
        auto number = first_.load(std::memory_order_acquire);
        if (number == last_.load(std::memory_order_seq_cst)) return false;
        Place& place = places_[number % kPlaces];
        const Open open = place.open.load(std::memory_order_seq_cst);
        const auto ahead = open.ahead_of(number);
        if (ahead < 0) return false;  // the job is being added right now
        if (ahead > 0 || !open.any()) {
            first_.compare_exchange_strong(number, number + 1, std::memory_order_acq_rel);
        } else if (place.copy_parts(~0u)) {
            return true;
        }
    }
}

enum class Home : std::uint8_t { Unknown, Near, Anywhere };
constinit Home home HPE_GUARDED_BY(mutex) = Home::Unknown;
// The processors for the helpers; `placements` counts the changes.
cpu_set_t wanted_place HPE_GUARDED_BY(mutex);
constinit std::atomic<unsigned> placements{0};

void move_if_placed(unsigned& known) noexcept {
    const auto now = placements.load(std::memory_order_acquire);
    if (now == known) [[likely]] {
        return;
    }
    const Locked lock(mutex);
    known = now;
    sched_setaffinity(0, sizeof wanted_place, &wanted_place);
}

void serve(void*) noexcept {
    name_this_thread("hpe-copier");
    // A mapped file of the program's that was cut short raises SIGBUS here, and the program may have a handler for it.
    kernel::sigprocmask(SIG_UNBLOCK, SIGBUS);
    // Between the blocks of one copy a helper is wanted again within microseconds: less than a sleep and a wake cost.
    constexpr unsigned kSpins = 2000;
    const auto crew = born.fetch_add(1, std::memory_order_relaxed) < kFew ? Crew::Few : Crew::All;
    Bell& bell = of(bells, crew);
    const auto work = [crew] {
        return (crew == Crew::Few && of(queues, Crew::Few).work()) || of(queues, Crew::All).work();
    };
    // If jobs came, other helpers took them before this one could: it stays awake all the same.
    const auto jobs = [crew] {
        return of(queues, Crew::All).jobs() + (crew == Crew::Few ? of(queues, Crew::Few).jobs() : 0);
    };
    unsigned placed = 0;
    for (;;) {
        const auto heard = bell.rings.load(std::memory_order_acquire);
        const auto known = jobs();
        move_if_placed(placed);
        bool worked = work();
        for (unsigned i = 0; !worked && i < kSpins; ++i) {
            __builtin_ia32_pause();
            worked = work();
        }
        if (worked || jobs() != known) continue;
        bell.sleeping.store(true, std::memory_order_seq_cst);
        if (!work()) wait_while(bell.rings, heard, std::memory_order_seq_cst);
    }
}

}  // namespace

void Work::carry_out(std::size_t begin, std::size_t size, trace::Share& share) const noexcept {
    switch (task) {
        case Task::Copy:
            copy(rows.count > 1 ? rows.part(begin, size) : Rows{rows.to + begin, rows.from + begin, size}, reader);
            share.add(rows.count > 1 ? rows.width * size : size);
            break;
        case Task::Call:
            for (const auto end = begin + size; begin < end; begin += step)
                call(context, begin, std::min(step, end - begin));
            break;
        case Task::Read:
            if (incomplete->load(std::memory_order_relaxed)) break;
            if (!read_part(file.from(file.offset + static_cast<std::int64_t>(begin)), rows.to + begin, size)) {
                incomplete->store(true, std::memory_order_relaxed);
            }
            share.add(size);
            break;
    }
}

// RWF_NOWAIT: Linux 4.14. Files in memory lack it, and need not be waited for.
File File::at_hand(int descriptor) noexcept {
    struct statfs system {};
    const bool in_memory = kernel::raw(SYS_fstatfs, descriptor, kernel::word(&system)) == 0 &&
                           (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
    return {descriptor, in_memory ? 0 : RWF_NOWAIT, 0};
}

void move(const Rows& rows, Reader reader) noexcept {
    trace::Share share;
    const Work work{.rows = rows, .reader = reader};
    work.carry_out(0, work.size(), share);
}

unsigned running() noexcept { return helpers.load(std::memory_order_acquire); }

unsigned start(unsigned wanted) noexcept {
    const auto now = helpers.load(std::memory_order_acquire);
    if (now != 0 || wanted == 0) return now;
    const Locked lock(mutex);
    auto made = helpers.load(std::memory_order_relaxed);
    if (made != 0) return made;
    while (made < wanted && start_thread(serve)) ++made;
    helpers.store(made, std::memory_order_release);
    return made;
}

unsigned place(const cpu_set_t* near) noexcept {
    const Locked lock(mutex);
    const auto use = [](const cpu_set_t& processors) {
        mutex.assume_held();
        wanted_place = processors;
        placements.fetch_add(1, std::memory_order_release);
    };
    cpu_set_t all;
    if (home == Home::Unknown) {
        home = near != nullptr ? Home::Near : Home::Anywhere;
        if (near != nullptr) use(*near);
    } else if (home == Home::Near && (near == nullptr || !CPU_EQUAL(near, &wanted_place))) {
        home = Home::Anywhere;
        // The main thread's processors: the calling thread may be bound to fewer.
        if (sched_getaffinity(getpid(), sizeof all, &all) == 0) use(all);
    }
    return home == Home::Near ? static_cast<unsigned>(CPU_COUNT(&wanted_place)) : 0;
}

void Job::begin(const Rows& rows, std::size_t part, Reader reader, Crew crew) noexcept {
    hand_over({.rows = rows, .reader = reader}, part, crew);
}

void Job::begin_reading(std::byte* to, const File& from, std::size_t bytes, std::size_t part,
                        std::atomic<bool>& incomplete) noexcept {
    hand_over({.task = Task::Read, .rows = {to, nullptr, bytes}, .file = from, .incomplete = &incomplete}, part,
              Crew::All);
}

void Job::begin_calls(std::size_t bytes, std::size_t part, Call* call, void* context, Crew crew) noexcept {
    hand_over({.task = Task::Call, .rows = {nullptr, nullptr, bytes}, .call = call, .context = context, .step = part},
              part, crew);
}

void Job::hand_over(const Work& work, std::size_t part, Crew crew) noexcept {
    place_ = running() != 0 ? of(queues, crew).add(work, part) : nullptr;
    if (place_ == nullptr) {
        trace::Share share;
        return work.carry_out(0, work.size(), share);
    }
    of(bells, Crew::Few).ring();
    if (crew == Crew::All) of(bells, Crew::All).ring();
}

bool Job::help() noexcept { return place_ != nullptr && place_->copy_parts(1); }

bool Job::done() const noexcept { return place_ == nullptr || place_->done(); }

void Job::finish() noexcept {
    if (place_ == nullptr) return;
    place_->copy_parts(~0u);
    constexpr unsigned kSpins = 1000;  // a helper has begun the last: it takes less than a sleep
    for (unsigned i = 0; i < kSpins && !done(); ++i) __builtin_ia32_pause();
    place_->wait();
    place_->held.store(false, std::memory_order_release);
    place_ = nullptr;
}

void move_together(void* to, const void* from, std::size_t bytes, Reader reader) noexcept {
    constexpr std::size_t kPart = std::size_t{64} << 10;  // below, a part costs more to begin than to copy
    const Rows rows{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
    if (bytes < 2 * kPart || running() == 0) return move(rows, reader);
    Job job;
    job.begin(rows, kPart, reader);
    job.finish();
}

bool read_together(std::byte* to, const File& from, std::size_t bytes) noexcept {
    constexpr std::size_t kPart = std::size_t{512} << 10;
    std::atomic<bool> incomplete{false};
    Job job;
    job.begin_reading(to, from, bytes, kPart, incomplete);
    job.finish();
    return !incomplete.load(std::memory_order_relaxed);
}

void map_pages(void* at, std::size_t bytes, bool made) noexcept {
    // For pages that exist already, waking helpers costs more than mapping. Besides, every later change of the mapping
    // interrupts each processor that took part (H200's host: 46 against 53 ms for arrays of 32 MiB).
    if (!made || running() == 0) return map(at, bytes);
    // A helper holds the kernel's lock on the address space as long as it maps a part.
    constexpr std::size_t kPart = std::size_t{256} << 10;
    Job job;
    job.begin_calls(
        bytes, kPart,
        [](void* pages, std::size_t offset, std::size_t part) { map(static_cast<std::byte*>(pages) + offset, part); },
        at);
    job.finish();
}

}  // namespace hpe::copiers
