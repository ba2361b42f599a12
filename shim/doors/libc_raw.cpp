// SPDX-License-Identifier: MIT
// Doors of calls that give the kernel memory in other ways.
//
// Handled: process_vm_readv and process_vm_writev (the caller's own side; reads also by number: of device memory that
// is exported (ipc/remote_read.h), and large ones by several threads (ipc/split_read.h)), vmsplice (a pipe then holds
// pages of the view: the bytes stay what they are unless the device or the CPU changes them).
// Said: a raw system call by syscall() that fails with EFAULT and has an object among its arguments: one line names it.
// Left out, EFAULT on what is not valid on the host at that moment, as without libhpe: system calls without libc
// (libaio, Go, static programs), the other process's side of process_vm_readv, and what nobody keeps in device memory:
// paths, addresses, stat structures, futex words. Left out, and the program's to see to: memory that is pinned that way
// while it is valid, by O_DIRECT in flight or as a buffer registered with io_uring past liburing (liburing.cpp). The
// kernel writes it past all protections; a launch does not wait for that.
//
// The program's own mapping functions on an object's range are the kernel's, and no doors: what has been mapped over it
// is what the CPU sees, as without libhpe, until the object is freed; after munmap, mremap, madvise(MADV_DONTNEED) or a
// protection that forbids more, the next access brings the object back. A protection that allows more than libhpe does,
// and MADV_REMOVE, cut the CPU off from the object's bytes.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>

#include "shim/base/kernel.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"
#include "shim/ipc/remote_read.h"
#include "shim/ipc/split_read.h"

using namespace hpe;
using namespace hpe::doors;

namespace {

constinit Next<long(long, long, long, long, long, long, long)> next_syscall{"syscall"};
constinit Next<ssize_t(int, const iovec*, std::size_t, unsigned)> next_vmsplice{"vmsplice"};
constinit Next<ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)>
    next_process_vm_readv{"process_vm_readv"}, next_process_vm_writev{"process_vm_writev"};

// A read of another process's memory, as far as it is libhpe's to make.
std::optional<ssize_t> read_process(pid_t process, const iovec* own, unsigned long count, const iovec* other,
                                    unsigned long other_count, unsigned long flags) noexcept {
    const bool from_device = ipc::may_read_device(), split = ipc::may_split_reads();
    if (flags != 0 || (!from_device && !split)) return std::nullopt;
    const CopiedVector to(own, count), from(other, other_count);
    if (!to.ok() || !from.ok()) return std::nullopt;
    auto got = from_device ? ipc::remote_read(process, to.parts(), from.parts()) : std::nullopt;
    if (!got && split) got = ipc::split_read(process, to.parts(), from.parts());
    return got;
}

}  // namespace

extern "C" {

HPE_DOOR ssize_t process_vm_readv(pid_t process, const iovec* own, unsigned long count, const iovec* other,
                                  unsigned long other_count, unsigned long flags) noexcept {
    const auto real = [&](const iovec* p, unsigned long n) {
        if (const auto got = read_process(process, p, n, other, other_count, flags)) return *got;
        return next_process_vm_readv(process, p, n, other, other_count, flags);
    };
    if (!concerns(own, count)) return real(own, count);
    return into_vector(own, count, CALLER,
                       [&](const iovec* p, int n) { return real(p, static_cast<unsigned long>(n)); });
}
HPE_DOOR ssize_t process_vm_writev(pid_t process, const iovec* own, unsigned long count, const iovec* other,
                                   unsigned long other_count, unsigned long flags) noexcept {
    if (!concerns(own, count)) return next_process_vm_writev(process, own, count, other, other_count, flags);
    return out_of_vector(own, count, CALLER, [&](const iovec* p, int n) {
        return next_process_vm_writev(process, p, static_cast<unsigned long>(n), other, other_count, flags);
    });
}

HPE_DOOR ssize_t vmsplice(int pipe, const iovec* parts, std::size_t count, unsigned flags) {
    if (!concerns(parts, count)) return next_vmsplice(pipe, parts, count, flags);
    const auto real = [&](const iovec* p, int n) { return next_vmsplice(pipe, p, static_cast<std::size_t>(n), flags); };
    // From a pipe's reading end it is a read.
    const bool reads = (kernel::raw(SYS_fcntl, pipe, F_GETFL) & O_ACCMODE) == O_RDONLY;
    return reads ? into_vector(parts, count, CALLER, real) : out_of_vector(parts, count, CALLER, real);
}

// Declared with all that it may be given, so that it is handed on by a jump; its own name has another form in a header.
HPE_DOOR long door_syscall(long number, long a, long b, long c, long d, long e, long f) noexcept __asm__("syscall");
long door_syscall(long number, long a, long b, long c, long d, long e, long f) noexcept {
    if (number == SYS_process_vm_readv) {
        const auto *const own = reinterpret_cast<const iovec*>(b), *const other = reinterpret_cast<const iovec*>(d);
        const auto count = static_cast<unsigned long>(c), other_count = static_cast<unsigned long>(e);
        const auto got = concerns(own, count) ? std::nullopt
                                              : read_process(static_cast<pid_t>(a), own, count, other, other_count,
                                                             static_cast<unsigned long>(f));
        if (got) return *got;
    }
    if (!any_objects()) return next_syscall(number, a, b, c, d, e, f);
    // The locks of libhpe wait by SYS_futex, and may not be waited for here.
    if (number != SYS_futex) {
        for (const long argument : {a, b, c, d, e, f}) unread::open(reinterpret_cast<const void*>(argument), 1);
    }
    const long result = next_syscall(number, a, b, c, d, e, f);
    if (result == -1 && errno == EFAULT) lease::explain_refusal(number, std::array{a, b, c, d, e, f});
    return result;
}

}  // extern "C"
