// SPDX-License-Identifier: MIT
// Bounce memory (coherence/lease.h) that MPI may register with a network card.
//
// Bytes; the memory is the owner's until it is destroyed. Threads: each for one at a time. Errors: without memory, at()
// is nullptr.
#pragma once

#include <atomic>
#include <cstddef>

#include "shim/coherence/lease.h"

namespace hpe::mpi {

// Once, before anything else: whether objects in MPI calls are replaced by host memory (HPE_MPI).
void configure(bool on) noexcept;
extern std::atomic<bool> enabled;

class HostMemory {
public:
    // Stands for the `bytes` at `like`.
    HostMemory(const void* like, std::size_t bytes) noexcept;
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    std::byte* at() const noexcept { return bounce_.memory(); }

private:
    lease::Bounce bounce_;
    const std::size_t bytes_;
};

}  // namespace hpe::mpi
