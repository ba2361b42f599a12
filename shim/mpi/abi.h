// SPDX-License-Identifier: MIT
// One MPI's binary interface, or the standard's own (MPI 5.0, chapter 20; MPI_ABI is defined): its mpi.h, and the
// functions and handles of it that libhpe uses itself. What includes it, here and in
// shim/doors/mpi_*, is compiled once for each mpi.h, in a namespace of its own. Handles are passed on and never
// converted.
//
// Nothing is linked with MPI: what mpi.h would take from the library by its linker name is looked up (library.h). So
// its MPI_BYTE, MPI_REQUEST_NULL and the like, which are such names in Open MPI, are not used here.
//
// Threads: constant once filled. Errors: as of MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <cstdint>
#include <type_traits>

#include "shim/copies/reducing.h"
#include "shim/mpi/library.h"

// Of Open MPI's extensions, and of MPICH since 4.0.
extern "C" int MPIX_Query_cuda_support(void);
// Of MPI 4.
extern "C" int MPI_Type_get_envelope_c(MPI_Datatype, MPI_Count*, MPI_Count*, MPI_Count*, MPI_Count*, int*);

// Open MPI has partitioned messages before MPI 4. They are named here whatever mpi.h is used: Open MPI 4 and 5 have the
// same binary interface.
#if MPI_VERSION >= 4 || defined(OPEN_MPI)
#define HPE_MPI_PARTITIONS 1
#endif
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
extern "C" {
int MPI_Psend_init(const void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request*);
int MPI_Precv_init(void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request*);
int MPI_Pready(int, MPI_Request);
int MPI_Pready_range(int, int, MPI_Request);
int MPI_Pready_list(int, const int[], MPI_Request);
int MPI_Parrived(MPI_Request, int, int*);
}
#endif

// And the questions of MPI 4.1.
#if MPI_VERSION < 4 || (MPI_VERSION == 4 && MPI_SUBVERSION < 1)
extern "C" {
int MPI_Request_get_status_all(int, const MPI_Request[], int*, MPI_Status*);
int MPI_Request_get_status_any(int, const MPI_Request[], int*, int*, MPI_Status*);
int MPI_Request_get_status_some(int, const MPI_Request[], int*, int[], MPI_Status*);
}
#endif

#ifdef OPEN_MPI
#define HPE_MPI_ABI openmpi
#elif defined(MPI_ABI)
#define HPE_MPI_ABI standard
static_assert(MPI_ABI_VERSION == 1, "libmpi_abi.so.1");
#else
#define HPE_MPI_ABI mpich
#endif

