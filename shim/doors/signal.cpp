// SPDX-License-Identifier: MIT
// Doors of signal dispositions and masks, so that our SIGSEGV handler stays on top and no thread is killed for touching
// an object with SIGSEGV blocked.
//
// Handled: sigaction, signal and its relatives, sigprocmask, pthread_sigmask, sigpending, the BSD and System V mask
// calls, the masks of threads to be made, and the calls that sleep with a mask: a handler that runs meanwhile has that
// mask too, and may touch objects.
// Forwarded as they are: everything before the first allocation but masks of all signals without SIGSEGV (signals.h);
// signal() and its relatives for signals that are not shared.
// Left out: sigvec (gone from glibc), siginterrupt (no effect on a handler that does not return into a system call),
// sigwait and signalfd (a fault is never waited for, signals.h), raw system calls (cannot be interposed).
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <cerrno>
#include <csignal>

#include "shim/base/kernel.h"
#include "shim/base/thread.h"
#include "shim/doors/libc_door.h"
#include "shim/process/signals.h"

using hpe::Next;
using hpe::signals::program_sigaction;
using hpe::signals::program_sigmask;

namespace {

constinit Next<sighandler_t(int, sighandler_t)> next_signal{"signal"}, next_sysv_signal{"__sysv_signal"},
    next_sigset{"sigset"};
constinit Next<int(sigset_t*)> next_sigpending{"sigpending"};
constinit Next<int(const sigset_t*)> next_sigsuspend{"sigsuspend"};
constinit Next<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)> next_pselect{"pselect"};
constinit Next<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> next_ppoll{"ppoll"};
constinit Next<int(pollfd*, nfds_t, const timespec*, const sigset_t*, std::size_t)> next_ppoll_chk{"__ppoll_chk"};
constinit Next<int(int, epoll_event*, int, int, const sigset_t*)> next_epoll_pwait{"epoll_pwait"};
constinit Next<int(int, epoll_event*, int, const timespec*, const sigset_t*)> next_epoll_pwait2{"epoll_pwait2"};
constinit Next<int(pthread_attr_t*, const sigset_t*)> next_attr_setsigmask{"pthread_attr_setsigmask_np"};
constinit Next<int(const pthread_attr_t*, sigset_t*)> next_attr_getsigmask{"pthread_attr_getsigmask_np"};

bool is_ours(int signal) noexcept { return hpe::signals::shared(signal) && hpe::signals::installed(); }

// The mask that a sleeping call or a thread to be made gives to the kernel: the program's own pointer where nothing can
// be read.
class KernelMask {
public:
    explicit KernelMask(const sigset_t* program) noexcept
        : given_(program), readable_(hpe::kernel::can_be_read(reinterpret_cast<std::uintptr_t>(program))) {
        if (readable_) mask_ = hpe::signals::kernel_mask(*program);
    }
    operator const sigset_t*() const noexcept { return readable_ ? &mask_ : given_; }

private:
    const sigset_t* const given_;
    const bool readable_;
    sigset_t mask_{};
};

sighandler_t set_handler(int signal, sighandler_t handler, int flags) noexcept {
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    struct sigaction action {
    }, old{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    if ((flags & SA_NODEFER) == 0) sigaddset(&action.sa_mask, signal);
    return program_sigaction(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

int change_mask(int how, const sigset_t* set, sigset_t* old) noexcept {
    // In our handler it is the driver that asks, around threads that it makes: not the program's mask.
    return hpe::this_thread.in_fault ? hpe::SignalsBlocked::libc_sigmask(how, set, old)
                                     : program_sigmask(how, set, old);
}

int one_signal(int how, int signal) noexcept {
    sigset_t set;
    sigemptyset(&set);
    if (sigaddset(&set, signal) != 0) return -1;
    const int error = change_mask(how, &set, nullptr);
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
}

int old_mask(int how, int mask) noexcept {
    sigset_t set, old;
    sigemptyset(&set);
    sigemptyset(&old);
    for (int signal = 1; signal < 32; ++signal) {
        if ((static_cast<unsigned>(mask) >> (signal - 1) & 1) != 0) sigaddset(&set, signal);
    }
    const int error = change_mask(how, &set, &old);
    if (error != 0) {
        errno = error;
        return -1;
    }
    unsigned bits = 0;
    for (int signal = 1; signal < 32; ++signal) {
        if (sigismember(&old, signal) == 1) bits |= 1u << (signal - 1);
    }
    return static_cast<int>(bits);
}

}  // namespace

extern "C" {

HPE_DOOR int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
    return program_sigaction(signal, action, old);
}

// glibc's signal() has BSD semantics: the handler stays, and interrupted calls restart.
HPE_DOOR sighandler_t signal(int signal, sighandler_t handler) noexcept {
    return is_ours(signal) ? set_handler(signal, handler, SA_RESTART) : next_signal(signal, handler);
}
HPE_DOOR sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept { return ::signal(signal, handler); }
HPE_DOOR sighandler_t ssignal(int signal, sighandler_t handler) noexcept { return ::signal(signal, handler); }
HPE_DOOR sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
    return is_ours(signal) ? set_handler(signal, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER))
                           : next_sysv_signal(signal, handler);
}
HPE_DOOR sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept { return __sysv_signal(signal, handler); }

