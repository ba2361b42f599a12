// SPDX-License-Identifier: MIT
// Bounce memory of a vector is one piece; each part has pages of its own in it.
#include "shim/doors/libc_vectors.h"

#include <algorithm>
#include <cerrno>

#include "shim/base/guarded_copy.h"
#include "shim/base/thread.h"
#include "shim/process/signals.h"

namespace hpe::doors {

namespace {

std::size_t in_page(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at) % kPage; }

// Room for a part that begins at the same place in a page.
std::size_t pages_of(const iovec& part) noexcept {
    return (in_page(part.iov_base) + part.iov_len + kPage - 1) / kPage * kPage;
}

bool leased(const iovec& part) noexcept { return lease::stands_for(part.iov_base, part.iov_len); }

// Calls visit(part) for each part until one returns false. False: the vector cannot be read to its end.
template <class Visit>
bool for_program(const iovec* parts, std::size_t count, Visit&& visit) noexcept {
    // A thread that blocked SIGSEGV before the first allocation still does: the copy may trap.
    if (!this_thread.settled) signals::settle_thread();
    std::array<iovec, 16> some;
    for (std::size_t done = 0; done < count;) {
        const auto now = std::min(count - done, some.size());
        if (!guarded_copy(some.data(), parts + done, now)) return false;
        // Of a single part the kernel looks at no more than it transfers (since Linux 6.4), if the length is one.
        if (count == 1 && some[0].iov_len <= SSIZE_MAX) some[0].iov_len = std::min(some[0].iov_len, kMostBytes);
        for (std::size_t i = 0; i < now; ++i) {
            if (!visit(some[i])) return true;
        }
        done += now;
    }
    return true;
}

// Calls visit(part) for what lies in one object, in uncached memory or in neither.
template <class Visit>
void for_pieces(const iovec& part, Visit&& visit) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(part.iov_base);
    if (!coherence().may_overlap(begin, part.iov_len)) {
        visit(part);
        return;
    }
    lease::for_parts(begin, part.iov_len, [&](Object*, std::uintptr_t at, std::size_t bytes) {
        visit(iovec{reinterpret_cast<void*>(at), bytes});
        return bytes;
    });
}

}  // namespace

bool parts_concern(const iovec* parts, std::size_t count) noexcept {
    if (count > IOV_MAX) return false;
    bool any = false;
    const bool read = for_program(parts, count, [&](const iovec& part) {
        any = lease::concerns(part.iov_base, part.iov_len) || any;
        return !any || unread::any();
    });
    return read && any;
}

CopiedVector::CopiedVector(const iovec* program, std::size_t count) noexcept {
    if (count > IOV_MAX) return;
    if (count > few_.size()) {
        if (!many_.take(nullptr, count * sizeof(iovec))) return;
        parts_ = reinterpret_cast<iovec*>(many_.memory());
    }
    ok_ = guarded_copy(parts_, program, count);
    count_ = count;
}

bool Vector::make_room(std::size_t parts) noexcept {
    if (parts <= room_) return true;
    if (!many_.take(nullptr, 2 * parts * sizeof(iovec))) return false;
    parts_ = reinterpret_cast<iovec*>(many_.memory());
    room_ = parts;
    return true;
}

Vector::Vector(const iovec* program, std::size_t count) noexcept {
    std::size_t pieces = 0;
    bool read = for_program(program, count, [&](const iovec& part) {
        for_pieces(part, [&](const iovec&) { ++pieces; });
        return true;
    });
    if (read && !make_room(std::min(pieces, std::size_t{IOV_MAX}))) return;
    // What is more than a call takes is left out, as the kernel does: the count of bytes says how far it came.
    std::size_t bytes = 0;
    read = read && for_program(program, count, [&](const iovec& part) {
               for_pieces(part, [&](const iovec& piece) {
                   if (count_ == room_ || bytes > kMostBytes) return;
                   parts_[count_] = parts_[room_ + count_] = piece;
                   bytes += piece.iov_len;
                   ++count_;
               });
               return true;
           });
    ok_ = read;
    if (!read) errno = EFAULT;
}

VectorToRead::VectorToRead(const iovec* program, std::size_t count, const void* caller) noexcept
    : Vector(program, count) {
    const auto in_object = [](const iovec& part) { return lease::in_one_object(part.iov_base, part.iov_len); };
    std::size_t pages = 0;
    for (std::size_t i = 0; ok_ && i < count_; ++i) {
        iovec& part = parts_[i];
        if (in_object(part)) {
            const lease::ToRead lease(part.iov_base, part.iov_len, caller, lease::Until::Later);
            if (lease.is_view()) {
                part.iov_base = const_cast<void*>(lease.memory());
                continue;
            }
        }
        if (leased(part)) {
            part.iov_len = std::min(part.iov_len, kMostBytes);
            pages += pages_of(part);
        }
    }
    if (pages == 0 || !ok_) return;
    ok_ = bounce_.take(nullptr, pages);
    auto* at = bounce_.memory();
    for (std::size_t i = 0; ok_ && i < count_; ++i) {
        iovec& part = parts_[i];
        if (!leased(part) || pages < pages_of(part)) continue;  // a view is not
        auto* const memory = at + in_page(part.iov_base);
        at += pages_of(part);
        pages -= pages_of(part);
        ok_ = lease::load(memory, part.iov_base, part.iov_len, caller) == part.iov_len;
        if (!ok_) errno = EFAULT;
        part.iov_base = memory;
    }
}

VectorToWrite::VectorToWrite(const iovec* program, std::size_t count, Bounces bounces) noexcept
    : Vector(program, count) {
    for (std::size_t i = 0; ok_ && i < count_; ++i) {
        if (!leased(parts_[i])) continue;
        parts_[i].iov_len = std::min(parts_[i].iov_len, kMostBytes);
        pages_ += pages_of(parts_[i]);
    }
    if (pages_ == 0 || bounces == Bounces::Placed) return;
    ok_ = bounce_.take(nullptr, pages_);
    if (ok_) place(bounce_.memory());
}

void VectorToWrite::place(std::byte* at) noexcept {
    auto left = pages_;
    for (std::size_t i = 0; i < count_; ++i) {
        iovec& part = parts_[i];
        const auto taken = pages_of(part);
        // No room: it was nobody's a moment ago.
        if (!leased(part) || taken > left) continue;
        part.iov_base = at + in_page(part.iov_base);
        at += taken;
        left -= taken;
    }
}

void VectorToWrite::load(const void* caller) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        if (parts_[i].iov_base == program(i).iov_base) continue;
        lease::load(static_cast<std::byte*>(parts_[i].iov_base), program(i).iov_base, parts_[i].iov_len, caller);
    }
}

std::size_t VectorToWrite::store(std::size_t bytes, const void* caller) const noexcept {
    std::size_t done = 0;
    for (std::size_t i = 0; i < count_ && done < bytes; ++i) {
        const auto part = std::min(program(i).iov_len, bytes - done);
        if (parts_[i].iov_base != program(i).iov_base) {
            const auto stored =
                lease::store(program(i).iov_base, static_cast<const std::byte*>(parts_[i].iov_base), part, caller);
            if (stored != part) return done + stored;
        }
        done += part;
    }
    return done;
}

}  // namespace hpe::doors