namespace hpe::mpi::HPE_MPI_ABI {

// The library's own functions, past all doors. The larger integers of MPI 3 are enough for any type's bytes.
struct Functions {
#define HPE_MPI_FUNCTIONS(F)          \
    F(MPI_Type_size_x)                \
    F(MPI_Type_get_extent_x)          \
    F(MPI_Type_get_true_extent_x)     \
    F(MPI_Type_create_hindexed)       \
    F(MPI_Type_commit)                \
    F(MPI_Type_free)                  \
    F(MPI_Type_get_envelope)          \
    F(MPI_Type_get_contents)          \
    F(MPI_Type_create_keyval)         \
    F(MPI_Type_get_attr)              \
    F(MPI_Type_set_attr)              \
    F(MPI_Pack)                       \
    F(MPI_Unpack)                     \
    F(MPI_Get_elements_x)             \
    F(MPI_Test_cancelled)             \
    F(MPI_Error_class)                \
    F(MPI_Comm_rank)                  \
    F(MPI_Comm_size)                  \
    F(MPI_Comm_group)                 \
    F(MPI_Comm_remote_group)          \
    F(MPI_Group_translate_ranks)      \
    F(MPI_Group_free)                 \
    F(MPI_Initialized)                \
    F(MPI_Comm_remote_size)           \
    F(MPI_Comm_get_parent)            \
    F(MPI_Comm_create_keyval)         \
    F(MPI_Comm_get_attr)              \
    F(MPI_Comm_set_attr)              \
    F(MPI_Allgather)                  \
    F(MPI_Comm_test_inter)            \
    F(MPI_Comm_call_errhandler)       \
    F(MPI_Comm_set_errhandler)        \
    F(MPI_Comm_split)                 \
    F(MPI_Comm_free)                  \
    F(MPI_Sendrecv)                   \
    F(MPI_Topo_test)                  \
    F(MPI_Cartdim_get)                \
    F(MPI_Cart_shift)                 \
    F(MPI_Graph_neighbors_count)      \
    F(MPI_Dist_graph_neighbors_count) \
    F(MPI_Request_get_status)         \
    F(MPI_Test)                       \
    F(MPI_Request_free)               \
    F(MPI_Win_call_errhandler)        \
    F(MPI_Win_flush)
#define HPE_MEMBER(name) decltype(&::name) name = nullptr;
    HPE_MPI_FUNCTIONS(HPE_MEMBER)
#undef HPE_MEMBER
    // Only where types have large counts, and where CUDA can be asked for: nullptr elsewhere.
    decltype(&::MPI_Type_get_envelope_c) MPI_Type_get_envelope_c = nullptr;
    decltype(&::MPIX_Query_cuda_support) MPIX_Query_cuda_support = nullptr;
};
extern constinit Functions functions;

// Handles that every process has, by MPI's names and those that Open MPI's library has.
#define HPE_MPI_HANDLES(F)                                              \
    F(MPI_Datatype, byte, MPI_BYTE, ompi_mpi_byte)                      \
    F(MPI_Datatype, character, MPI_CHAR, ompi_mpi_char)                 \
    F(MPI_Datatype, no_type, MPI_DATATYPE_NULL, ompi_mpi_datatype_null) \
    F(MPI_Request, no_request, MPI_REQUEST_NULL, ompi_request_null)     \
    F(MPI_Comm, self, MPI_COMM_SELF, ompi_mpi_comm_self)                \
    F(MPI_Comm, world, MPI_COMM_WORLD, ompi_mpi_comm_world)             \
    F(MPI_Comm, no_comm, MPI_COMM_NULL, ompi_mpi_comm_null)             \
    F(MPI_Op, no_op, MPI_NO_OP, ompi_mpi_op_no_op)                      \
    F(MPI_Errhandler, errors_return, MPI_ERRORS_RETURN, ompi_mpi_errors_return)
struct Handles {
#define HPE_MEMBER(type, member, name, symbol) type member{};
    HPE_MPI_HANDLES(HPE_MEMBER)
#undef HPE_MEMBER
};
extern constinit Handles handles;

// A handle is a pointer or an integer.
template <class Handle>
std::uintptr_t number(Handle handle) noexcept {
    if constexpr (std::is_pointer_v<Handle>) {
        return reinterpret_cast<std::uintptr_t>(handle);
    } else {
        return static_cast<std::uintptr_t>(handle);
    }
}

// Predefined types of numbers and operations on them, by such names. Numbers have the sizes that MPI says.
#define HPE_MPI_NUMBERS(F)                                  \
    F(MPI_INT, int, Signed)                                 \
    F(MPI_LONG, long, Signed)                               \
    F(MPI_LONG_LONG, long_long_int, Signed)                 \
    F(MPI_INT32_T, int32_t, Signed)                         \
    F(MPI_INT64_T, int64_t, Signed)                         \
    F(MPI_INTEGER, integer, Signed)                         \
    F(MPI_INTEGER4, integer4, Signed)                       \
    F(MPI_INTEGER8, integer8, Signed)                       \
    F(MPI_UNSIGNED, unsigned, Unsigned)                     \
    F(MPI_UNSIGNED_LONG, unsigned_long, Unsigned)           \
    F(MPI_UNSIGNED_LONG_LONG, unsigned_long_long, Unsigned) \
    F(MPI_UINT32_T, uint32_t, Unsigned)                     \
    F(MPI_UINT64_T, uint64_t, Unsigned)                     \
    F(MPI_FLOAT, float, Floating)                           \
    F(MPI_DOUBLE, double, Floating)                         \
    F(MPI_REAL, real, Floating)                             \
    F(MPI_REAL4, real4, Floating)                           \
    F(MPI_REAL8, real8, Floating)                           \
    F(MPI_DOUBLE_PRECISION, dblprec, Floating)
#define HPE_MPI_OPERATIONS(F)  \
    F(MPI_SUM, sum, Sum)       \
    F(MPI_PROD, prod, Product) \
    F(MPI_MIN, min, Least)     \
    F(MPI_MAX, max, Greatest)  \
    F(MPI_BAND, band, And)     \
    F(MPI_BOR, bor, Or)        \
    F(MPI_BXOR, bxor, Xor)
struct Arithmetic {
    struct Number {
        MPI_Datatype type{};  // no_type: this MPI has none
        reducing::Numbers numbers{};
    };
    struct Operation {
        MPI_Op op{};
        reducing::Operation operation{};
    };
#define HPE_PLACE(name, symbol, what) at_##symbol,
    enum { HPE_MPI_NUMBERS(HPE_PLACE) kNumbers };
    enum { HPE_MPI_OPERATIONS(HPE_PLACE) kOperations };
#undef HPE_PLACE
    Number numbers[kNumbers];
    Operation operations[kOperations];
};
extern constinit Arithmetic arithmetic;

// What is to be filled in.
std::span<const Symbol> symbols() noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI
