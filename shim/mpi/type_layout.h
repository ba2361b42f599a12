// SPDX-License-Identifier: MIT
// The layout (copies/layout.h) of an MPI datatype, found once and kept with the type as an attribute of it: MPI ends
// both together.
//
// Source: MPI 4.1, sections 5.1.13 (decoding a datatype) and 7.7.3 (attributes of datatypes).
//
// Bytes; the type is the caller's. Threads: any that may call MPI. Errors: nothing where the type has no layout: made
// by a constructor that is not known here, with more loops or pieces than a layout has, of predefined types with gaps,
// or one whose elements this MPI cannot receive as bytes.
#pragma once

#include <optional>

#include "shim/copies/layout.h"
#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

std::optional<Layout> layout_of(MPI_Datatype type) noexcept;
// The same, found anew, and whatever this MPI can receive.
std::optional<Layout> decoded(MPI_Datatype type) noexcept;
bool is_predefined(MPI_Datatype type) noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI
