// SPDX-License-Identifier: MIT
// Doors of reads and writes of files, pipes and whatever else a descriptor names.
//
// Handled: read, pread, readv, preadv, preadv2 and write, pwrite, writev, pwritev, pwritev2, with their 64-bit and
// fortified names.
// Forwarded as they are: sendfile, copy_file_range, splice and tee, which take no memory of the program's.
// Elsewhere: aio_* (libc_aio.cpp), vmsplice, process_vm_* and what no door sees (libc_raw.cpp).
//
// Long calls on regular files are made piece by piece (libc_file_pieces.h). Their range of the file is taken at once,
// so that threads and processes that share the offset never get the same bytes.
//
// A range that is not all in one object is given to the kernel as a vector, so that it ends where the kernel finds no
// memory.

// pread and pread64 are two names here: with this macro the headers make one of them, and newer compilers then take the
// name of the door below for the header's function.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/kernel.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_file_pieces.h"
#include "shim/doors/libc_transfers.h"
#include "shim/doors/libc_vectors.h"

using namespace hpe;
using namespace hpe::doors;

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
bool concerns(const iovec* parts, int count) noexcept { return doors::concerns(parts, size(count)); }

ssize_t read_at_offset(int file, void* at, std::size_t bytes, off64_t offset, const void* caller) {
    bytes = std::min(bytes, kMostBytes);
    if (pieces::may_read(file, at, bytes, offset)) return pieces::read(file, at, bytes, offset, caller);
    return into(
        at, bytes, caller, [&](void* memory, std::size_t n) { return next_pread(file, memory, n, offset); },
        [&](const iovec* p, int n) { return next_preadv(file, p, n, offset); });
}

// Moves the file's offset over so many bytes at once, makes the call there, and gives back what it did not use.
template <class Straight, class Call>
ssize_t in_taken_range(int file, std::size_t wanted, const Straight& straight, const Call& call) {
    pthread_testcancel();  // before the offset moves
    const auto end = kernel::raw(SYS_lseek, file, kernel::word(wanted), SEEK_CUR);
    if (end < 0) return straight();
    const auto got = call(end - static_cast<off64_t>(wanted));
    const auto left = static_cast<off64_t>(wanted) - std::max<ssize_t>(got, 0);
    if (left != 0) kernel::raw(SYS_lseek, file, -left, SEEK_CUR);
    return got;
}

// Apart from the doors, which then save no registers for calls that are none of libhpe's business.
[[gnu::noinline]] ssize_t read_on(int file, void* at, std::size_t bytes, const void* caller) {
    if (!lease::concerns(at, bytes)) return next_read(file, at, bytes);
    bytes = std::min(bytes, kMostBytes);
    const auto straight = [&] {
        return into(
            at, bytes, caller, [&](void* memory, std::size_t n) { return next_read(file, memory, n); },
            [&](const iovec* p, int n) { return next_readv(file, p, n); });
    };
    if (bytes <= pieces::kSmallest) return straight();
    const auto length = pieces::size_of(file);
    const auto position = kernel::raw(SYS_lseek, file, 0, SEEK_CUR);
    if (!length || position < 0 || position >= *length) return straight();
    const auto wanted = std::min(bytes, static_cast<std::size_t>(*length - position));
    if (!pieces::may_read(file, at, wanted, position)) return straight();
    return in_taken_range(file, wanted, straight,
                          [&](off64_t offset) { return pieces::read(file, at, wanted, offset, caller); });
}

ssize_t write_at_offset(int file, const void* at, std::size_t bytes, off64_t offset, const void* caller) {
    bytes = std::min(bytes, kMostBytes);
    if (pieces::may_write(file, at, bytes, offset)) return pieces::write(file, at, bytes, offset, caller);
    return out_of(
        at, bytes, caller, [&](const void* memory, std::size_t n) { return next_pwrite(file, memory, n, offset); },
        [&](const iovec* p, int n) { return next_pwritev(file, p, n, offset); });
}

[[gnu::noinline]] ssize_t write_on(int file, const void* at, std::size_t bytes, const void* caller) {
    if (!lease::concerns(at, bytes)) return next_write(file, at, bytes);
    bytes = std::min(bytes, kMostBytes);
    const auto straight = [&] {
        return out_of(
            at, bytes, caller, [&](const void* memory, std::size_t n) { return next_write(file, memory, n); },
            [&](const iovec* p, int n) { return next_writev(file, p, n); });
    };
    if (!pieces::may_write(file, at, bytes, kernel::raw(SYS_lseek, file, 0, SEEK_CUR))) return straight();
    return in_taken_range(file, bytes, straight,
                          [&](off64_t offset) { return pieces::write(file, at, bytes, offset, caller); });
}

}  // namespace

extern "C" {

HPE_DOOR ssize_t read(int file, void* at, std::size_t bytes) {
    if (!lease::may_concern(at, bytes)) return next_read(file, at, bytes);
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
    if (!lease::may_concern(at, bytes)) return next_write(file, at, bytes);
    return write_on(file, at, bytes, CALLER);
}
HPE_DOOR ssize_t pwrite64(int file, const void* at, std::size_t bytes, off64_t offset) {
    if (!lease::concerns(at, bytes)) return next_pwrite(file, at, bytes, offset);
    return write_at_offset(file, at, bytes, offset, CALLER);
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
