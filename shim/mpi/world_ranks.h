// SPDX-License-Identifier: MIT
// Which process a rank of a communicator is, by its rank in MPI_COMM_WORLD, for messages that go past MPI
// (ipc/exports.h).
//
// Threads: any that may call MPI. Errors: -1 for a rank that has none there, and where messages are MPI's own business:
// an MPI that knows device memory would hand an object's address to CUDA itself.
#pragma once

#include <cstddef>
#include <span>

#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

int peer(MPI_Comm comm, int rank) noexcept;
// Of all ranks of a communicator, in their order; false: there are more, or some have none.
constexpr std::size_t kMostPeers = 64;
bool peers(MPI_Comm comm, std::span<int> all) noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI
