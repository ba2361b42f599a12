// SPDX-License-Identifier: MIT
// The bound on memory that libhpe pins (HPE_PINNED_LIMIT): host copies, bounce buffers, prefetch buffers and what MPI
// messages go through count together.
// Pinned memory is taken from every other process of the machine. The bounce buffers that each context needs to serve a
// fault at any time (Engine, 2 MiB) are not counted.
//
// Bytes. Threads: any; no lock, no allocation. Errors: take() returns false at the bound.
#pragma once

#include <cstddef>

namespace hpe::pinned {

// Once, before anything else. 0: a quarter of the machine's memory.
void configure(std::size_t limit) noexcept;
std::size_t limit() noexcept;

bool take(std::size_t bytes) noexcept;
void give_back(std::size_t bytes) noexcept;

}  // namespace hpe::pinned
