// SPDX-License-Identifier: MIT
// Doors of signal dispositions and masks, so that our SIGSEGV handler stays on top and no thread is killed for touching
// an object with SIGSEGV blocked.
//
// Handled: sigaction, signal and its relatives, sigprocmask, pthread_sigmask and the BSD and System V mask calls.
// Forwarded as they are until the first allocation, and for every signal but SIGSEGV.
// Left out: sigvec (gone from glibc), siginterrupt (no effect on a handler that does not return into a system call),
// masks of ppoll, pselect, epoll_pwait and sigsuspend (the thread touches no object while it sleeps there; a handler
// that does, runs with its own mask), raw system calls (cannot be interposed).
#include <cerrno>
#include <csignal>

#include "shim/doors/door.h"
#include "shim/runtime/signals.h"

using hpe::signals::program_sigaction;
using hpe::signals::program_sigmask;

namespace {

sighandler_t set_handler(int signal, sighandler_t handler, int flags) noexcept {
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
    if (!hpe::signals::installed() || hpe::this_thread.in_fault) {
        return hpe::SignalsBlocked::real_sigmask(how, set, old) == 0 ? 0 : errno;
    }
    return program_sigmask(how, set, old);
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
    return set_handler(signal, handler, SA_RESTART);
}
HPE_DOOR sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept {
    return set_handler(signal, handler, SA_RESTART);
}
HPE_DOOR sighandler_t ssignal(int signal, sighandler_t handler) noexcept {
    return set_handler(signal, handler, SA_RESTART);
}
HPE_DOOR sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
    return set_handler(signal, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
}
HPE_DOOR sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept { return __sysv_signal(signal, handler); }

HPE_DOOR sighandler_t sigset(int signal, sighandler_t handler) noexcept {
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

HPE_DOOR int sigignore(int signal) noexcept { return set_handler(signal, SIG_IGN, 0) == SIG_ERR ? -1 : 0; }

HPE_DOOR int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    return change_mask(how, set, old);
}

HPE_DOOR int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    const int error = change_mask(how, set, old);
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
}

HPE_DOOR int sighold(int signal) noexcept { return one_signal(SIG_BLOCK, signal); }
HPE_DOOR int sigrelse(int signal) noexcept { return one_signal(SIG_UNBLOCK, signal); }
HPE_DOOR int sigblock(int mask) noexcept { return old_mask(SIG_BLOCK, mask); }
HPE_DOOR int sigsetmask(int mask) noexcept { return old_mask(SIG_SETMASK, mask); }

}  // extern "C"
