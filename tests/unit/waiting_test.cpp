// SPDX-License-Identifier: MIT
// Waiting: until the value has changed, and errno stays as the program left it.
#include "shim/base/waiting.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "shim/base/spin_lock.h"
#include "tests/unit/catch.h"

namespace {

constexpr int kErrno = 4711;
volatile std::sig_atomic_t signals = 0;
volatile std::sig_atomic_t futex_calls = 0;

// From now on the thread's SYS_futex is a signal. False: the system grants no such filter.
bool count_futex_calls() {
    struct sigaction action {};
    action.sa_handler = [](int) { futex_calls = futex_calls + 1; };
    sigaction(SIGSYS, &action, nullptr);
    std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
                      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
                      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{filter.size(), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("who waits for a value sees it change, and no other errno") {
    std::atomic<unsigned> turn{0};
    std::atomic<int> wrong{0};
    const auto play = [&](unsigned mine) {
        errno = kErrno;
        for (unsigned round = 0; round < 20000; ++round) {
            for (auto seen = turn.load(); seen % 2 != mine; seen = turn.load()) hpe::wait_while(turn, seen);
            if (errno != kErrno) ++wrong;
            ++turn;
            turn.notify_one();
        }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    CHECK(turn == 40000);
    CHECK(wrong == 0);
}

TEST_CASE("a lock that others hold keeps them apart, and changes no errno") {
    hpe::SpinLock lock;
    int inside = 0, wrong = 0;
    std::atomic<int> changed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            errno = kErrno;
            for (int round = 0; round < 20000; ++round) {
                const std::scoped_lock hold(lock);
                if (errno != kErrno) ++changed;
                errno = kErrno;
                wrong += inside++ != 0;
                if (round % 64 == 0) std::this_thread::yield();  // the others fall asleep
                --inside;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(changed == 0);
}

// Wherever the sleepers and the lock lie: libstdc++ keeps the sleepers of all atomics in one table of 16 entries, by
// their addresses.
TEST_CASE("a lock that nobody wants makes no system call, also while threads sleep elsewhere") {
    std::array<std::atomic<int>, 16> sleeping{};
    std::vector<std::thread> sleepers;
    for (auto& one : sleeping) sleepers.emplace_back([&] { one.wait(0); });
    int calls = -1;
    std::thread([&] {
        hpe::SpinLock lock;
        // One atomic after the other, until a wake-up of each would be a call: its thread sleeps.
        if (!count_futex_calls()) return;
        for (auto& one : sleeping) {
            for (futex_calls = 0; futex_calls == 0;) one.notify_one();
        }
        futex_calls = 0;
        for (int round = 0; round < 100; ++round) const std::scoped_lock hold(lock);
        calls = futex_calls;
    }).join();
    for (auto& one : sleeping) one = 1, one.notify_one();
    for (auto& thread : sleepers) thread.join();
    if (calls < 0) WARN("no filter of system calls here");
    CHECK(calls <= 0);
}

TEST_CASE("a nap that a signal cuts short changes no errno") {
    struct sigaction action {};
    action.sa_handler = [](int) { signals = signals + 1; };
    sigaction(SIGALRM, &action, nullptr);
    const itimerval soon{{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    errno = kErrno;
    while (signals < 5) hpe::nap(std::chrono::milliseconds(100));
    const int after = errno;
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    CHECK(after == kErrno);
}
