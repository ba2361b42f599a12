// SPDX-License-Identifier: MIT
// What is looked up in this MPI's library.
#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

#if defined(OPEN_MPI) || defined(MPI_ABI)
constinit Handles handles;
#else
constinit Handles handles{MPI_BYTE, MPI_DATATYPE_NULL, MPI_REQUEST_NULL, MPI_COMM_SELF, MPI_COMM_WORLD};
#endif
constinit Functions functions;

namespace {

template <class T>
void** place_of(T& pointer) noexcept {
    void* const place = &pointer;
    return static_cast<void**>(place);
}

}  // namespace

// Made when it is first asked for: that may be before this file's constructors run.
std::span<const Symbol> symbols() noexcept {
#ifdef MPI_ABI
    // Numbers cast to pointers, which are no constants for the compiler.
    handles = {MPI_BYTE, MPI_DATATYPE_NULL, MPI_REQUEST_NULL, MPI_COMM_SELF, MPI_COMM_WORLD};
#endif
    static const Symbol all[] = {
#define HPE_SYMBOL(name) {"P" #name, place_of(functions.name), true},
        HPE_MPI_FUNCTIONS(HPE_SYMBOL)
#undef HPE_SYMBOL
            {"PMPI_Type_get_envelope_c", place_of(functions.MPI_Type_get_envelope_c), true, true},
        {"MPIX_Query_cuda_support", place_of(functions.MPIX_Query_cuda_support), true, true},
#ifdef OPEN_MPI
        // A program may hold a copy of such a variable, which is then everybody's.
        {"ompi_mpi_byte", place_of(handles.byte), false},
        {"ompi_mpi_datatype_null", place_of(handles.no_type), false},
        {"ompi_request_null", place_of(handles.no_request), false},
        {"ompi_mpi_comm_self", place_of(handles.self), false},
        {"ompi_mpi_comm_world", place_of(handles.world), false},
#endif
    };
    return all;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
