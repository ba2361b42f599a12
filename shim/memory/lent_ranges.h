// SPDX-License-Identifier: MIT
// Which bytes of objects are lent to an MPI (copies/lent.h): of a region that is some of its allocations.
//
// Addresses are the device's, sizes bytes. Threads: any, outside the fault path. Errors: none; where there is no memory
// to remember a range, all ranges count as lent as long as it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hpe::lent_ranges {

void add(std::uintptr_t begin, std::size_t bytes) noexcept;
void remove(std::uintptr_t begin, std::size_t bytes) noexcept;
bool overlap(std::uintptr_t begin, std::size_t bytes) noexcept;

}  // namespace hpe::lent_ranges
