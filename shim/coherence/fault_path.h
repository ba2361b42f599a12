// SPDX-License-Identifier: MIT
// What the files of the fault path share: coherence_faults.cpp (a CPU access trapped) and coherence_calls.cpp (a call
// is about to read or write memory without a trap).
//
// Threads: any; async-signal-safe. Errors: none.
#pragma once

#include <csignal>

#include "protocols/object.h"
#include "shim/base/kernel.h"

namespace hpe {

inline bool on_alternate_stack() noexcept {
    stack_t stack{};
    return kernel::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

// The block is locked: is it still the one that was found, and its object mapped?
inline bool usable(const Object& object, std::uint32_t serial, std::uint32_t index) noexcept {
    return object.alive(serial) && index < object.blocks() && object.shadowed.load(std::memory_order_acquire);
}

}  // namespace hpe
