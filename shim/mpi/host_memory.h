// SPDX-License-Identifier: MIT
// Bounce memory (coherence/lease.h) that MPI may register with a network card. That of messages from 32 KiB on is kept
// for the next ones, and pinned when it is used again: the device then copies straight to and from it, and no page of
// it has to be made anew. Memory of messages that other processes may take themselves is shared: an image
// (ipc/host_images.h).
//
// Bytes; the memory is the owner's until it is destroyed. Threads: each for one at a time. Errors: without memory, at()
// is nullptr.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>

#include "shim/coherence/lease.h"
#include "shim/ipc/host_images.h"

namespace hpe::mpi {

// Once, before anything else: whether objects in MPI calls are replaced by host memory (HPE_MPI).
void configure(bool on) noexcept;
extern std::atomic<bool> enabled;

class HostMemory {
public:
    enum class Sort : bool { Own, Shared };
    // Stands for the `bytes` at `like`. Shared memory is memory of its own where there is none that can be shared.
    HostMemory(const void* like, std::size_t bytes, Sort sort = Sort::Own) noexcept;
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    std::byte* at() const noexcept { return at_; }
    // Whether memory of so many bytes is kept, and pinned.
    static bool keeps(std::size_t bytes) noexcept;
    // Before copies between it and an object of the context. Waits for the device, as these do.
    void pin(void* context) const noexcept;
    bool pinned() const noexcept;
    // All its bytes are there. Without any, at() is nullptr: it is not shared.
    ipc::Image image() const noexcept;

    // What was pinned in the context is no more.
    static void forget(CUcontext context) noexcept;

private:
    struct Kept;
    static Kept* take(std::size_t bytes, Sort sort) noexcept;

    Kept* kept_ = nullptr;
    lease::Bounce bounce_;
    std::byte* at_ = nullptr;
    const std::size_t bytes_;
};

}  // namespace hpe::mpi
