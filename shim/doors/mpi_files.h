// SPDX-License-Identifier: MIT
// Files of MPI: which arguments are buffers, named to the CallBuffers, which changes them; and the doors of accesses in
// two halves.
//
// Threads, ownership and errors: mpi/call_buffers.h. An error of a file is its own handler's, so MPI finds all but
// ours.
#pragma once

#include "shim/doors/mpi_door.h"
#include "shim/mpi/held.h"

namespace hpe::doors::HPE_MPI_ABI {

// The status does not tell how many bytes of the buffer came: MPICH and Open MPI count those that were asked for where
// the file has fewer, and in the file's representation (external32), in which a number may have another size. So all
// comes back, and what did not come is what it was.
template <class Count, class... Rest>
void from_file(CallBuffers& buffers, MPI_File, void*& at, Count count, MPI_Datatype type, Rest&...) noexcept {
    buffers.updates(at, count, type);
}
template <class Count, class... Rest>
void from_file_at(CallBuffers& buffers, MPI_File, MPI_Offset, void*& at, Count count, MPI_Datatype type,
                  Rest&...) noexcept {
    buffers.updates(at, count, type);
}
template <class Pointer, class Count, class... Rest>
void to_file(CallBuffers& buffers, MPI_File, Pointer& at, Count count, MPI_Datatype type, Rest&...) noexcept {
    buffers.reads(at, count, type);
}
template <class Pointer, class Count, class... Rest>
void to_file_at(CallBuffers& buffers, MPI_File, MPI_Offset, Pointer& at, Count count, MPI_Datatype type,
                Rest&...) noexcept {
    buffers.reads(at, count, type);
}

// The second half of reads and writes.
template <std::size_t row, class Function>
struct SecondHalf;
template <std::size_t row, class Pointer>
struct SecondHalf<row, int(MPI_File, Pointer, MPI_Status*)> {
    static int door(MPI_File file, Pointer at, MPI_Status* status) {
        const auto real = own<int(MPI_File, Pointer, MPI_Status*)>(row);
        const auto first_half = take(of_files, number(file));
        if (first_half == nullptr) return real(file, at, status);
        return whole(real, first_half->buffers, file, at, status);
    }
};

}  // namespace hpe::doors::HPE_MPI_ABI
