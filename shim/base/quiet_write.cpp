// SPDX-License-Identifier: MIT
// Both signals are sent to the thread that writes: blocked there, and taken away again.
#include "shim/base/quiet_write.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "shim/base/errno_kept.h"
#include "shim/base/thread.h"

namespace hpe {

ssize_t quiet_writev(int fd, const iovec* parts, int count) noexcept {
    sigset_t both, before, pending;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    if (SignalsBlocked::real_sigmask(SIG_BLOCK, &both, &before) != 0) return writev(fd, parts, count);
    sigpending(&pending);
    const auto written = writev(fd, parts, count);
    const ErrnoKept kept;
    // Those that were pending before are the program's. After a write of a part, too: the pipe's reader may have gone
    // in the middle of it.
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
        if (sigismember(&pending, signal) != 0) sigdelset(&both, signal);
    }
    const timespec now{0, 0};
    // The system call itself: sigtimedwait is a cancellation point.
    constexpr unsigned long kernel_set_bytes = 8;
    if (sigisemptyset(&both) == 0) syscall(SYS_rt_sigtimedwait, &both, nullptr, &now, kernel_set_bytes);
    SignalsBlocked::real_sigmask(SIG_SETMASK, &before, nullptr);
    return written;
}

}  // namespace hpe
