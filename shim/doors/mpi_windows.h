// SPDX-License-Identifier: MIT
// One-sided calls: which arguments are buffers of this rank, named to the Staging, which changes them; what came is
// stored when the window is synchronised. The window itself lies in host memory: an object as a window, which other
// ranks read and write unseen, is refused.
//
// Source: MPI 4.1, chapter 12. Threads, ownership and errors: mpi/staging.h.
#pragma once

#include "shim/doors/mpi_door.h"
#include "shim/mpi/held.h"

namespace hpe::doors::HPE_MPI_ABI {

template <class Pointer, class Count, class... Rest>
void put(Staging& staging, Pointer& from, Count count, MPI_Datatype type, int rank, Rest&...) noexcept {
    staging.between(rank);
    if (rank != MPI_PROC_NULL) staging.reads(from, count, type);
}
template <class Count, class... Rest>
void get(Staging& staging, void*& to, Count count, MPI_Datatype type, int rank, Rest&...) noexcept {
    staging.between(rank);
    if (rank != MPI_PROC_NULL) staging.writes(to, count, type);
}
template <class Pointer, class Count, class Room, class... Rest>
void get_accumulate(Staging& staging, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                    MPI_Datatype to_type, int rank, Rest&...) noexcept {
    staging.between(rank);
    if (rank == MPI_PROC_NULL) return;
    staging.reads(from, count, type);
    staging.writes(to, room, to_type);
}
template <class Pointer, class... Rest>
void fetch_and_op(Staging& staging, Pointer& from, void*& to, MPI_Datatype type, int rank, Rest&...) noexcept {
    staging.between(rank);
    if (rank == MPI_PROC_NULL) return;
    staging.reads(from, 1, type);
    staging.writes(to, 1, type);
}
template <class Pointer, class... Rest>
void compare_and_swap(Staging& staging, Pointer& from, Pointer& compare, void*& to, MPI_Datatype type, int rank,
                      Rest&...) noexcept {
    staging.between(rank);
    if (rank == MPI_PROC_NULL) return;
    staging.reads(from, 1, type);
    staging.reads(compare, 1, type);
    staging.writes(to, 1, type);
}

int make_window(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window);
int attach_to_window(MPI_Win window, void* base, MPI_Aint bytes);

// Synchronisations of a window, with all ranks or with one.
template <std::size_t row, class Function>
struct Synchronises;
template <std::size_t row>
struct Synchronises<row, int(MPI_Win)> {
    static int door(MPI_Win window) {
        const int result = own<int(MPI_Win)>(row)(window);
        return store_held(window, Held::kAll) ? result : cannot();
    }
    static bool store_held(MPI_Win window, int rank) noexcept {
        bool all_stored = true;
        for (auto call = of_windows.take(number(window), rank); call != nullptr; call = std::move(call->next)) {
            all_stored = call->staging.store() && all_stored;
        }
        return all_stored;
    }
};
template <std::size_t row>
struct Synchronises<row, int(int, MPI_Win)> {
    static int door(int rank, MPI_Win window) {
        const int result = own<int(int, MPI_Win)>(row)(rank, window);
        // Of a fence it is no rank.
        const int whose = row == row_MPI_Win_fence ? Held::kAll : rank;
        return Synchronises<row, int(MPI_Win)>::store_held(window, whose) ? result : cannot();
    }
};

}  // namespace hpe::doors::HPE_MPI_ABI
