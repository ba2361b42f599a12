// SPDX-License-Identifier: MIT
// A lock of one word for a few instructions' work, for Locked (mutex.h). It spins, then waits on a futex of its own,
// allocates nothing and is no lock of libc or libcuda. Not std::atomic's waiting: libstdc++ keeps the sleepers of all
// atomics of a process in one table of 16 entries, so that an unlock was a system call (0.5 us) wherever some thread
// slept by the same entry.
//
// Threads: any, also inside the fault path if every holder outside it has the signals blocked that may fault on this
// thread; those of streams' records have not, since a handler that interrupts a CUDA call may wait for ever there as it
// may in the driver (docs/limits.md). Not recursive, not fair.
//
// Source: Drepper, "Futexes Are Tricky" (2011), section 5, the second mutex. Errors: none; errno stays as it was.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstdint>

#include "shim/base/kernel.h"
#include "shim/base/mutex.h"

namespace hpe {

class HPE_LOCK("spin lock") SpinLock {
public:
    void lock() noexcept HPE_ACQUIRES() {
        if (!take_free()) wait();
    }
    bool try_lock() noexcept HPE_TRIES { return take_free(); }
    void assume_held() const noexcept HPE_ASSUMES {}  // as Mutex's
    void unlock() noexcept HPE_RELEASES() {
        if (state_.exchange(kFree, std::memory_order_release) == kWanted) {
            kernel::raw(SYS_futex, kernel::word(&state_), FUTEX_WAKE_PRIVATE, 1);
        }
    }

private:
    bool take_free() noexcept {
        auto seen = kFree;
        return state_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
    }
    void wait() noexcept {
        constexpr int kSpins = 100;  // a few microseconds
        for (int spin = 0; spin < kSpins; ++spin) {
            __builtin_ia32_pause();
            if (state_.load(std::memory_order_relaxed) == kFree && take_free()) return;
        }
        // Whoever has slept does not know who else does, and leaves the word so that its unlock wakes one.
        while (state_.exchange(kWanted, std::memory_order_acquire) != kFree) {
            kernel::raw(SYS_futex, kernel::word(&state_), FUTEX_WAIT_PRIVATE, kWanted, 0);
        }
    }

    // kWanted: held, and somebody may sleep.
    static constexpr std::uint32_t kFree = 0, kHeld = 1, kWanted = 2;
    std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace hpe
