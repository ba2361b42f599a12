// SPDX-License-Identifier: MIT
// MPI libraries that know CUDA: whether this one does, and whether its messages go from device memory to device memory
// without passing by the host. It is tried, not asked: UCX with its CUDA module may be in the process and not carry the
// messages, and an MPI may know CUDA and not use it.
//
// Threads: any that may call MPI. Errors: false.
#pragma once

#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

// Whether the MPI says that it takes device memory.
bool built_for_cuda() noexcept;

// Whether the MPI, or UCX under it, looks for device memory by itself. MPI has started.
bool knows_cuda() noexcept;

// Whether a message between device memories of this process was moved by the device. The first call of a process tries
// it, in the context; nothing is tried where the MPI does not know CUDA.
bool moves_device_memory(void* context) noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI
