// SPDX-License-Identifier: MIT
// Counts a thread's calls of SYS_futex, which are not made: nobody sleeps or is woken by them. For tests of what makes
// none. The filter stays until the thread ends.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <csignal>
#include <cstddef>

namespace futex_calls {

inline volatile std::sig_atomic_t count = 0;

// Of the calling thread, from now on. False: the system grants no such filter.
inline bool begin() {
    struct sigaction action {};
    action.sa_handler = [](int) { count = count + 1; };
    sigaction(SIGSYS, &action, nullptr);
    std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
                      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
                      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{filter.size(), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace futex_calls
