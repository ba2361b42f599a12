// SPDX-License-Identifier: MIT
// System calls that no other library stands in front of. UCX, libfabric and Open MPI rewrite libc's mapping functions
// in place to keep their caches of registered memory (UCX's mremap then takes four arguments of five), profilers
// interpose them, and neither may run in the fault path.
//
// tell_unmapped() tells those caches what they have to know.
//
// Threads: any; async-signal-safe. Errors: as libc's functions of these names have them, in errno.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

// Advice that is younger than some C libraries. Kernels that do not know it answer EINVAL.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace hpe::kernel {

// What the kernel returned: an error is a negative errno. A function of its own, so that all calls have one place where
// a debugger can stop, or a test let them fail.
long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) noexcept;

inline long as_libc(long result) noexcept {
    if (result >= 0 || result < -4095) return result;
    errno = static_cast<int>(-result);
    return -1;
}

template <class T>
long word(T* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<unsigned long>(pointer));
}
inline long word(std::size_t value) noexcept { return static_cast<long>(value); }

inline void* mmap(void* at, std::size_t bytes, int protection, int flags, int file = -1) noexcept {
    return reinterpret_cast<void*>(as_libc(raw(SYS_mmap, word(at), word(bytes), protection, flags, file, 0)));
}
inline int munmap(void* at, std::size_t bytes) noexcept {
    return static_cast<int>(as_libc(raw(SYS_munmap, word(at), word(bytes))));
}
inline void* mremap(void* from, std::size_t old_bytes, std::size_t bytes, int flags, void* to = nullptr) noexcept {
    return reinterpret_cast<void*>(as_libc(raw(SYS_mremap, word(from), word(old_bytes), word(bytes), flags, word(to))));
}
inline int mprotect(void* at, std::size_t bytes, int protection) noexcept {
    return static_cast<int>(as_libc(raw(SYS_mprotect, word(at), word(bytes), protection)));
}
inline int madvise(void* at, std::size_t bytes, int advice) noexcept {
    return static_cast<int>(as_libc(raw(SYS_madvise, word(at), word(bytes), advice)));
}
inline int munlock(void* at, std::size_t bytes) noexcept {
    return static_cast<int>(as_libc(raw(SYS_munlock, word(at), word(bytes))));
}
inline ssize_t writev(int file, const iovec* parts, int count) noexcept {
    return as_libc(raw(SYS_writev, file, word(parts), count));
}
inline int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
    return static_cast<int>(as_libc(raw(SYS_sigaltstack, word(stack), word(old))));
}
// With the kernel's size of a set; libc's is a door of ours. Returns 0 or an error number; errno is kept.
inline int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    constexpr long kSetBytes = 8;
    return static_cast<int>(-raw(SYS_rt_sigprocmask, how, word(set), word(old), kSetBytes));
}
inline void sigprocmask(int how, int signal) noexcept {
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    kernel::sigprocmask(how, &only, nullptr);
}

// Whether there are eight bytes at the address that may be read: the kernel reads the set before it looks at what to do
// with it.
inline bool can_be_read(std::uintptr_t at) noexcept {
    constexpr long kNoSuchHow = -1, kSetBytes = 8;
    return at != 0 && raw(SYS_rt_sigprocmask, kNoSuchHow, static_cast<long>(at), 0, kSetBytes) != -EFAULT;
}

// Before a shared mapping is unmapped. Libraries that follow libc's mapping functions, to know what they registered
// with a network card, take this advice for the end of the range. The bytes stay, and the next access maps their pages
// again. Outside the fault path, with no lock held: it runs other libraries' code.
void tell_unmapped(void* at, std::size_t bytes) noexcept;

}  // namespace hpe::kernel
