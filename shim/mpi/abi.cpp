// SPDX-License-Identifier: MIT
// What is looked up in this MPI's library.
#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

constinit Functions functions;
constinit Handles handles;
constinit Arithmetic arithmetic;

namespace {

template <class T>
void** place_of(T& pointer) noexcept {
    void* const place = &pointer;
    return static_cast<void**>(place);
}

}  // namespace

// Made when it is first asked for: that may be before this file's constructors run.
std::span<const Symbol> symbols() noexcept {
// Open MPI's are variables of its library, looked up below. Others' may be numbers cast to pointers, which are no
// constants for the compiler.
#ifdef OPEN_MPI
#define HPE_VALUE(name) \
    {}
#else
#define HPE_VALUE(name) name
#endif
#define HPE_HANDLE(type, member, name, symbol) HPE_VALUE(name),
#define HPE_NUMBER(name, symbol, sort) {HPE_VALUE(name), reducing::Numbers::sort},
#define HPE_OPERATION(name, symbol, which) {HPE_VALUE(name), reducing::Operation::which},
    handles = {HPE_MPI_HANDLES(HPE_HANDLE)};
    arithmetic = {{HPE_MPI_NUMBERS(HPE_NUMBER)}, {HPE_MPI_OPERATIONS(HPE_OPERATION)}};
#undef HPE_VALUE
#undef HPE_HANDLE
#undef HPE_NUMBER
#undef HPE_OPERATION
    static const Symbol all[] = {
#define HPE_SYMBOL(name) {"P" #name, place_of(functions.name), true},
        HPE_MPI_FUNCTIONS(HPE_SYMBOL)
#undef HPE_SYMBOL
            {"PMPI_Type_get_envelope_c", place_of(functions.MPI_Type_get_envelope_c), true, true},
        {"MPIX_Query_cuda_support", place_of(functions.MPIX_Query_cuda_support), true, true},
#ifdef OPEN_MPI
    // A program may hold a copy of such a variable, which is then everybody's.
#define HPE_HANDLE(type, member, name, symbol) {#symbol, place_of(handles.member), false},
#define HPE_NUMBER(name, symbol, sort) \
    {"ompi_mpi_" #symbol, place_of(arithmetic.numbers[Arithmetic::at_##symbol].type), false, true},
#define HPE_OPERATION(name, symbol, which) \
    {"ompi_mpi_op_" #symbol, place_of(arithmetic.operations[Arithmetic::at_##symbol].op), false, true},
        HPE_MPI_HANDLES(HPE_HANDLE) HPE_MPI_NUMBERS(HPE_NUMBER) HPE_MPI_OPERATIONS(HPE_OPERATION)
#undef HPE_HANDLE
#undef HPE_NUMBER
#undef HPE_OPERATION
#endif
    };
    return all;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
