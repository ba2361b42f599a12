// SPDX-License-Identifier: MIT
// MPI_Allreduce of large device memory, made by the devices of one host: each rank combines one part of all ranks'
// buffers, which its device reads where they lie, and then copies the other parts from whoever has combined them. No
// byte crosses to the host. MPI carries a few bytes of agreement, by collective calls on the program's communicator:
// they stand in the place of the program's own, so no message can be taken for another.
//
// Only where the result is what MPI's would be: integers, but for the least and greatest unsigned ones, of which MPIs
// make signed ones; sums and products of floating point numbers of two ranks, since with more of them the order counts.
// Least and greatest of such numbers are MPI's, where NaNs and signed zeros depend on the order.
//
// All ranks must do alike, and some may run without libhpe. So the first call with 1 MiB and more on a communicator is
// MPI's own. Before it each rank enters the job's memory (job.h), or never will. When it has returned, all have come to
// it, since MPI had to hear of each of them: from then on all see the same names there. If these are all ranks, all
// agree each time whether every rank's buffers are for the devices.
//
// Source: MPI 4.1, sections 6.9.1, 6.9.6 and 7.7.1; Thakur, Rabenseifner, Gropp, "Optimization of Collective
// Communication Operations in MPICH" (2005).
//
// Counts in elements; buffers are the program's. Threads: any that may call MPI. Errors: as of the door.
#pragma once

#include <optional>

#include "shim/mpi/abi.h"
#include "shim/mpi/elements.h"

namespace hpe::mpi::HPE_MPI_ABI::reductions {

// Not MPI's: the door makes an error of it.
constexpr int kFailed = -1;
// Whether it may be the devices'. The same on all ranks.
inline bool is_large(MPI_Count count, MPI_Datatype type) noexcept {
    constexpr MPI_Count kSmallest = MPI_Count{1} << 20;  // bytes
    if (count <= 0 || type == handles.no_type) return false;
    const Shape* const known = known_shapes.find(type);
    MPI_Count all = 0;
    return __builtin_mul_overflow(count, known != nullptr ? known->bytes() : Shape(type).bytes(), &all) ||
           all >= kSmallest;
}
// Of a large one: what the call returns; nothing: it is MPI's own, and no rank does otherwise.
std::optional<int> all_reduce(const void* from, void* to, MPI_Count count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm) noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI::reductions
