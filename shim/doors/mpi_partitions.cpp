// SPDX-License-Identifier: MIT
// Partitions that are ready, and that have arrived.
#include "shim/doors/mpi_partitions.h"

namespace hpe::doors::HPE_MPI_ABI {

#ifdef HPE_MPI_PARTITIONS
int ready(int partition, MPI_Request request) {
    auto* const partitions = Partitions::find(request);
    if (partitions != nullptr && !partitions->load(partition)) return cannot();
    return own<decltype(MPI_Pready)>(row_MPI_Pready)(partition, request);
}

int ready_range(int first, int last, MPI_Request request) {
    auto* const partitions = Partitions::find(request);
    if (partitions != nullptr && !partitions->load(first, last)) return cannot();
    return own<decltype(MPI_Pready_range)>(row_MPI_Pready_range)(first, last, request);
}

int arrived(MPI_Request request, int partition, int* flag) {
    const int result = own<decltype(MPI_Parrived)>(row_MPI_Parrived)(request, partition, flag);
    if (result != MPI_SUCCESS || *flag == 0) return result;
    auto* const partitions = Partitions::find(request);
    return partitions == nullptr || partitions->store(partition) ? result : cannot();
}
#endif

}  // namespace hpe::doors::HPE_MPI_ABI
