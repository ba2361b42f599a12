// SPDX-License-Identifier: MIT
// Doors of reads and writes of files, pipes and whatever else a descriptor names.
//
// Handled: read, pread, readv, preadv, preadv2 and write, pwrite, writev, pwritev, pwritev2, with their 64-bit and
// fortified names.
// Forwarded as they are: sendfile, copy_file_range, splice and tee, which take no memory of the program's.
// Elsewhere: aio_* (libc_aio.cpp), vmsplice, process_vm_* and what no door sees (libc_raw.cpp).
//
// A long read of a regular file is made piece by piece. Its range of the file is taken at once, so that threads and
// processes that share the offset never read the same bytes twice. Pieces that are in the page cache are read by helper
// threads: a tool that counts reads behind libhpe does not see these.
//
// A range that is not all in one object is given to the kernel as a vector, so that it ends where the kernel finds no
// memory.

// pread and pread64 are two names here: with this macro the headers make one of them, and newer compilers then take the
// name of the door below for the header's function.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "shim/base/kernel.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"
#include "shim/doors/libc_vectors.h"

using hpe::doors::after_store;
using hpe::doors::holding;
using hpe::doors::into;
using hpe::doors::into_vector;
using hpe::doors::kMostBytes;
using hpe::doors::Next;
using hpe::doors::out_of;
using hpe::doors::out_of_vector;
namespace kernel = hpe::kernel;
namespace lease = hpe::lease;

#define CALLER __builtin_return_address(0)

