// SPDX-License-Identifier: MIT
// Buffers of calls that another call ends: of one-sided ones, the next synchronisation of their window; of the first
// half of a collective access to a file, its second half.
//
// Handles are MPI's. Threads: any. Errors: none.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "shim/mpi/short_list.h"
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

struct HeldCall {
    explicit HeldCall(Staging&& buffers) noexcept : staging(std::move(buffers)) {}
    Staging staging;
    std::uintptr_t handle = 0;
    HeldCall* next = nullptr;
};

inline constinit ShortList<HeldCall> of_windows, of_files;

// One with this rank, or any, of a window; the one of a file. Nothing: there is none.
constexpr int kAnyRank = -1;
inline std::unique_ptr<HeldCall> take(ShortList<HeldCall>& calls, std::uintptr_t handle, int rank = kAnyRank) noexcept {
    return std::unique_ptr<HeldCall>(calls.take([&](const HeldCall& call) {
        return call.handle == handle && (rank == kAnyRank || call.staging.other_rank() == rank);
    }));
}

}  // namespace hpe::mpi::HPE_MPI_ABI
