// SPDX-License-Identifier: MIT
// Signal masks past our own doors.
#include "shim/base/thread.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace hpe {

int SignalsBlocked::real_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    constexpr unsigned long kernel_set_bytes = 8;
    return static_cast<int>(syscall(SYS_rt_sigprocmask, how, set, old, kernel_set_bytes));
}

}  // namespace hpe
