// SPDX-License-Identifier: MIT
// One counter.
#include "shim/memory/pinned.h"

#include <atomic>

#include "shim/base/machine.h"

#include "shim/base/in_fault_path.h"

namespace hpe::pinned {

namespace {

constinit std::atomic<std::size_t> taken{0};
constinit std::atomic<std::size_t> bound{0};

}  // namespace

void configure(std::size_t limit) noexcept {
    bound.store(limit != 0 ? limit : machine::physical_memory() / 4, std::memory_order_relaxed);
}

std::size_t limit() noexcept { return bound.load(std::memory_order_relaxed); }

bool take(std::size_t bytes) noexcept {
    auto now = taken.load(std::memory_order_relaxed);
    do {
        if (bytes > limit() - now || now > limit()) return false;
    } while (!taken.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
}

void give_back(std::size_t bytes) noexcept { taken.fetch_sub(bytes, std::memory_order_relaxed); }

}  // namespace hpe::pinned
