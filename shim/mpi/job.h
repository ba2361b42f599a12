// SPDX-License-Identifier: MIT
// Which ranks of MPI_COMM_WORLD run on this host with libhpe, as all of them know it: ranks that call MPI otherwise
// than the program has written it must be sure that the others do the same. A rank writes its name into shared memory
// of the job once; a name that one rank sees is seen by all that have heard of that rank by any message since.
//
// The job is known by what its launcher tells every rank, and by the size of its world. The rank that comes first makes
// the memory and holds an abstract socket of the job's name, by which the others find that process. Both end with it;
// who comes then is alone. Nobody waits.
//
// Source: unix(7) (abstract addresses, SO_PEERCRED); the variables of PMIx and of PMI-1 and 2 (MPICH, Slurm).
//
// Threads: enter() once, one at a time; has() any, later. Errors: where anything is missing, false: the rank takes no
// part. Nothing can fail in has(), so that no rank sees less than another.
#pragma once

namespace hpe::mpi::job {

// This process is a rank of a world of so many.
bool enter(int rank, int size) noexcept;
// Whether that rank has entered; after enter() was true.
bool has(int rank) noexcept;

}  // namespace hpe::mpi::job
