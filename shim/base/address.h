// SPDX-License-Identifier: MIT
// Pointers as numbers, and back. Threads: any; async-signal-safe. Errors: none.
#pragma once

#include <cstdint>

namespace hpe {

inline std::uintptr_t address(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }
inline void* pointer(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

}  // namespace hpe
