// SPDX-License-Identifier: MIT
// An MPI library as the loader sees it: what it is called, the functions of it that have doors, and those that libhpe
// calls itself. There is one for each binary interface that libhpe was built for; nothing here depends on which.
//
// Sources: the sonames that implementations agreed on (MPICH ABI Compatibility Initiative; Open MPI since 4.0; MPI 5.0,
// chapter 20).
//
// Pointers belong to the library. Threads: filled under the loader's lock (doors/mpi_imports.h) before the first door
// can be called. Errors: what is not there is nullptr.
#pragma once

#include <cstdint>
#include <span>

namespace hpe::mpi {

// A function with a door: MPI_X, and PMPI_X under the same name.
struct Door {
    const char* name;
    void* door;
    void** real;  // the library's own
};

// What libhpe calls, or compares with: the address of a function or variable of the library.
struct Symbol {
    const char* name;
    void** place;
    bool function;
    bool optional = false;
};

struct Library {
    std::span<const Door> doors;
    std::span<const std::uint16_t> by_name;  // the doors' places in the order of their names
    std::span<const Symbol> symbols;
};

}  // namespace hpe::mpi
