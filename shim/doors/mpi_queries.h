// SPDX-License-Identifier: MIT
// Questions whether MPI takes device memory: with libhpe it does.
//
// Threads: any. Errors: none of our own.
#pragma once

#include "shim/mpi/abi.h"

namespace hpe::doors::HPE_MPI_ABI {

int takes_cuda();
#ifdef MPIX_GPU_SUPPORT_CUDA
int takes_gpu(int kind, int* answer);
#endif

}  // namespace hpe::doors::HPE_MPI_ABI
