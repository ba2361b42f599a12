// SPDX-License-Identifier: MIT
// Calls that read or write one range of memory, or a vector of ranges, made with memory that the kernel may use
// (lease.h).
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
#include "shim/doors/libc_vectors.h"

namespace hpe::doors {

// What a call returns that has written `got` bytes, of which so many could be stored.
inline ssize_t after_store(ssize_t got, std::size_t written, std::size_t stored) noexcept {
    if (stored == written) return got;
    if (stored != 0) return static_cast<ssize_t>(stored);
    errno = EFAULT;
    return -1;
}

// `real(parts, count)` is the program's call, for another vector.
template <class Real>
ssize_t into_vector(const iovec* parts, std::size_t count, const void* caller, Real&& real) {
    VectorToWrite vector(parts, count);
    if (!vector.ok()) return -1;
    const ssize_t got = holding(vector, [&] { return real(vector.parts(), vector.count()); });
    if (got <= 0) return got;
    const auto written = static_cast<std::size_t>(got);
    return after_store(got, written, vector.store(written, caller));
}
template <class Real>
ssize_t out_of_vector(const iovec* parts, std::size_t count, const void* caller, Real&& real) {
    VectorToRead vector(parts, count, caller);
    if (!vector.ok()) return -1;
    return holding(vector, [&] { return real(vector.parts(), vector.count()); });
}

// `real(memory, bytes)` is the program's call, for other memory. It may return the length of a message of which the
// program gets what there is room for. `real_vector(parts, count)` is the same call for a range of several parts.
template <class Real, class RealVector>
ssize_t into(void* at, std::size_t bytes, const void* caller, Real&& real, RealVector&& real_vector) {
    bytes = std::min(bytes, kMostBytes);
    const iovec whole{at, bytes};
    if (!lease::in_one_object(at, bytes)) return into_vector(&whole, 1, caller, real_vector);
    lease::Bounce bounce(at, bytes);
    if (bounce.memory() == nullptr) return -1;
    const ssize_t got = holding(bounce, [&] { return real(bounce.memory(), bytes); });
    if (got <= 0) return got;
    const auto written = std::min(static_cast<std::size_t>(got), bytes);
    return after_store(got, written, lease::store(at, bounce.memory(), written, caller));
}

template <class Real, class RealVector>
ssize_t out_of(const void* at, std::size_t bytes, const void* caller, Real&& real, RealVector&& real_vector) {
    bytes = std::min(bytes, kMostBytes);
    const iovec whole{const_cast<void*>(at), bytes};
    if (!lease::in_one_object(at, bytes)) return out_of_vector(&whole, 1, caller, real_vector);
    lease::ToRead memory(at, bytes, caller);
    if (memory.memory() == nullptr) return -1;
    return holding(memory, [&] { return real(memory.memory(), memory.bytes()); });
}

}  // namespace hpe::doors
