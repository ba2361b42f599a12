// SPDX-License-Identifier: MIT
// A flag that threads share, 0 or 1. An integer: the operations of std::atomic<bool> are no intrinsics in libstdc++,
// and GCC 12 calls them as functions where the caller is long.
#pragma once

#include <atomic>
#include <cstdint>

namespace hpe {

using Flag = std::atomic<std::uint8_t>;

// For what each allocation or launch reads and hardly anybody writes: the linker places it side by side, since the
// driver's calls leave little in the caches. Not for inline variables: GCC then puts all of a file in one group. Their
// declarations are HPE_HIDDEN, or each reader would load the address first.
#define HPE_READ_OFTEN [[gnu::section("hpe_read_often")]]
#define HPE_HIDDEN [[gnu::visibility("hidden")]]

}  // namespace hpe
