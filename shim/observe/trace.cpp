// SPDX-License-Identifier: MIT
// Chunks of records: each belongs to one thread, and all are on one list that only grows.
#include "shim/observe/trace.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"

namespace hpe::trace {

HPE_READ_OFTEN constinit Flag enabled{false};

namespace {

struct Chunk {
    Chunk* next = nullptr;  // on the list, older
    int thread = 0;
    std::uint32_t capacity = 0;
    std::atomic<std::uint32_t> count{0};  // complete ones
    char name[16] = {};                   // the thread's, when it made the chunk

    Record* records() noexcept { return reinterpret_cast<Record*>(this + 1); }
};
static_assert(sizeof(Chunk) % alignof(Record) == 0);

constinit std::atomic<Chunk*> chunks{nullptr};
constinit std::atomic<std::size_t> taken{0};  // bytes
constinit std::atomic<bool> full{false};
constinit std::atomic<std::uint64_t> lost{0};

// A thread's first chunk is small: programs may make thousands of threads that record little.
constexpr std::size_t kSmallest = std::size_t{4} << 10, kLargest = std::size_t{256} << 10;

// In ticks: no more than a second or two at the rates that processors count at.
constexpr std::uint64_t kPointsApart = std::uint64_t{1} << 31;

struct Place {
    Chunk* chunk = nullptr;
    std::size_t next_bytes = kSmallest;
    std::uint64_t last_point = 0;  // ticks
    bool busy = false;             // a record is being made
};
thread_local constinit Place place __attribute__((tls_model("initial-exec")));

Chunk* new_chunk(std::size_t bytes) noexcept {
    if (full.load(std::memory_order_relaxed)) return nullptr;
    const ErrnoKept kept;
    void* memory = MAP_FAILED;
    if (taken.fetch_add(bytes, std::memory_order_relaxed) + bytes <= kMostBytes) {
        // All pages are mapped at once: a trap for each page at its first touch costs more than everything else here.
        memory = kernel::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
    }
    if (memory == MAP_FAILED) {
        full.store(true, std::memory_order_relaxed);
        return nullptr;
    }
    auto* chunk = new (memory) Chunk;
    chunk->thread = static_cast<int>(syscall(SYS_gettid));
    chunk->capacity = static_cast<std::uint32_t>((bytes - sizeof(Chunk)) / sizeof(Record));
    prctl(PR_GET_NAME, chunk->name);
    chunk->next = chunks.load(std::memory_order_relaxed);
    while (!chunks.compare_exchange_weak(chunk->next, chunk, std::memory_order_release)) {
    }
    return chunk;
}

// False: kMostBytes are used up.
bool keep(const Record& record) noexcept {
    Chunk* chunk = place.chunk;
    auto count = chunk != nullptr ? chunk->count.load(std::memory_order_relaxed) : 0;
    if (chunk == nullptr || count == chunk->capacity) {
        Chunk* const fresh = new_chunk(place.next_bytes);
        if (fresh != nullptr) {
            place.next_bytes = std::min(place.next_bytes * 2, kLargest);
            place.chunk = fresh;
            count = 0;
        }
        chunk = fresh;
    }
    if (chunk == nullptr) return false;
    new (chunk->records() + count) Record(record);
    chunk->count.store(count + 1, std::memory_order_release);
    // Prefetches the next record's memory, which was never used.
    __builtin_prefetch(reinterpret_cast<const char*>(chunk->records() + count + 2) - 1, 1);
    return true;
}

// Among the thread's records, whose ticks it translates.
void keep_point() noexcept {
    const auto point = ticks::point();
    place.last_point = point.ticks;
    keep({.begin = point.ticks, .end = point.nanoseconds, .kind = Kind::Point});
}

}  // namespace

void add(const Record& record) noexcept {
    if (place.busy) {
        lost.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    place.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!keep(record)) {
        lost.fetch_add(1, std::memory_order_relaxed);
    } else if (ticks::by_counter && record.kind != Kind::Kernel && record.end > place.last_point + kPointsApart) {
        keep_point();
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    place.busy = false;
}

void add_until_now(Record record) noexcept {
    record.end = ticks::now();
    if (on()) add(record);
}

void for_each(Each each, void* argument) {
    for (auto* chunk = chunks.load(std::memory_order_acquire); chunk != nullptr; chunk = chunk->next) {
        const auto count = chunk->count.load(std::memory_order_acquire);
        for (std::uint32_t i = 0; i < count; ++i) each(argument, chunk->records()[i], chunk->thread, chunk->name);
    }
}

std::uint64_t dropped() noexcept { return lost.load(std::memory_order_relaxed); }

void in_child(bool inert) noexcept {
    if (inert) enabled.store(false, std::memory_order_relaxed);
    // Only the thread that forked exists in the child. The parent's chunks are not freed: another thread of the parent
    // may have been writing to one.
    place = {};
    chunks.store(nullptr, std::memory_order_relaxed);
    taken.store(0, std::memory_order_relaxed);
    lost.store(0, std::memory_order_relaxed);
    full.store(false, std::memory_order_relaxed);
}

}  // namespace hpe::trace
