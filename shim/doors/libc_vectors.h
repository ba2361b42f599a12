// SPDX-License-Identifier: MIT
// The vectors of readv, writev, sendmsg and their like: what of them lies in objects is replaced by what the kernel may
// use (lease.h). Their order, number and lengths stay.
//
// Bytes. Threads: each call's own. Errors: ok() is false, and errno says why.
#pragma once

#include <limits.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

#include "shim/coherence/lease.h"

namespace hpe::doors {

inline std::span<const iovec> parts_of(const iovec* parts, long count) noexcept {
    // What the kernel refuses it refuses itself.
    return count > 0 && count <= IOV_MAX ? std::span(parts, static_cast<std::size_t>(count)) : std::span<const iovec>();
}

inline bool concerns(std::span<const iovec> parts) noexcept {
    if (!process::active.load(std::memory_order_relaxed) || coherence().table().empty()) return false;
    for (const iovec& part : parts) {
        if (lease::concerns(part.iov_base, part.iov_len)) return true;
    }
    return false;
}

class Vector {
public:
    bool ok() const noexcept { return ok_; }
    const iovec* parts() const noexcept { return parts_.data(); }
    iovec* parts() noexcept { return parts_.data(); }
    int count() const noexcept { return static_cast<int>(count_); }

protected:
    Vector(std::span<const iovec> program) noexcept;
    std::array<iovec, IOV_MAX> parts_;
    std::size_t count_;
    bool ok_ = true;
};

class VectorToRead : public Vector {
public:
    VectorToRead(std::span<const iovec> program, const void* caller) noexcept;

private:
    lease::Bounce bounce_;
};

class VectorToWrite : public Vector {
public:
    explicit VectorToWrite(std::span<const iovec> program) noexcept;
    // Of what the call has written, `bytes` in all. Returns how many bytes could be stored, from the first on.
    std::size_t store(std::size_t bytes, const void* caller) const noexcept;

private:
    const std::span<const iovec> program_;
    lease::Bounce bounce_;
};

}  // namespace hpe::doors
