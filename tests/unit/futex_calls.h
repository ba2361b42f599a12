// SPDX-License-Identifier: MIT
// Counts a thread's calls of SYS_futex, which are not made: nobody sleeps or is woken by them. For tests of what makes
// none. The filter stays until the thread ends.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <thread>
#include <vector>

namespace futex_calls {

inline volatile std::sig_atomic_t count = 0;

// Those of the calling thread, from now on. False: the system grants no such filter.
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

// Those of a hundred rounds of `action` while threads sleep elsewhere, wherever these and the action's atomics lie:
// libstdc++ keeps the sleepers of all atomics in one table of 16 entries, by their addresses. -1: as begin().
template <class Action>
int while_others_sleep(Action&& action) {
    std::array<std::atomic<int>, 16> sleeping{};
    std::vector<std::thread> sleepers;
    for (auto& one : sleeping) sleepers.emplace_back([&] { one.wait(0); });
    int calls = -1;
    std::thread([&] {
        // One atomic after the other, until a wake-up of each would be a call: its thread sleeps.
        if (!begin()) return;
        for (auto& one : sleeping) {
            for (count = 0; count == 0;) one.notify_one();
        }
        count = 0;
        for (int round = 0; round < 100; ++round) action();
        calls = count;
    }).join();
    for (auto& one : sleeping) one = 1, one.notify_one();
    for (auto& thread : sleepers) thread.join();
    return calls;
}

}  // namespace futex_calls
