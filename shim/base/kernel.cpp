// SPDX-License-Identifier: MIT
// The system calls (System V ABI, AMD64 supplement, A.2.1), and the one call of libc's own mapping functions.
#include "shim/base/kernel.h"

#include "shim/base/errno_kept.h"

namespace hpe::kernel {

#ifndef __x86_64__
#error "system calls are made as on x86-64"
#endif

// Neither inlined nor cloned, which only GCC does to a function that is not inlined.
#ifdef __clang__
[[gnu::noinline]]
#else
[[gnu::noipa]]
#endif
long raw(long number, long a, long b, long c, long d, long e, long f) noexcept {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result = number;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

// MADV_DONTNEED is what UCX, libfabric and Open MPI all watch besides munmap and mmap.
void tell_unmapped(void* at, std::size_t bytes) noexcept {
    const ErrnoKept kept;
    ::madvise(at, bytes, MADV_DONTNEED);
}

}  // namespace hpe::kernel
