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
    if (written < 0 && (errno == EPIPE || errno == EFBIG)) {
        const ErrnoKept kept;
        const int signal = errno == EPIPE ? SIGPIPE : SIGXFSZ;
        if (sigismember(&pending, signal) == 0) {  // else it is the program's
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, signal);
            const timespec now{0, 0};
            // The system call itself: sigtimedwait is a cancellation point.
            constexpr unsigned long kernel_set_bytes = 8;
            syscall(SYS_rt_sigtimedwait, &one, nullptr, &now, kernel_set_bytes);
        }
    }
    SignalsBlocked::real_sigmask(SIG_SETMASK, &before, nullptr);
    return written;
}

}  // namespace hpe
