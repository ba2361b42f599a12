// SPDX-License-Identifier: MIT
// Bounce memory, and whom to tell of its end.
#include "shim/mpi/host_memory.h"

#include "shim/base/kernel.h"

namespace hpe::mpi {

constinit std::atomic<bool> enabled{true};

void configure(bool on) noexcept { enabled.store(on, std::memory_order_relaxed); }

HostMemory::HostMemory(const void* like, std::size_t bytes) noexcept : bounce_(like, bytes), bytes_(bytes) {}

HostMemory::~HostMemory() {
    // Recycled memory stays mapped. Of other memory, caches of registered memory have to know that it ends.
    if (bounce_.memory() != nullptr && bytes_ > lease::Bounce::kRecycled) {
        kernel::tell_unmapped(bounce_.memory(), bytes_);
    }
}

}  // namespace hpe::mpi
