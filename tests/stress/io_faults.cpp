// SPDX-License-Identifier: MIT
// Preloaded behind libhpe: reads and writes that are cut short or fail, as the program says for its next call.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

thread_local unsigned next_fault = 0;

// 0: nothing. Otherwise what becomes of the call, which is made once.
struct Fault {
    int error = 0;
    std::size_t most = static_cast<std::size_t>(-1);
};
Fault take(bool writes) {
    const unsigned seed = next_fault;
    next_fault = 0;
    if (seed == 0) return {};
    switch (seed >> 1 & 3) {
        case 0: return {EINTR};
        case 1: return {EIO};
        case 2: return {writes ? ENOSPC : EAGAIN};
        default: return {0, seed >> 3 & 0xffff};
    }
}

template <class Call>
ssize_t one(bool writes, std::size_t bytes, Call&& call) {
    const Fault fault = take(writes);
    if (fault.error == 0) return call(std::min(bytes, fault.most));
    errno = fault.error;
    return -1;
}

// A vector cut to so many bytes.
template <class Call>
ssize_t several(bool writes, const iovec* parts, int count, Call&& call) {
    const Fault fault = take(writes);
    if (fault.error != 0) {
        errno = fault.error;
        return -1;
    }
    if (count < 0 || count > 8) return call(parts, count);
    std::array<iovec, 8> cut{};
    auto left = fault.most;
    for (int i = 0; i < count; ++i) {
        const auto place = static_cast<std::size_t>(i);
        cut[place] = {parts[i].iov_base, std::min(parts[i].iov_len, left)};
        left -= cut[place].iov_len;
    }
    return call(cut.data(), count);
}

ssize_t positioned(long number, int file, const iovec* parts, int count, off_t offset) {
    return syscall(number, file, parts, count, offset, 0);
}

}  // namespace

EXPORTED void fail_next_call(unsigned seed) { next_fault = seed; }

EXPORTED ssize_t read(int file, void* at, std::size_t bytes) {
    return one(false, bytes, [&](std::size_t n) { return syscall(SYS_read, file, at, n); });
}
EXPORTED ssize_t write(int file, const void* at, std::size_t bytes) {
    return one(true, bytes, [&](std::size_t n) { return syscall(SYS_write, file, at, n); });
}
EXPORTED ssize_t pread64(int file, void* at, std::size_t bytes, off_t offset) {
    return one(false, bytes, [&](std::size_t n) { return syscall(SYS_pread64, file, at, n, offset); });
}
EXPORTED ssize_t pwrite64(int file, const void* at, std::size_t bytes, off_t offset) {
    return one(true, bytes, [&](std::size_t n) { return syscall(SYS_pwrite64, file, at, n, offset); });
}
EXPORTED ssize_t readv(int file, const iovec* parts, int count) {
    return several(false, parts, count, [&](const iovec* p, int n) { return syscall(SYS_readv, file, p, n); });
}
EXPORTED ssize_t writev(int file, const iovec* parts, int count) {
    return several(true, parts, count, [&](const iovec* p, int n) { return syscall(SYS_writev, file, p, n); });
}
EXPORTED ssize_t preadv64(int file, const iovec* parts, int count, off_t offset) {
    return several(false, parts, count,
                   [&](const iovec* p, int n) { return positioned(SYS_preadv, file, p, n, offset); });
}
EXPORTED ssize_t pwritev64(int file, const iovec* parts, int count, off_t offset) {
    return several(true, parts, count,
                   [&](const iovec* p, int n) { return positioned(SYS_pwritev, file, p, n, offset); });
}
EXPORTED ssize_t send(int socket, const void* at, std::size_t bytes, int flags) {
    return one(true, bytes, [&](std::size_t n) { return syscall(SYS_sendto, socket, at, n, flags, nullptr, 0); });
}
EXPORTED ssize_t recv(int socket, void* at, std::size_t bytes, int flags) {
    return one(false, bytes,
               [&](std::size_t n) { return syscall(SYS_recvfrom, socket, at, n, flags, nullptr, nullptr); });
}
