// SPDX-License-Identifier: MIT
// Both signals are sent to the thread that writes: blocked there, and taken away again.
#include "shim/base/quiet_write.h"

#include <csignal>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/thread.h"

namespace hpe {

ssize_t quiet_writev(int fd, const iovec* parts, int count) noexcept {
    sigset_t both, before, pending;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    if (kernel::sigprocmask(SIG_BLOCK, &both, &before) != 0) return kernel::writev(fd, parts, count);
    sigpending(&pending);
    const auto written = kernel::writev(fd, parts, count);
    const ErrnoKept kept;
    // Signals that were pending before are the program's and stay. Also after a partial write: the pipe's reader may
    // have gone in the middle of it.
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
        if (sigismember(&pending, signal) != 0) sigdelset(&both, signal);
    }
    const timespec now{0, 0};
    // The system call itself: sigtimedwait is a cancellation point.
    constexpr long kernel_set_bytes = 8;
    if (sigisemptyset(&both) == 0) {
        kernel::raw(SYS_rt_sigtimedwait, kernel::word(&both), 0, kernel::word(&now), kernel_set_bytes);
    }
    kernel::sigprocmask(SIG_SETMASK, &before, nullptr);
    return written;
}

}  // namespace hpe
