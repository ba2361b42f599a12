// SPDX-License-Identifier: MIT
// What the machine gives this process: memory and processors.
// Threads: any; no allocation. Errors: none; where the kernel does not say, a cautious value.
#pragma once

#include <cstddef>

namespace hpe::machine {

// Bytes.
std::size_t physical_memory() noexcept;
// That this process may run on (its affinity mask), at least 1.
unsigned processors() noexcept;

}  // namespace hpe::machine
