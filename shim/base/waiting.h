// SPDX-License-Identifier: MIT
// Ways to wait that leave errno as it was: std::atomic's own leaves what the futex said.
//
// Threads: any; async-signal-safe. Errors: none; a nap may be shorter than it should be, as when a signal came.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"

namespace hpe {

// Waits until another thread has changed the value and called notify_one() or notify_all().
template <class Atomic, class Value>
void wait_while(const Atomic& atomic, Value value, std::memory_order order = std::memory_order_acquire) noexcept {
    const ErrnoKept kept;
    atomic.wait(value, order);
}

// Sleeps; less than a second. The system call itself: nanosleep is a cancellation point.
inline void nap(std::chrono::nanoseconds time) noexcept {
    const timespec rest{0, time.count()};
    kernel::raw(SYS_nanosleep, kernel::word(&rest), 0);
}

}  // namespace hpe
