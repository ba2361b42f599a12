// SPDX-License-Identifier: MIT
// Requests whose buffers were replaced: what is to be done when MPI says that they have completed. A request that needs
// nothing then, such as a send out of the view, is not here.
//
// MPI hands the handle of a completed request out again at once. So a door takes what it knows of a handle before it
// asks MPI, and gives it back if the request has not completed. MPI forbids two threads to complete one request.
//
// Handles are MPI's; a Pending is the table's until it is taken. Threads: any. Errors: without memory the request is
// waited for at once. What came and cannot be stored makes the functions that store it return false.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "shim/mpi/abi.h"
#include "shim/mpi/call_buffers.h"
#include "shim/mpi/held.h"
#include "shim/mpi/partitions.h"

namespace hpe::mpi::HPE_MPI_ABI {

// What of a buffer is written: all, as much as the status of a message says, all by a read of a file.
enum class Arrives { All, Message, FromFile };

struct Pending {
    Pending(CallBuffers&& replaced, Arrives how_much, bool is_persistent) noexcept
        : buffers(std::move(replaced)), arrives(how_much), persistent(is_persistent), started(!is_persistent) {}
    ~Pending();
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    // Of memory that is kept for the next ones: a window of messages has many at a time, each of more bytes than
    // malloc() has at hand.
    static void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept;
    static void operator delete(void* memory) noexcept;
    CallBuffers buffers;
    MPI_Request request{};
    const Arrives arrives;
    const bool persistent;
    bool started;  // false: nothing is to be stored, MPI has finished or not begun
    std::unique_ptr<Partitions> partitions{};
    std::optional<MPI_Win> window{};  // of a one-sided call
    std::uint64_t number = 0;         // of such a call (held.h)
    Pending* next = nullptr;
};
using PendingPointer = std::unique_ptr<Pending>;

namespace pending {

// Those that the program freed, too.
extern constinit std::atomic<std::size_t> count;
inline bool any() noexcept { return count.load(std::memory_order_relaxed) != 0; }

// The request has just been made. If MPI has completed it already, everything is done at once: such requests may share
// one handle. Not so if devices still copy its bytes: those of a message that goes from device to device have a handle
// of their own, and the next call may begin the next copy meanwhile. Nor of reads of files with Open MPI, which have
// handles of their own, too: in external32 the numbers come when the request is freed, not when it has completed. Nor
// of receives: asked for one that is too short, MPICH tells the program's error handler, and Open MPI nobody.
bool add(PendingPointer pending, MPI_Request request) noexcept;
// Of a handle that is not known: nothing.
PendingPointer take(MPI_Request request) noexcept;
// A persistent one is being started: what it reads is loaded. False: it is not to be started.
bool start(Pending& pending) noexcept;
void not_started(Pending& pending) noexcept;
void give_back(PendingPointer pending) noexcept;

// MPI has completed it. A persistent one stays; the table gets it back.
bool complete(PendingPointer pending, const MPI_Status& status) noexcept;
// The same, but the program keeps the request, and completes it later.
bool settle(Pending& pending, const MPI_Status& status) noexcept;
// The window is synchronised with one rank, or all (kAnyRank), which completes the calls of its requests (MPI 4.1,
// 12.3.5): what came by those up to a number is stored (held.h). The program completes the requests later.
bool store_of_window(MPI_Win window, int rank, std::uint64_t last) noexcept HPE_REQUIRES(storing_of_windows);
// It ended with an error: nothing is stored.
void fail(PendingPointer pending) noexcept;

// The program freed the request before it completed: it is kept, and looked at by completed() whenever MPI has
// completed something, since the program can only learn by other messages that it is done.
void keep_freed(PendingPointer pending) noexcept;
extern constinit std::atomic<std::size_t> freed;
void look_at_freed() noexcept;
inline void completed() noexcept {
    if (freed.load(std::memory_order_acquire) != 0) [[unlikely]] {
        look_at_freed();
    }
}

}  // namespace pending

}  // namespace hpe::mpi::HPE_MPI_ABI
