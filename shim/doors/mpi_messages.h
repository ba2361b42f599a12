// SPDX-License-Identifier: MIT
// Which arguments of messages are buffers: named to a Look, or to the CallBuffers, which changes them. Arguments that
// do not matter here are `rest`.
//
// Threads, ownership and errors: mpi/call_buffers.h.
#pragma once

#include "shim/mpi/call_buffers.h"

namespace hpe::doors::HPE_MPI_ABI {

using namespace hpe::mpi::HPE_MPI_ABI;

// A send to nobody reads nothing: ranks at a border exchange with nobody in each step, and would else wait for their
// device's work, and bring what nobody wants.
template <class Buffers, class Pointer, class Count, class... Rest>
void send(Buffers& buffers, Pointer& at, Count& count, MPI_Datatype& type, int to, int, MPI_Comm comm,
          Rest&...) noexcept {
    if (to != MPI_PROC_NULL) buffers.sends(at, count, type, to, comm);
}

// A receive from nobody completes at once and writes nothing; such requests may all be one.
template <class Buffers, class Count, class... Rest>
void receive(Buffers& buffers, void*& at, Count& count, MPI_Datatype& type, int source, Rest&...) noexcept {
    if (source != MPI_PROC_NULL) buffers.receives(at, count, type);
}
template <class Buffers, class Count, class... Rest>
void receive_matched(Buffers& buffers, void*& at, Count& count, MPI_Datatype& type, Rest&...) noexcept {
    buffers.receives(at, count, type);
}

template <class Pointer, class... Rest>
void send_partitions(CallBuffers& buffers, Pointer& at, int partitions, MPI_Count count, MPI_Datatype type, int to,
                     Rest&...) noexcept {
    if (to != MPI_PROC_NULL) buffers.reads_partitions(at, partitions, count, type);
}
template <class... Rest>
void receive_partitions(CallBuffers& buffers, void*& at, int partitions, MPI_Count count, MPI_Datatype type, int source,
                        Rest&...) noexcept {
    if (source != MPI_PROC_NULL) buffers.writes_partitions(at, partitions, count, type);
}

template <class Buffers, class Pointer, class Count, class... Rest>
void exchange(Buffers& buffers, Pointer& from, Count& count, MPI_Datatype& type, int receiver, int, void*& to,
              Count& room, MPI_Datatype& to_type, int source, int, MPI_Comm comm, Rest&...) noexcept {
    if (receiver != MPI_PROC_NULL) buffers.sends(from, count, type, receiver, comm);
    if (source != MPI_PROC_NULL) buffers.receives(to, room, to_type);
}
// MPICH does not say how much came: what did not come must come back as it was.
template <class Buffers, class Pointer, class Count, class... Rest>
void exchange_later(Buffers& buffers, Pointer& from, Count& count, MPI_Datatype& type, int receiver, int, void*& to,
                    Count& room, MPI_Datatype& to_type, int source, int, MPI_Comm comm, Rest&...) noexcept {
    if (receiver != MPI_PROC_NULL) buffers.sends(from, count, type, receiver, comm);
    if (source != MPI_PROC_NULL) buffers.exchanges(to, room, to_type);
}
template <class Buffers, class Count, class... Rest>
void replace(Buffers& buffers, void*& at, Count& count, MPI_Datatype& type, int receiver, int, int source,
             Rest&...) noexcept {
    if (receiver != MPI_PROC_NULL || source != MPI_PROC_NULL) buffers.exchanges(at, count, type);
}

}  // namespace hpe::doors::HPE_MPI_ABI
