// SPDX-License-Identifier: MIT
// Bounce memory of a vector is one piece; each part has pages of its own in it.
#include "shim/doors/libc_vectors.h"

#include <algorithm>
#include <cerrno>

namespace hpe::doors {

namespace {

std::size_t in_page(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at) % kPage; }

// Room for a part that begins at the same place in a page.
std::size_t pages_of(const iovec& part) noexcept {
    return (in_page(part.iov_base) + part.iov_len + kPage - 1) / kPage * kPage;
}

bool concerns(const iovec& part) noexcept { return lease::concerns(part.iov_base, part.iov_len); }

bool has_view(const iovec& part) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(part.iov_base);
    const Object* const object = coherence().object_of(at);
    return object != nullptr && part.iov_len <= object->base + object->size - at;
}

}  // namespace

Vector::Vector(std::span<const iovec> program) noexcept : count_(program.size()) {
    std::copy(program.begin(), program.end(), parts_.begin());
}

VectorToRead::VectorToRead(std::span<const iovec> program, const void* caller) noexcept : Vector(program) {
    std::size_t copied = 0;
    for (const iovec& part : program) {
        if (concerns(part) && !has_view(part)) copied += pages_of(part);
    }
    if (copied != 0 && !bounce_.take(nullptr, copied)) {
        ok_ = false;
        return;
    }
    auto* place = bounce_.memory();
    for (std::size_t i = 0; i < count_; ++i) {
        iovec& part = parts_[i];
        if (!concerns(part)) continue;
        const auto wanted = part.iov_len;
        if (has_view(part)) {
            const lease::ToRead lease(part.iov_base, wanted, caller);
            part = {const_cast<void*>(lease.memory()), lease.memory() != nullptr ? wanted : 0};
        } else {
            auto* const copy = place + in_page(part.iov_base);
            place += pages_of(part);
            part = {copy, lease::load(copy, part.iov_base, wanted, caller)};
        }
        if (part.iov_len == wanted) continue;
        // The kernel would stop here.
        count_ = i + (part.iov_len != 0 ? 1 : 0);
        ok_ = count_ != 0;
        if (!ok_) errno = EFAULT;
    }
}

VectorToWrite::VectorToWrite(std::span<const iovec> program) noexcept : Vector(program), program_(program) {
    std::size_t bytes = 0;
    for (const iovec& part : program) {
        if (concerns(part)) bytes += pages_of(part);
    }
    ok_ = bounce_.take(nullptr, bytes);
    auto* place = bounce_.memory();
    for (std::size_t i = 0; ok_ && i < count_; ++i) {
        iovec& part = parts_[i];
        if (!concerns(part)) continue;
        const auto pages = pages_of(part);
        part.iov_base = place + in_page(part.iov_base);
        place += pages;
    }
}

std::size_t VectorToWrite::store(std::size_t bytes, const void* caller) const noexcept {
    std::size_t done = 0;
    for (std::size_t i = 0; i < count_ && done < bytes; ++i) {
        const auto part = std::min(program_[i].iov_len, bytes - done);
        if (parts_[i].iov_base != program_[i].iov_base) {
            const auto stored =
                lease::store(program_[i].iov_base, static_cast<const std::byte*>(parts_[i].iov_base), part, caller);
            if (stored != part) return done + stored;
        }
        done += part;
    }
    return done;
}

}  // namespace hpe::doors
