// SPDX-License-Identifier: MIT
// Questions whether MPI takes device memory: with libhpe it does. A program asks before its first use of CUDA, too.
//
// Threads: any. Errors: none of our own.
#pragma once

#include "shim/doors/mpi_door.h"
#include "shim/mpi/host_memory.h"
#include "shim/process/process.h"

namespace hpe::doors::HPE_MPI_ABI {

inline int takes_cuda() {
    return process::first_use() && hpe::mpi::enabled.load(std::memory_order_relaxed)
               ? 1
               : own<decltype(MPIX_Query_cuda_support)>(row_MPIX_Query_cuda_support)();
}

#ifdef MPIX_GPU_SUPPORT_CUDA
inline int takes_gpu(int kind, int* answer) {
    const int result = own<decltype(MPIX_GPU_query_support)>(row_MPIX_GPU_query_support)(kind, answer);
    if (result == MPI_SUCCESS && kind == MPIX_GPU_SUPPORT_CUDA && process::first_use() &&
        hpe::mpi::enabled.load(std::memory_order_relaxed))
        *answer = 1;
    return result;
}
#endif

}  // namespace hpe::doors::HPE_MPI_ABI
