// SPDX-License-Identifier: MIT
// Waiting: until the value has changed, and errno stays as the program left it.
#include "shim/base/waiting.h"

#include <sys/time.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "protocols/rolling.h"
#include "shim/base/spin_lock.h"
#include "shim/transfer/channel.h"
#include "tests/unit/catch.h"
#include "tests/unit/futex_calls.h"

namespace {

constexpr int kErrno = 4711;
volatile std::sig_atomic_t signals = 0;

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

TEST_CASE("what nobody waits for is let go without a system call, also while threads sleep elsewhere") {
    const auto none = [](auto&& action) {
        const int calls = futex_calls::while_others_sleep(action);
        if (calls < 0) WARN("no filter of system calls here");
        CHECK(calls <= 0);
    };
    SECTION("a lock") {
        hpe::SpinLock lock;
        none([&] { const std::scoped_lock hold(lock); });
    }
    SECTION("a channel's buffers") {
        hpe::Channel channel;
        std::byte memory{};
        for (auto& buffer : channel.buffers) buffer.memory = &memory;
        int held = 0;
        none([&] { held += hpe::HeldBuffers(channel, 2 * hpe::Channel::kBufferBytes).all().size() == 2; });
        CHECK(held == 100);
    }
    SECTION("the list of rolling update") {
        const auto rolling = std::make_unique<hpe::Rolling>(std::size_t{0});
        none([&] { rolling->released(); });
    }
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
