// SPDX-License-Identifier: MIT
// A list of few elements, found by what they are. Most programs have none, and take no lock to learn that.
//
// Elements have a member `next`, which is the list's while they are in it; the list owns none of them, and is never
// destroyed: MPI may have ended before the process does. What looks for an element is called under the lock, and calls
// neither MPI nor the list. Threads: any. Errors: none.
#pragma once

#include <atomic>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"

namespace hpe::mpi {

template <class Element>
class ShortList {
public:
    void add(Element* element) noexcept {
        const Locked held(lock_);
        element->next = first_.load(std::memory_order_relaxed);
        first_.store(element, std::memory_order_release);
    }
    // The one that was added last of those that are wanted, which stays, or nothing.
    template <class Wanted>
    Element* find(Wanted&& wanted) noexcept {
        if (empty()) return nullptr;
        const Locked held(lock_);
        Element* at = first_.load(std::memory_order_relaxed);
        while (at != nullptr && !wanted(*at)) at = at->next;
        return at;
    }
    // The same, which leaves the list.
    template <class Wanted>
    Element* take(Wanted&& wanted) noexcept {
        if (empty()) return nullptr;
        const Locked held(lock_);
        Element* before = nullptr;
        Element* at = first_.load(std::memory_order_relaxed);
        for (; at != nullptr && !wanted(*at); at = at->next) before = at;
        if (at == nullptr) return nullptr;
        if (before == nullptr) {
            first_.store(at->next, std::memory_order_relaxed);
        } else {
            before->next = at->next;
        }
        return at;
    }

private:
    bool empty() const noexcept { return first_.load(std::memory_order_acquire) == nullptr; }

    std::atomic<Element*> first_{nullptr};  // the lock is held by who stores it, or follows it
    SpinLock lock_;
};

}  // namespace hpe::mpi
