// SPDX-License-Identifier: MIT
// Doors of the functions that name partitions of a request (mpi/partitions.h): what is ready is loaded before MPI knows
// of it, and what has arrived is stored before the program knows. Requests of other memory are passed on.
//
// Arrays are the program's. Threads: any that may call MPI. Errors: MPI's.
#pragma once

#include "shim/doors/mpi_door.h"

namespace hpe::doors::HPE_MPI_ABI {

#ifdef HPE_MPI_PARTITIONS
inline int ready(int partition, MPI_Request request) {
    auto* const partitions = Partitions::find(request);
    if (partitions != nullptr && !partitions->load(partition)) return cannot();
    return own<decltype(MPI_Pready)>(row_MPI_Pready)(partition, request);
}

inline int ready_range(int first, int last, MPI_Request request) {
    auto* const partitions = Partitions::find(request);
    if (partitions != nullptr && !partitions->load(first, last)) return cannot();
    return own<decltype(MPI_Pready_range)>(row_MPI_Pready_range)(first, last, request);
}

inline int arrived(MPI_Request request, int partition, int* flag) {
    const int result = own<decltype(MPI_Parrived)>(row_MPI_Parrived)(request, partition, flag);
    if (result != MPI_SUCCESS || *flag == 0) return result;
    auto* const partitions = Partitions::find(request);
    return partitions == nullptr || partitions->store(partition) ? result : cannot();
}

// Whether MPI only reads the list depends on its mpi.h.
template <std::size_t row, class Function>
struct ReadyList;
template <std::size_t row, class List>
struct ReadyList<row, int(int, List, MPI_Request)> {
    static int door(int count, List list, MPI_Request request) {
        auto* const partitions = Partitions::find(request);
        for (int i = 0; partitions != nullptr && i < count; ++i) {
            if (!partitions->load(list[i])) return cannot();
        }
        return own<int(int, List, MPI_Request)>(row)(count, list, request);
    }
};
#endif

}  // namespace hpe::doors::HPE_MPI_ABI