HPE_DOOR sighandler_t sigset(int signal, sighandler_t handler) noexcept {
    if (!is_ours(signal)) return next_sigset(signal, handler);
    sigset_t before;
    sigemptyset(&before);
    if (handler == SIG_HOLD) {
        struct sigaction old {};
        if (program_sigaction(signal, nullptr, &old) != 0) return SIG_ERR;
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, signal);
        if (change_mask(SIG_BLOCK, &set, &before) != 0) return SIG_ERR;
        return sigismember(&before, signal) == 1 ? SIG_HOLD : old.sa_handler;
    }
    const auto old = set_handler(signal, handler, 0);
    if (old == SIG_ERR) return SIG_ERR;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    if (change_mask(SIG_UNBLOCK, &set, &before) != 0) return SIG_ERR;
    return sigismember(&before, signal) == 1 ? SIG_HOLD : old;
}

HPE_DOOR int sigignore(int signal) noexcept {
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    return program_sigaction(signal, &action, nullptr);
}

HPE_DOOR int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    return change_mask(how, set, old);
}

HPE_DOOR int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    const int error = change_mask(how, set, old);
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
}

HPE_DOOR int sigpending(sigset_t* set) noexcept {
    const int result = next_sigpending(set);
    if (result == 0) hpe::signals::show_pending(*set);
    return result;
}

HPE_DOOR int sighold(int signal) noexcept { return one_signal(SIG_BLOCK, signal); }
HPE_DOOR int sigrelse(int signal) noexcept { return one_signal(SIG_UNBLOCK, signal); }
HPE_DOOR int sigblock(int mask) noexcept { return old_mask(SIG_BLOCK, mask); }
HPE_DOOR int sigsetmask(int mask) noexcept { return old_mask(SIG_SETMASK, mask); }

HPE_DOOR int pthread_attr_setsigmask_np(pthread_attr_t* attributes, const sigset_t* mask) {
    return next_attr_setsigmask(attributes, KernelMask(mask));
}
HPE_DOOR int pthread_attr_getsigmask_np(const pthread_attr_t* attributes, sigset_t* mask) {
    const int result = next_attr_getsigmask(attributes, mask);
    if (result == 0) hpe::signals::show_mask(*mask);
    return result;
}

// These are cancellation points: they may be left by an exception.
HPE_DOOR int sigsuspend(const sigset_t* mask) { return next_sigsuspend(KernelMask(mask)); }
HPE_DOOR int pselect(int count, fd_set* reads, fd_set* writes, fd_set* others, const timespec* timeout,
                     const sigset_t* mask) {
    return next_pselect(count, reads, writes, others, timeout, KernelMask(mask));
}
HPE_DOOR int ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    return next_ppoll(files, count, timeout, KernelMask(mask));
}
HPE_DOOR int __ppoll_chk(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask,
                         std::size_t bytes) {
    return next_ppoll_chk(files, count, timeout, KernelMask(mask), bytes);
}
HPE_DOOR int epoll_pwait(int file, epoll_event* events, int count, int timeout, const sigset_t* mask) {
    return next_epoll_pwait(file, events, count, timeout, KernelMask(mask));
}
HPE_DOOR int epoll_pwait2(int file, epoll_event* events, int count, const timespec* timeout, const sigset_t* mask) {
    if (!next_epoll_pwait2.exists()) {
        errno = ENOSYS;
        return -1;
    }
    return next_epoll_pwait2(file, events, count, timeout, KernelMask(mask));
}

}  // extern "C"
