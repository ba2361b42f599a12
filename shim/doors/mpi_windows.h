// SPDX-License-Identifier: MIT
// One-sided calls: which arguments are buffers of this rank, named to the CallBuffers, which changes them; what came is
// stored when the window is synchronised. A window over an object is a copy of it in host memory (mpi/window_copies.h),
// which meets the object in the calls that synchronise the window; one that knows addresses only (MPI_Win_attach) is
// refused.
//
// Source: MPI 4.1, chapter 12. Threads, ownership and errors: mpi/call_buffers.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/doors/mpi_door.h"
#include "shim/mpi/held.h"
#include "shim/mpi/window_copies.h"

namespace hpe::doors::HPE_MPI_ABI {

template <class Pointer, class Count, class... Rest>
void put(CallBuffers& buffers, Pointer& from, Count count, MPI_Datatype type, int rank, Rest&...) noexcept {
    buffers.between(rank);
    if (rank != MPI_PROC_NULL) buffers.reads(from, count, type);
}
// The copy in host memory that MPI has for the window; nullptr: it is no window over objects.
hpe::mpi::WindowCopy* copy_of(MPI_Win window) noexcept;
template <class Count, class Room, class... Rest>
void get(CallBuffers& buffers, void*& to, Count count, MPI_Datatype type, int rank, MPI_Aint, Room, MPI_Datatype,
         MPI_Win window, Rest&...) noexcept {
    buffers.between(rank);
    if (rank != MPI_PROC_NULL) buffers.writes(to, count, type, copy_of(window));
}
// Without an operation nothing is sent: the buffer may be anything.
template <class Pointer, class Count, class Room, class... Rest>
void get_accumulate(CallBuffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                    MPI_Datatype to_type, int rank, MPI_Aint, Room, MPI_Datatype, MPI_Op op, MPI_Win window,
                    Rest&...) noexcept {
    buffers.between(rank);
    if (rank == MPI_PROC_NULL) return;
    if (op != handles.no_op) buffers.reads(from, count, type);
    buffers.writes(to, room, to_type, copy_of(window));
}
template <class Pointer>
void fetch_and_op(CallBuffers& buffers, Pointer& from, void*& to, MPI_Datatype type, int rank, MPI_Aint, MPI_Op op,
                  MPI_Win window) noexcept {
    buffers.between(rank);
    if (rank == MPI_PROC_NULL) return;
    if (op != handles.no_op) buffers.reads(from, 1, type);
    buffers.writes(to, 1, type, copy_of(window));
}
template <class Pointer>
void compare_and_swap(CallBuffers& buffers, Pointer& from, Pointer& compare, void*& to, MPI_Datatype type, int rank,
                      MPI_Aint, MPI_Win window) noexcept {
    buffers.between(rank);
    if (rank == MPI_PROC_NULL) return;
    buffers.reads(from, 1, type);
    buffers.reads(compare, 1, type);
    buffers.writes(to, 1, type, copy_of(window));
}

int attach_to_window(MPI_Win window, void* base, MPI_Aint bytes);
int make_window(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window);
#if MPI_VERSION >= 4
int make_window_c(void* base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win* window);
#endif
int free_window(MPI_Win* window);
// Of base and memory model the program sees what it would see of its own memory.
int window_attribute(MPI_Win window, int key, void* value, int* there);
int test_window(MPI_Win window, int* done);

bool publish(MPI_Win window) noexcept;
bool bring(MPI_Win window) noexcept;
// What came to this rank's buffers from one rank, or all, by calls up to a number (mpi/held.h).
bool store_held(MPI_Win window, int rank, std::uint64_t last) noexcept;

// What a synchronisation does.
enum Does : unsigned {
    kPublishes = 1,       // what the program stored to its window, for other ranks
    kBrings = 2,          // what other ranks stored there
    kEndsCalls = 4,       // of this rank: what came to its buffers is stored
    kEndsCallsOfOne = 8,  // those with the rank that is the first argument
};
// MPI's own call is made in any case: other ranks may wait in it.
template <std::size_t row, unsigned does, class Function>
struct Synchronises;
template <std::size_t row, unsigned does, class... A>
struct Synchronises<row, does, int(A...)> {
    static int door(A... arguments) {
        const MPI_Win window = last(arguments...);
        bool good = (does & kPublishes) == 0 || publish(window);
        const auto made = window_calls.load(std::memory_order_acquire);
        const int result = own<int(A...)>(row)(arguments...);
        if constexpr ((does & kEndsCalls) != 0) good = store_held(window, kAnyRank, made) && good;
        if constexpr ((does & kEndsCallsOfOne) != 0) {
            good = store_held(window, std::get<0>(std::tie(arguments...)), made) && good;
        }
        if ((does & kBrings) != 0 && result == MPI_SUCCESS) good = bring(window) && good;
        return good || result != MPI_SUCCESS ? result : cannot();
    }
};

}  // namespace hpe::doors::HPE_MPI_ABI
