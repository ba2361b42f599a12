// SPDX-License-Identifier: MIT
// What the program copied to the host and never looked at (HPE_UNREAD=on), for the report's call stacks.
//
// After a copy the whole pages of its destination are closed (PROT_NONE). The first access opens all of them: they were
// looked at, whether it reads or writes, since an instruction that reads and then writes traps as a write. Pages that
// are still closed when the next copy overwrites all of them, when their memory was freed, or when the process ends,
// were never looked at, and count for the copy that had brought them. Where that cannot be told they do not count.
//
// Which memory may be closed: copies/unread_copies.h. Whoever gives memory to the kernel or the driver has it opened
// first: doors of libc by lease.h, doors of copies by Overwriting. A system call that no door sees fails with EFAULT on
// closed pages.
//
// That memory was freed is not seen when it happens. So an entry may be old, and nothing is opened before malloc's own
// header says that the chunk is still there, and the kernel that the page cannot be read.
//
// Bytes. Threads: any; may_open(), opened_meanwhile() and in_child() are async-signal-safe, the others block signals
// while they hold the lock that may_open() takes. Memory is the program's. Errors: none; what cannot be closed is not
// counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/memory/malloc_chunk.h"
#include "shim/observe/call_stacks.h"

namespace hpe::unread {

namespace detail {
inline constinit std::atomic<unsigned> closed{0};
void open_range(std::uintptr_t at, std::size_t bytes) noexcept;
}  // namespace detail

// Whether anything is closed.
inline bool any() noexcept { return detail::closed.load(std::memory_order_relaxed) != 0; }

// The program, the kernel or the driver is about to access the range: opens what is closed of it.
inline void open(const void* at, std::size_t bytes) noexcept {
    if (any()) [[unlikely]]
        detail::open_range(reinterpret_cast<std::uintptr_t>(at), bytes);
}
// Who will access what is not known: opens all, and nothing counts.
void open_all() noexcept;

// A copy that reads one range and writes another, either of which may be the program's memory; from before the call to
// its end. `all`: it writes each byte between the first and the last.
class Overwriting {
public:
    Overwriting(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, bool all = true) noexcept {
        if (any()) [[unlikely]]
            begin(to, bytes, from, bytes, all);
    }
    Overwriting(std::uintptr_t to, std::size_t to_bytes, std::uintptr_t from, std::size_t from_bytes,
                bool all) noexcept {
        if (any()) [[unlikely]]
            begin(to, to_bytes, from, from_bytes, all);
    }
    ~Overwriting() {
        if (some_) end();
    }
    Overwriting(const Overwriting&) = delete;
    Overwriting& operator=(const Overwriting&) = delete;
    // The copy was made; else nothing counts.
    void made() noexcept { made_ = true; }

private:
    void begin(std::uintptr_t to, std::size_t to_bytes, std::uintptr_t from, std::size_t from_bytes, bool all) noexcept;
    void end() noexcept;
    bool some_ = false, made_ = false;
};

// What a copy has brought: `bytes` of whole pages, in a chunk, and how long the copy took for them, in ticks.
struct Brought {
    std::uintptr_t begin;
    std::size_t bytes;
    malloc_chunk::Chunk chunk;
    std::uint64_t ticks;
};
// Closes it. `ticket`: of the copy's call stack.
void close(const Brought& brought, backtrace::Ticket ticket) noexcept;
// The chunk of closed pages that the range lies in as well; one that begins at 0: there is none.
malloc_chunk::Chunk known_chunk(std::uintptr_t begin, std::size_t bytes) noexcept;

// The fault path: an access trapped. True: it was closed here, and is open.
bool may_open(std::uintptr_t address) noexcept;
// Whether another thread has opened something since this thread last asked: the access may have come too early, and is
// to be repeated.
bool opened_meanwhile() noexcept;

// Nothing is closed from here on: there is an MPI, whose other ranks read this process's memory.
void give_up() noexcept;
bool given_up() noexcept;
// In a forked child: all is open there.
void in_child() noexcept;
// The process ends, and call_stacks.h has finished: what is closed counts. Nothing is closed from here on.
void finish() noexcept;

}  // namespace hpe::unread
