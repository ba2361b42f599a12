// SPDX-License-Identifier: MIT
// A lock of one flag for a few instructions' work, for Locked (mutex.h). It waits on a futex
// (std::atomic_flag::wait), allocates nothing and is no lock of libc or libcuda.
//
// Threads: any, also inside the fault path if every holder outside it has the signals blocked that may fault on this
// thread. Not recursive, not fair.
//
// Errors: none; errno stays as it was.
#pragma once

#include <atomic>

#include "shim/base/mutex.h"
#include "shim/base/waiting.h"

namespace hpe {

class HPE_LOCK("spin lock") SpinLock {
public:
    void lock() noexcept HPE_ACQUIRES() {
        while (flag_.test_and_set(std::memory_order_acquire)) wait_while(flag_, true, std::memory_order_relaxed);
    }
    bool try_lock() noexcept HPE_TRIES { return !flag_.test_and_set(std::memory_order_acquire); }
    void assume_held() const noexcept HPE_ASSUMES {}  // as Mutex's
    void unlock() noexcept HPE_RELEASES() {
        // Sequentially consistent: notify_one() looks for sleepers, and must not look before they can see this.
        flag_.clear(std::memory_order_seq_cst);
        flag_.notify_one();
    }

private:
    std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

}  // namespace hpe
