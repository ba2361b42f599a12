// SPDX-License-Identifier: MIT
// Windows over memory of the program's.
#include "shim/doors/mpi_windows.h"

#include "shim/base/log.h"
#include "shim/coherence/lease.h"

namespace hpe::doors::HPE_MPI_ABI {

namespace {

bool refused(const void* base, MPI_Aint bytes) noexcept {
    if (bytes <= 0 || !any_objects() || !lease::concerns(base, static_cast<std::size_t>(bytes))) return false;
    // An MPI that knows CUDA asks the driver to whom the memory belongs, and makes CUDA calls on it.
    const auto knows_cuda = own<decltype(MPIX_Query_cuda_support)>(row_MPIX_Query_cuda_support);
    if (knows_cuda != nullptr && knows_cuda() == 1) return false;
    log::error("an MPI window over device memory is not supported: use MPI_Win_allocate, or host memory");
    return true;
}

}  // namespace

int make_window(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window) {
    if (refused(base, bytes)) {
        functions.MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
        return MPI_ERR_OTHER;
    }
    return own<decltype(MPI_Win_create)>(row_MPI_Win_create)(base, bytes, unit, info, comm, window);
}

int attach_to_window(MPI_Win window, void* base, MPI_Aint bytes) {
    if (refused(base, bytes)) {
        functions.MPI_Win_call_errhandler(window, MPI_ERR_OTHER);
        return MPI_ERR_OTHER;
    }
    return own<decltype(MPI_Win_attach)>(row_MPI_Win_attach)(window, base, bytes);
}

}  // namespace hpe::doors::HPE_MPI_ABI
