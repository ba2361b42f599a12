// SPDX-License-Identifier: MIT
// How a program finds the MPI doors. libhpe.so exports no MPI function, since programs look whether there is one. When
// a library with MPI's functions is in the process, the slots of all others through which these call it (of MPI_X and
// PMPI_X alike: Fortran's libraries and tools call the latter) are given our doors, and dlsym answers with them.
//
// Only slots that lead into the MPI library itself: a tool that stands in front of it is called as without libhpe, and
// its own calls come by the doors.
//
// Source: System V ABI, chapter 5 (relocation, global offset table), and the x86-64 supplement.
//
// Threads: any; what is found is kept under the loader's own lock (dl_iterate_phdr). Errors: a slot that cannot be
// written stays as it was.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/base/flag.h"
#include "shim/mpi/library.h"

namespace hpe::doors {

// Those that libhpe was built with are defined.
namespace openmpi {
mpi::Library library() noexcept;
}
namespace mpich {
mpi::Library library() noexcept;
}
namespace standard {
mpi::Library library() noexcept;
}

namespace mpi_imports {

// Looks for libraries that were loaded since the last time, which costs nothing much where there are none.
void look() noexcept;

// The first object exists: says once if an MPI is here for which libhpe has no doors.
void objects_exist() noexcept;
// The same after an allocation, by the number of objects that were ever made: nothing if none was made since.
HPE_HIDDEN extern constinit std::atomic<std::uint64_t> looked_at;  // at so many objects, the last time
inline void objects_made(std::uint64_t count) noexcept {
    if (looked_at.load(std::memory_order_relaxed) == count) return;
    objects_exist();
    looked_at.store(count, std::memory_order_relaxed);
}

// The door for a function that dlsym would find; nullptr where that is none of an MPI library's own.
void* answer(void* handle, const char* name, const void* caller) noexcept;
// Whether a name may be one.
inline bool may_be_mpi(const char* name) noexcept {
    if (name[0] == 'P') ++name;
    return name[0] == 'M' && name[1] == 'P' && name[2] == 'I';
}

}  // namespace mpi_imports

}  // namespace hpe::doors
