// SPDX-License-Identifier: MIT
// Buffers of calls that another call ends: of one-sided ones, the next synchronisation of their window; of the first
// half of a collective access to a file, its second half.
//
// Handles are MPI's. Threads: any. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "shim/base/spin_lock.h"
#include "shim/mpi/staging.h"

namespace hpe::mpi::HPE_MPI_ABI {

// A handle is a pointer or an integer.
template <class Handle>
std::uintptr_t number(Handle handle) noexcept {
    if constexpr (std::is_pointer_v<Handle>) {
        return reinterpret_cast<std::uintptr_t>(handle);
    } else {
        return static_cast<std::uintptr_t>(handle);
    }
}

class Held {
public:
    struct Call {
        explicit Call(Staging&& buffers) noexcept : staging(std::move(buffers)) {}
        Staging staging;
        std::uintptr_t handle = 0;
        int rank = 0;  // where the other side is
        std::unique_ptr<Call> next{};
    };
    using Calls = std::unique_ptr<Call>;

    void add(Calls call) noexcept;
    // Those of a window with one rank, or all; those of a file.
    static constexpr int kAll = -1;
    Calls take(std::uintptr_t handle, int rank = kAll) noexcept;

private:
    std::atomic<bool> any_{false};
    SpinLock lock_;
    Call* first_ HPE_GUARDED_BY(lock_) = nullptr;  // never destroyed: MPI may have ended before the process does
};

extern constinit Held of_windows, of_files;

}  // namespace hpe::mpi::HPE_MPI_ABI
