// SPDX-License-Identifier: MIT
// The table of closed pages.
#include "shim/observe/unread.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/memory/mappings.h"
#include "shim/memory/pager.h"

#include "shim/base/in_fault_path.h"

namespace hpe::unread {

namespace {

constexpr std::uintptr_t kPage = 4096;

enum class State : unsigned char {
    Unused,
    Closed,
    Overwritten,  // open; counts if its owner's copy is made
    Unread,       // open, or freed; counts as soon as its call stack has a number
};

// A closed page has an entry at any moment, since a forked child sees the table as some moment left it.
struct Entry {
    std::atomic<State> state{State::Unused};
    std::uintptr_t begin = 0, end = 0;
    malloc_chunk::Chunk chunk{};
    backtrace::Ticket ticket = backtrace::kNotTaken;
    std::uint64_t ticks = 0;
    const void* owner = nullptr;

    bool is(State wanted) const noexcept { return state.load(std::memory_order_relaxed) == wanted; }
    bool overlaps(std::uintptr_t from, std::uintptr_t to) const noexcept { return begin < to && from < end; }
};

// Held with signals blocked. Two mappings more for each entry are few of what a process may have.
constinit SpinLock guard;
constinit std::array<Entry, 1024> entries HPE_GUARDED_BY(guard);
constinit std::size_t used HPE_GUARDED_BY(guard) = 0;    // entries from here on were never used
constinit std::size_t victim HPE_GUARDED_BY(guard) = 0;  // the next to be opened for want of room
constinit std::atomic<bool> ended{false}, for_an_mpi{false};
constinit std::atomic<unsigned> opened{0};  // counts
thread_local constinit unsigned opened_seen __attribute__((tls_model("initial-exec"))) = 0;

std::uintptr_t end_of(std::uintptr_t at, std::size_t bytes) noexcept {
    return at + std::min<std::uintptr_t>(bytes, ~at);
}

template <class Visit>
void for_state(State state, Visit&& visit) noexcept HPE_REQUIRES(guard) {
    for (std::size_t i = 0; i < used; ++i) {
        if (entries[i].is(state)) visit(entries[i]);
    }
}

void leave_closed(Entry& entry, State next) noexcept HPE_REQUIRES(guard) {
    entry.state.store(next, std::memory_order_release);
    detail::closed.fetch_sub(1, std::memory_order_release);
}

// `page`: one of the entry's own. A chunk may have shrunk by realloc, and lost others.
bool is_closed(const Entry& entry, std::uintptr_t page) noexcept HPE_REQUIRES(guard) {
    return !kernel::can_be_read(page) && malloc_chunk::holds(entry.chunk, page, kPage);
}

// Opens a closed entry, which then has the state `next`; Unread, if its memory was freed.
bool open(Entry& entry, std::uintptr_t page, State next) noexcept HPE_REQUIRES(guard) {
    if (!is_closed(entry, page)) {
        leave_closed(entry, State::Unread);
        return false;
    }
    pager::protect(entry.begin, entry.end - entry.begin, hpe::State::Dirty);
    opened.fetch_add(1, std::memory_order_release);
    leave_closed(entry, next);
    return true;
}

void count_unread() noexcept HPE_REQUIRES(guard) {
    for_state(State::Unread, [](Entry& entry) {
        backtrace::Payload costs{};
        costs[call_stacks::Cost::UnreadBytes] = entry.end - entry.begin;
        costs[call_stacks::Cost::UnreadTicks] = entry.ticks;
        if (call_stacks::add_to(entry.ticket, costs)) entry.state.store(State::Unused, std::memory_order_relaxed);
    });
}

Entry* find_unused() noexcept HPE_REQUIRES(guard) {
    for (std::size_t i = 0; i < used; ++i) {
        if (entries[i].is(State::Unused)) return &entries[i];
    }
    return used < entries.size() ? &entries[used++] : nullptr;
}

// Where all are in use: those of freed memory are not needed any more, and of the others one is opened.
Entry* unused() noexcept HPE_REQUIRES(guard) {
    count_unread();
    if (Entry* const entry = find_unused()) return entry;
    for_state(State::Closed, [](Entry& entry) {
        guard.assume_held();
        if (!is_closed(entry, entry.begin)) leave_closed(entry, State::Unread);
    });
    count_unread();
    if (Entry* const entry = find_unused()) return entry;
    Entry& oldest = entries[victim++ % entries.size()];
    if (oldest.is(State::Closed)) open(oldest, oldest.begin, State::Unused);
    return oldest.is(State::Unused) ? &oldest : nullptr;
}

}  // namespace

void detail::open_range(std::uintptr_t at, std::size_t bytes) noexcept {
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    const Locked lock(guard);
    for_state(State::Closed, [&](Entry& entry) {
        guard.assume_held();
        if (entry.overlaps(at, end_of(at, bytes))) open(entry, entry.begin, State::Unused);
    });
}

void open_all() noexcept {
    if (any()) detail::open_range(0, ~std::size_t{0});
}

void Overwriting::begin(std::uintptr_t to, std::size_t to_bytes, std::uintptr_t from, std::size_t from_bytes,
                        bool all) noexcept {
    detail::open_range(from, from_bytes);
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    const Locked lock(guard);
    for_state(State::Closed, [&](Entry& entry) {
        guard.assume_held();
        const auto end = end_of(to, to_bytes);
        if (!entry.overlaps(to, end)) return;
        const bool covered = all && to <= entry.begin && entry.end <= end;
        entry.owner = this;
        if (open(entry, entry.begin, covered ? State::Overwritten : State::Unused) && covered) some_ = true;
    });
}

void Overwriting::end() noexcept {
    const SignalsBlocked blocked;
    const Locked lock(guard);
    for_state(State::Overwritten, [&](Entry& entry) {
        if (entry.owner == this) entry.state.store(made_ ? State::Unread : State::Unused, std::memory_order_relaxed);
    });
}

void close(const Brought& brought, backtrace::Ticket ticket) noexcept {
    if (ticket == backtrace::kNotTaken || mappings::scarce()) return;
    open(reinterpret_cast<void*>(brought.begin), brought.bytes);
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    const Locked lock(guard);
    if (ended.load(std::memory_order_relaxed)) return;
    Entry* const entry = unused();
    if (entry == nullptr) return;
    entry->begin = brought.begin;
    entry->end = brought.begin + brought.bytes;
    entry->chunk = brought.chunk;
    entry->ticket = ticket;
    entry->ticks = brought.ticks;
    detail::closed.fetch_add(1, std::memory_order_relaxed);
    entry->state.store(State::Closed, std::memory_order_seq_cst);
    if (kernel::mprotect(reinterpret_cast<void*>(brought.begin), brought.bytes, PROT_NONE) != 0) {
        leave_closed(*entry, State::Unused);
    }
    mappings::changed();
}

malloc_chunk::Chunk known_chunk(std::uintptr_t begin, std::size_t bytes) noexcept {
    malloc_chunk::Chunk found{};
    if (!any()) return found;
    const SignalsBlocked blocked;
    const Locked lock(guard);
    for_state(State::Closed, [&](const Entry& entry) {
        const bool may_be = found.begin == 0 && entry.chunk.begin <= begin;
        if (may_be && malloc_chunk::holds(entry.chunk, begin, bytes)) found = entry.chunk;
    });
    return found;
}

bool may_open(std::uintptr_t address) noexcept {
    if (!any()) return false;
    const Locked lock(guard);
    for (std::size_t i = 0; i < used; ++i) {
        Entry& entry = entries[i];
        if (!entry.is(State::Closed) || !entry.overlaps(address, address + 1)) continue;
        // Of several entries all but one are of freed memory.
        if (open(entry, address / kPage * kPage, State::Unused)) return true;
    }
    return false;
}

bool opened_meanwhile() noexcept {
    const auto now = opened.load(std::memory_order_acquire);
    if (now == opened_seen) return false;
    opened_seen = now;
    return true;
}

void give_up() noexcept {
    for_an_mpi.store(true, std::memory_order_relaxed);
    ended.store(true, std::memory_order_relaxed);
    open_all();
}

bool given_up() noexcept { return for_an_mpi.load(std::memory_order_relaxed); }

// Another thread may have held the lock. The child's first thread is alone.
void in_child() noexcept HPE_NOT_ANALYSED {
    const ErrnoKept kept;
    guard.unlock();
    ended.store(true, std::memory_order_relaxed);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        Entry& entry = entries[i];
        if (entry.is(State::Closed)) open(entry, entry.begin, State::Unused);
        entry.state.store(State::Unused, std::memory_order_relaxed);
    }
    detail::closed.store(0, std::memory_order_relaxed);
}

void finish() noexcept {
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    const Locked lock(guard);
    ended.store(true, std::memory_order_relaxed);
    for_state(State::Closed, [](Entry& entry) {
        guard.assume_held();
        open(entry, entry.begin, State::Unread);
    });
    count_unread();
}

}  // namespace hpe::unread
