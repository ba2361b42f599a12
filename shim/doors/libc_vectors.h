// SPDX-License-Identifier: MIT
// The vectors of readv, writev, sendmsg and their like: what of them lies in objects is replaced by what the kernel may
// use (lease.h). A part is split where an object begins or ends: what is ordinary memory is the kernel's own to read,
// write, and refuse.
//
// Bytes. Threads: each call's own. Errors: ok() is false, and errno says why; EFAULT where the vector cannot be read.
#pragma once

#include <limits.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

#include "shim/coherence/lease.h"

namespace hpe::doors {

// What one system call transfers at most (read(2)).
constexpr std::size_t kMostBytes = 0x7ffff000;

// Or pages that unread.h has closed.
inline bool any_objects() noexcept { return lease::any() || unread::any(); }

// Whether a part lies in an object; all are asked for, if any pages are closed. A vector that the kernel would refuse
// concerns nobody: it refuses it itself.
bool parts_concern(const iovec* parts, std::size_t count) noexcept;
inline bool concerns(const iovec* parts, std::size_t count) noexcept {
    return any_objects() && parts_concern(parts, count);
}

// A copy of a vector, for calls that libhpe makes itself.
class CopiedVector {
public:
    CopiedVector(const iovec* program, std::size_t count) noexcept;
    // False: the kernel would refuse it, it cannot be read, or there is no memory.
    bool ok() const noexcept { return ok_; }
    std::span<const iovec> parts() const noexcept { return {parts_, count_}; }

private:
    // Threads may have little stack.
    std::array<iovec, 32> few_;
    lease::Bounce many_;
    iovec* parts_ = few_.data();
    std::size_t count_ = 0;
    bool ok_ = false;
};

class Vector {
public:
    bool ok() const noexcept { return ok_; }
    iovec* parts() noexcept { return parts_; }
    int count() const noexcept { return static_cast<int>(count_); }

protected:
    Vector(const iovec* program, std::size_t count) noexcept;
    // The parts as the program has them.
    const iovec& program(std::size_t part) const noexcept { return parts_[room_ + part]; }

    // Threads may have little stack.
    std::array<iovec, 16> few_;
    iovec* parts_ = few_.data();
    std::size_t count_ = 0;
    bool ok_ = false;

private:
    bool make_room(std::size_t parts) noexcept;

    lease::Bounce many_;
    std::size_t room_ = few_.size() / 2;
};

class VectorToRead : public Vector {
public:
    VectorToRead(const iovec* program, std::size_t count, const void* caller) noexcept;

private:
    lease::Bounce bounce_;  // of parts that have no view
};

class VectorToWrite : public Vector {
public:
    // With bounce memory of its own, or in the caller's: room() bytes, from a page on.
    enum class Bounces { Own, Placed };
    VectorToWrite(const iovec* program, std::size_t count, Bounces bounces = Bounces::Own) noexcept;
    std::size_t room() const noexcept { return pages_; }
    void place(std::byte* at) noexcept;
    // For a call that may leave memory as it was: what is there now is what store() then finds.
    void load(const void* caller) const noexcept;
    // Of what the call has written, `bytes` in all. Returns how many bytes could be stored, from the first on.
    std::size_t store(std::size_t bytes, const void* caller) const noexcept;

private:
    std::size_t pages_ = 0;  // bytes
    lease::Bounce bounce_;
};

}  // namespace hpe::doors