namespace {

constinit Next<ssize_t(int, void*, std::size_t)> next_read{"read"};
constinit Next<ssize_t(int, void*, std::size_t, off64_t)> next_pread{"pread64"};
constinit Next<ssize_t(int, const void*, std::size_t)> next_write{"write"};
constinit Next<ssize_t(int, const void*, std::size_t, off64_t)> next_pwrite{"pwrite64"};
constinit Next<ssize_t(int, const iovec*, int)> next_readv{"readv"}, next_writev{"writev"};
constinit Next<ssize_t(int, const iovec*, int, off64_t)> next_preadv{"preadv64"}, next_pwritev{"pwritev64"};
constinit Next<ssize_t(int, const iovec*, int, off64_t, int)> next_preadv2{"preadv64v2"}, next_pwritev2{"pwritev64v2"};
constinit Next<ssize_t(int, void*, std::size_t, std::size_t)> next_read_chk{"__read_chk"};
constinit Next<ssize_t(int, void*, std::size_t, off64_t, std::size_t)> next_pread_chk{"__pread64_chk"};

std::size_t size(int count) noexcept { return static_cast<std::size_t>(count); }
bool concerns(const iovec* parts, int count) noexcept { return hpe::doors::concerns(parts, size(count)); }

// The size of a regular file.
std::optional<off64_t> size_of(int file) noexcept {
    struct stat status {};
    if (kernel::raw(SYS_fstat, file, kernel::word(&status)) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return status.st_size;
}

// Whether a read may be made in pieces. O_DIRECT takes only what is aligned, to the page at most.
bool in_pieces(int file, const void* at, std::size_t bytes, off64_t offset) noexcept {
    if (bytes <= lease::Bounce::kRecycled || offset < 0 || !lease::in_one_object(at, bytes)) return false;
    const auto aligned = (reinterpret_cast<std::uintptr_t>(at) | bytes | static_cast<std::size_t>(offset)) % hpe::kPage;
    return aligned == 0 || (kernel::raw(SYS_fcntl, file, F_GETFL) & O_DIRECT) == 0;
}

// Of memory in one object.
ssize_t read_pieces(int file, void* at, std::size_t bytes, off64_t offset, const void* caller) {
    constexpr auto kPiece = lease::Bounce::kRecycled;
    lease::Bounce bounce(at, kPiece);
    if (bounce.memory() == nullptr) return -1;
    auto* const to = static_cast<std::byte*>(at);
    std::size_t done = 0;
    while (done < bytes) {
        // What is in the page cache, without bounce memory. Else a piece is waited for, and the kernel reads ahead.
        const auto quick = lease::store_file(to + done, bytes - done, file, offset + static_cast<off64_t>(done));
        done += quick;
        if (quick != 0) continue;
        // Up to a multiple of the piece, so that whole blocks are stored.
        const auto piece = std::min(kPiece - reinterpret_cast<std::uintptr_t>(to + done) % kPiece, bytes - done);
        const auto from = offset + static_cast<off64_t>(done);
        const ssize_t got = holding(bounce, [&] { return next_pread(file, bounce.memory(), piece, from); });
        if (got < 0 && done == 0) return -1;
        if (got <= 0) break;
        const auto put = lease::store(to + done, bounce.memory(), static_cast<std::size_t>(got), caller);
        if (put == 0 && done == 0) return after_store(got, static_cast<std::size_t>(got), 0);
        done += put;
        if (put < piece) break;
    }
    return static_cast<ssize_t>(done);
}

ssize_t read_at_offset(int file, void* at, std::size_t bytes, off64_t offset, const void* caller) {
    bytes = std::min(bytes, kMostBytes);
    if (in_pieces(file, at, bytes, offset) && size_of(file)) return read_pieces(file, at, bytes, offset, caller);
    return into(
        at, bytes, caller, [&](void* memory, std::size_t n) { return next_pread(file, memory, n, offset); },
        [&](const iovec* p, int n) { return next_preadv(file, p, n, offset); });
}

ssize_t read_on(int file, void* at, std::size_t bytes, const void* caller) {
    bytes = std::min(bytes, kMostBytes);
    const auto straight = [&] {
        return into(
            at, bytes, caller, [&](void* memory, std::size_t n) { return next_read(file, memory, n); },
            [&](const iovec* p, int n) { return next_readv(file, p, n); });
    };
    if (bytes <= lease::Bounce::kRecycled) return straight();
    const auto length = size_of(file);
    const auto position = kernel::raw(SYS_lseek, file, 0, SEEK_CUR);
    if (!length || position < 0 || position >= *length) return straight();
    const auto wanted = std::min(bytes, static_cast<std::size_t>(*length - position));
    if (!in_pieces(file, at, wanted, position)) return straight();
    const auto end = kernel::raw(SYS_lseek, file, kernel::word(wanted), SEEK_CUR);
    if (end < 0) return straight();
    const auto got = read_pieces(file, at, wanted, end - static_cast<off64_t>(wanted), caller);
    const auto left = static_cast<off64_t>(wanted) - std::max<ssize_t>(got, 0);
    if (left != 0) kernel::raw(SYS_lseek, file, -left, SEEK_CUR);
    return got;
}

}  // namespace

extern "C" {

HPE_DOOR ssize_t read(int file, void* at, std::size_t bytes) {
    if (!lease::concerns(at, bytes)) return next_read(file, at, bytes);
    return read_on(file, at, bytes, CALLER);
}
HPE_DOOR ssize_t __read_chk(int file, void* at, std::size_t bytes, std::size_t room) {
    if (bytes > room || !lease::concerns(at, bytes)) return next_read_chk(file, at, bytes, room);
    return read_on(file, at, bytes, CALLER);
}

HPE_DOOR ssize_t pread64(int file, void* at, std::size_t bytes, off64_t offset) {
    if (!lease::concerns(at, bytes)) return next_pread(file, at, bytes, offset);
    return read_at_offset(file, at, bytes, offset, CALLER);
}
HPE_DOOR ssize_t __pread64_chk(int file, void* at, std::size_t bytes, off64_t offset, std::size_t room) {
    if (bytes > room || !lease::concerns(at, bytes)) return next_pread_chk(file, at, bytes, offset, room);
    return read_at_offset(file, at, bytes, offset, CALLER);
}

HPE_DOOR ssize_t write(int file, const void* at, std::size_t bytes) {
    if (!lease::concerns(at, bytes)) return next_write(file, at, bytes);
    return out_of(
        at, bytes, CALLER, [&](const void* memory, std::size_t n) { return next_write(file, memory, n); },
        [&](const iovec* p, int n) { return next_writev(file, p, n); });
}
HPE_DOOR ssize_t pwrite64(int file, const void* at, std::size_t bytes, off64_t offset) {
    if (!lease::concerns(at, bytes)) return next_pwrite(file, at, bytes, offset);
    return out_of(
        at, bytes, CALLER, [&](const void* memory, std::size_t n) { return next_pwrite(file, memory, n, offset); },
        [&](const iovec* p, int n) { return next_pwritev(file, p, n, offset); });
}

HPE_DOOR ssize_t readv(int file, const iovec* parts, int count) {
    if (!concerns(parts, count)) return next_readv(file, parts, count);
    return into_vector(parts, size(count), CALLER, [&](const iovec* p, int n) { return next_readv(file, p, n); });
}
HPE_DOOR ssize_t preadv64(int file, const iovec* parts, int count, off64_t offset) {
    if (!concerns(parts, count)) return next_preadv(file, parts, count, offset);
    return into_vector(parts, size(count), CALLER,
                       [&](const iovec* p, int n) { return next_preadv(file, p, n, offset); });
}
HPE_DOOR ssize_t preadv64v2(int file, const iovec* parts, int count, off64_t offset, int flags) {
    if (!concerns(parts, count)) return next_preadv2(file, parts, count, offset, flags);
    return into_vector(parts, size(count), CALLER,
                       [&](const iovec* p, int n) { return next_preadv2(file, p, n, offset, flags); });
}
HPE_DOOR ssize_t writev(int file, const iovec* parts, int count) {
    if (!concerns(parts, count)) return next_writev(file, parts, count);
    return out_of_vector(parts, size(count), CALLER, [&](const iovec* p, int n) { return next_writev(file, p, n); });
}
HPE_DOOR ssize_t pwritev64(int file, const iovec* parts, int count, off64_t offset) {
    if (!concerns(parts, count)) return next_pwritev(file, parts, count, offset);
    return out_of_vector(parts, size(count), CALLER,
                         [&](const iovec* p, int n) { return next_pwritev(file, p, n, offset); });
}
HPE_DOOR ssize_t pwritev64v2(int file, const iovec* parts, int count, off64_t offset, int flags) {
    if (!concerns(parts, count)) return next_pwritev2(file, parts, count, offset, flags);
    return out_of_vector(parts, size(count), CALLER,
                         [&](const iovec* p, int n) { return next_pwritev2(file, p, n, offset, flags); });
}

// off_t has 64 bits: the names without 64 are the same functions.
#define HPE_SAME_DOOR(name, other, ...) HPE_DOOR ssize_t name(__VA_ARGS__) __attribute__((alias(#other)))
HPE_SAME_DOOR(pread, pread64, int, void*, std::size_t, off64_t);
HPE_SAME_DOOR(__pread_chk, __pread64_chk, int, void*, std::size_t, off64_t, std::size_t);
HPE_SAME_DOOR(pwrite, pwrite64, int, const void*, std::size_t, off64_t);
HPE_SAME_DOOR(preadv, preadv64, int, const iovec*, int, off64_t);
HPE_SAME_DOOR(preadv2, preadv64v2, int, const iovec*, int, off64_t, int);
HPE_SAME_DOOR(pwritev, pwritev64, int, const iovec*, int, off64_t);
HPE_SAME_DOOR(pwritev2, pwritev64v2, int, const iovec*, int, off64_t, int);

}  // extern "C"
