// SPDX-License-Identifier: MIT
// What the files of the fault path share: a CPU access trapped, or a call is about to read or write memory without a
// trap.
//
// Threads: any; async-signal-safe. Errors: none.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <csignal>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/memory/arena.h"
#include "shim/memory/object.h"

namespace hpe {

inline bool on_alternate_stack() noexcept {
    stack_t stack{};
    return kernel::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

// The state in which the fault door serves a fault: no handler of the program runs, and waiting for the driver is no
// cancellation point.
class AsInHandler {
public:
    AsInHandler() noexcept {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
        this_thread.in_fault = true;
    }
    ~AsInHandler() {
        this_thread.in_fault = before_;
        pthread_setcancelstate(cancellation_, nullptr);
    }
    AsInHandler(const AsInHandler&) = delete;
    AsInHandler& operator=(const AsInHandler&) = delete;

private:
    const ErrnoKept kept_;
    const SignalsBlocked blocked_;
    const bool before_ = this_thread.in_fault;
    int cancellation_ = PTHREAD_CANCEL_ENABLE;
};

// Whether the driver is to be called by a helper thread: this one has too little stack, or it is ending, and the driver
// has forgotten it (CUDA_ERROR_NOT_INITIALIZED, seen on an H100 and an H200 in signal handlers).
inline bool driver_needs_helper(CUcontext context) noexcept {
    return on_alternate_stack() || ContextScope(context).result() != CUDA_SUCCESS;
}

// The block is locked: is it still the one that was found, and its object mapped?
inline bool usable(const Object& object, std::uint32_t serial, std::uint32_t index) noexcept {
    return object.alive(serial) && index < object.blocks() && object.shadowed.load(std::memory_order_acquire);
}

// For large runs: all of the run will be used, and so will the rest of its huge pages.
inline void use_huge_pages(const Object& object, std::size_t offset, std::size_t bytes) noexcept {
    if (bytes < Arena::kChunk / 2) return;
    const auto begin = offset / Arena::kChunk * Arena::kChunk;
    const auto end = (offset + bytes + Arena::kChunk - 1) / Arena::kChunk * Arena::kChunk;
    Arena::use_huge_pages(object.view + begin, std::min(end, object.size) - begin);
}

}  // namespace hpe
