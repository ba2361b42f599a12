// SPDX-License-Identifier: MIT
// What is looked up in this MPI's library.
#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

#if defined(OPEN_MPI) || defined(MPI_ABI)
constinit Handles handles;
#else
constinit Handles handles{MPI_BYTE,       MPI_DATATYPE_NULL, MPI_REQUEST_NULL, MPI_COMM_SELF,
                          MPI_COMM_WORLD, MPI_COMM_NULL,     MPI_ERRORS_RETURN};
#endif
#if defined(OPEN_MPI) || defined(MPI_ABI)
#define HPE_NUMBER(name, symbol, sort) {{}, reducing::Numbers::sort},
#define HPE_OPERATION(name, symbol, which) {{}, reducing::Operation::which},
#else
#define HPE_NUMBER(name, symbol, sort) {name, reducing::Numbers::sort},
#define HPE_OPERATION(name, symbol, which) {name, reducing::Operation::which},
#endif
constinit Arithmetic arithmetic{{HPE_MPI_NUMBERS(HPE_NUMBER)}, {HPE_MPI_OPERATIONS(HPE_OPERATION)}};
#undef HPE_NUMBER
#undef HPE_OPERATION
constinit Functions functions;

namespace {

template <class T>
void** place_of(T& pointer) noexcept {
    void* const place = &pointer;
    return static_cast<void**>(place);
}

#ifdef OPEN_MPI
// In the order of the lists.
enum Place {
#define HPE_PLACE(name, symbol, sort) number_##symbol,
    HPE_MPI_NUMBERS(HPE_PLACE)
#undef HPE_PLACE
};
enum OperationPlace {
#define HPE_PLACE(name, symbol, which) operation_##symbol,
    HPE_MPI_OPERATIONS(HPE_PLACE)
#undef HPE_PLACE
};
#endif

}  // namespace

// Made when it is first asked for: that may be before this file's constructors run.
std::span<const Symbol> symbols() noexcept {
#ifdef MPI_ABI
    // Numbers cast to pointers, which are no constants for the compiler.
    handles = {MPI_BYTE,       MPI_DATATYPE_NULL, MPI_REQUEST_NULL, MPI_COMM_SELF,
               MPI_COMM_WORLD, MPI_COMM_NULL,     MPI_ERRORS_RETURN};
#define HPE_NUMBER(name, symbol, sort) {name, reducing::Numbers::sort},
#define HPE_OPERATION(name, symbol, which) {name, reducing::Operation::which},
    arithmetic = {{HPE_MPI_NUMBERS(HPE_NUMBER)}, {HPE_MPI_OPERATIONS(HPE_OPERATION)}};
#undef HPE_NUMBER
#undef HPE_OPERATION
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
        {"ompi_mpi_comm_null", place_of(handles.no_comm), false},
        {"ompi_mpi_errors_return", place_of(handles.errors_return), false},
#define HPE_NUMBER(name, symbol, sort) \
    {"ompi_mpi_" #symbol, place_of(arithmetic.numbers[number_##symbol].type), false, true},
#define HPE_OPERATION(name, symbol, which) \
    {"ompi_mpi_op_" #symbol, place_of(arithmetic.operations[operation_##symbol].op), false, true},
        HPE_MPI_NUMBERS(HPE_NUMBER) HPE_MPI_OPERATIONS(HPE_OPERATION)
#undef HPE_NUMBER
#undef HPE_OPERATION
#endif
    };
    return all;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
