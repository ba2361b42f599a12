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
// Others' are left alone: NVIDIA's driver makes system calls, too, while libhpe serves the program's call.
thread_local int its_in = -1, its_out = -1;

// 0: nothing. Otherwise what becomes of the call, which is made once.
struct Fault {
    int error = 0;
    std::size_t most = static_cast<std::size_t>(-1);
};
Fault take(int file, bool writes) {
    if (file != (writes ? its_out : its_in)) return {};
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
ssize_t one(int file, bool writes, std::size_t bytes, Call&& call) {
    const Fault fault = take(file, writes);
    if (fault.error == 0) return call(std::min(bytes, fault.most));
    errno = fault.error;
    return -1;
}

// A vector cut to so many bytes.
template <class Call>
ssize_t several(int file, bool writes, const iovec* parts, int count, Call&& call) {
    const Fault fault = take(file, writes);
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

EXPORTED void fail_next_call(unsigned seed, int in, int out) {
    next_fault = seed;
    its_in = in;
    its_out = out;
}

EXPORTED ssize_t read(int file, void* at, std::size_t bytes) {
    return one(file, false, bytes, [&](std::size_t n) { return syscall(SYS_read, file, at, n); });
}
EXPORTED ssize_t write(int file, const void* at, std::size_t bytes) {
    return one(file, true, bytes, [&](std::size_t n) { return syscall(SYS_write, file, at, n); });
}
EXPORTED ssize_t pread64(int file, void* at, std::size_t bytes, off_t offset) {
    return one(file, false, bytes, [&](std::size_t n) { return syscall(SYS_pread64, file, at, n, offset); });
}
EXPORTED ssize_t pwrite64(int file, const void* at, std::size_t bytes, off_t offset) {
    return one(file, true, bytes, [&](std::size_t n) { return syscall(SYS_pwrite64, file, at, n, offset); });
}
EXPORTED ssize_t readv(int file, const iovec* parts, int count) {
    return several(file, false, parts, count, [&](const iovec* p, int n) { return syscall(SYS_readv, file, p, n); });
}
EXPORTED ssize_t writev(int file, const iovec* parts, int count) {
    return several(file, true, parts, count, [&](const iovec* p, int n) { return syscall(SYS_writev, file, p, n); });
}
EXPORTED ssize_t preadv64(int file, const iovec* parts, int count, off_t offset) {
    return several(file, false, parts, count,
                   [&](const iovec* p, int n) { return positioned(SYS_preadv, file, p, n, offset); });
}
EXPORTED ssize_t pwritev64(int file, const iovec* parts, int count, off_t offset) {
    return several(file, true, parts, count,
                   [&](const iovec* p, int n) { return positioned(SYS_pwritev, file, p, n, offset); });
}
EXPORTED ssize_t send(int file, const void* at, std::size_t bytes, int flags) {
    return one(file, true, bytes, [&](std::size_t n) { return syscall(SYS_sendto, file, at, n, flags, nullptr, 0); });
}
EXPORTED ssize_t recv(int file, void* at, std::size_t bytes, int flags) {
    return one(file, false, bytes,
               [&](std::size_t n) { return syscall(SYS_recvfrom, file, at, n, flags, nullptr, nullptr); });
}

// The names that compilers use which check the room by default.
EXPORTED ssize_t __read_chk(int file, void* at, std::size_t bytes, std::size_t) { return read(file, at, bytes); }
EXPORTED ssize_t __pread64_chk(int file, void* at, std::size_t bytes, off_t offset, std::size_t) {
    return pread64(file, at, bytes, offset);
}
EXPORTED ssize_t __recv_chk(int file, void* at, std::size_t bytes, std::size_t, int flags) {
    return recv(file, at, bytes, flags);
}
