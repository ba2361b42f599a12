// SPDX-License-Identifier: MIT
// Calls that read or write one range of memory, made with memory that the kernel may use (lease.h).
//
// Bytes. Threads: each call's own. Errors: as of the call; EFAULT where an object cannot be brought, ENOMEM where there
// is no bounce memory.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"

namespace hpe::doors {

// What one system call transfers at most (read(2)).
constexpr std::size_t kMostBytes = 0x7ffff000;

// What a call returns that has written `got` bytes, of which so many could be stored.
inline ssize_t after_store(ssize_t got, std::size_t written, std::size_t stored) noexcept {
    if (stored == written) return got;
    if (stored != 0) return static_cast<ssize_t>(stored);
    errno = EFAULT;
    return -1;
}

// `real(memory, bytes)` is the program's call, for other memory. It may return the length of a message of which the
// program gets what there is room for.
template <class Real>
ssize_t into(void* at, std::size_t bytes, const void* caller, Real&& real) {
    bytes = std::min(bytes, kMostBytes);
    lease::Bounce bounce(at, bytes);
    if (bounce.memory() == nullptr) return -1;
    const ssize_t got = holding(bounce, [&] { return real(bounce.memory(), bytes); });
    if (got <= 0) return got;
    const auto written = std::min(static_cast<std::size_t>(got), bytes);
    return after_store(got, written, lease::store(at, bounce.memory(), written, caller));
}

template <class Real>
ssize_t out_of(const void* at, std::size_t bytes, const void* caller, Real&& real) {
    lease::ToRead memory(at, std::min(bytes, kMostBytes), caller);
    if (memory.memory() == nullptr) return -1;
    return holding(memory, [&] { return real(memory.memory(), memory.bytes()); });
}

}  // namespace hpe::doors
