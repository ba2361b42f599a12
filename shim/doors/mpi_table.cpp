// SPDX-License-Identifier: MIT
// The doors of one MPI: the catalogue, made into functions.
#include <algorithm>
#include <array>
#include <string_view>

#include "shim/doors/mpi_collectives.h"
#include "shim/doors/mpi_door.h"
#include "shim/doors/mpi_files.h"
#include "shim/doors/mpi_imports.h"
#include "shim/doors/mpi_messages.h"
#include "shim/doors/mpi_packing.h"
#include "shim/doors/mpi_partitions.h"
#include "shim/doors/mpi_queries.h"
#include "shim/doors/mpi_requests.h"
#include "shim/doors/mpi_windows.h"

namespace hpe::doors::HPE_MPI_ABI {

constinit void* own_functions[kRows] = {};

namespace {

template <class Function>
void* address(Function* function) noexcept {
    return reinterpret_cast<void*>(function);
}

constexpr auto by_name = [] {
    constexpr std::string_view names[] = {
#define MPI_DOOR_LIKE(other, name, kind, treatment) #name,
#define MPI_OWN_DOOR(name, door) #name,
#include "shim/doors/mpi_catalog.inc"
    };
    std::array<std::uint16_t, kRows> order{};
    for (std::size_t i = 0; i < kRows; ++i) order[i] = static_cast<std::uint16_t>(i);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return names[a] < names[b]; });
    return order;
}();

}  // namespace

// Made when it is first asked for: that may be before this file's constructors run.
mpi::Library library() noexcept {
    static const mpi::Door doors[] = {
#define MPI_DOOR_LIKE(other, name, kind, treatment)                                                     \
    {#name,                                                                                             \
     address(&Made<row_##name, Kind::kind,                                                              \
                   decltype([](auto&... a) noexcept -> decltype(treatment(a...)) { treatment(a...); }), \
                   decltype(::other)>::door),                                                           \
     &own_functions[row_##name]},
#define MPI_OWN_DOOR(name, door) {#name, address<decltype(::name)>(door), &own_functions[row_##name]},
#include "shim/doors/mpi_catalog.inc"
    };
    return {doors, by_name, symbols()};
}

}  // namespace hpe::doors::HPE_MPI_ABI
