// SPDX-License-Identifier: MIT
// Buffers of calls that another call ends: of one-sided ones, the next synchronisation of their window; of the first
// half of a collective access to a file, its second half.
//
// Threads may share a window, each with calls and flushes of its own. So a synchronisation stores what came by calls
// that were made before it began: the bytes of others may be still to come. And one that finds nothing waits until
// another thread has stored what it found.
//
// Handles are MPI's. Threads: any. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/mpi/call_buffers.h"
#include "shim/mpi/short_list.h"

namespace hpe::mpi::HPE_MPI_ABI {

struct HeldCall {
    explicit HeldCall(CallBuffers&& replaced) noexcept : buffers(std::move(replaced)) {}
    CallBuffers buffers;
    std::uintptr_t handle = 0;
    std::uint64_t number = 0;
    HeldCall* next = nullptr;
};

inline constinit ShortList<HeldCall> of_windows, of_files;
// Calls of windows, in the order in which they returned. 0: there was none.
inline constinit std::atomic<std::uint64_t> window_calls{0};
inline std::uint64_t next_window_call() noexcept { return window_calls.fetch_add(1, std::memory_order_acq_rel) + 1; }
inline constinit Mutex storing_of_windows;

// One with this rank, or any, of a window, up to a number; the one of a file. Nothing: there is none.
constexpr int kAnyRank = -1;
inline std::unique_ptr<HeldCall> take(ShortList<HeldCall>& calls, std::uintptr_t handle, int rank = kAnyRank,
                                      std::uint64_t last = std::numeric_limits<std::uint64_t>::max()) noexcept {
    return std::unique_ptr<HeldCall>(calls.take([&](const HeldCall& call) {
        return call.handle == handle && (rank == kAnyRank || call.buffers.other_rank() == rank) && call.number <= last;
    }));
}

}  // namespace hpe::mpi::HPE_MPI_ABI
