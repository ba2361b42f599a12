// SPDX-License-Identifier: MIT
// The signal's handler, and the thread that prints.
#include "shim/observe/progress.h"

#include <csignal>
#include <cstring>
#include <exception>

#include "shim/base/errno_kept.h"
#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/base/ticks.h"
#include "shim/base/waiting.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/report.h"

namespace hpe::progress {

namespace {

constinit std::atomic<int> wanted{0};
constinit std::atomic<std::uint32_t> asked{0};
constinit std::uint64_t began = 0;
constinit int the_signal = 0;

void on_signal(int) {
    const ErrnoKept kept;
    asked.fetch_add(1, std::memory_order_seq_cst);
    asked.notify_one();
}

void print() try {
    const auto mib = [](const std::atomic<std::uint64_t>& bytes) {
        return static_cast<double>(bytes.load(std::memory_order_relaxed)) / (1 << 20);
    };
    const auto hottest = call_stacks::hottest();
    const auto objects = report::objects();
    const auto trapped = faults.load(std::memory_order_relaxed);
    log::write_line(fmt::format(
        "after {:.1f} s: {} object{}, {:.1f} MiB to the host, {:.1f} MiB to the device, {} fault{}{}{}",
        static_cast<double>(ticks::nanoseconds() - began) / 1e9, objects, objects == 1 ? "" : "s", mib(bytes_to_host),
        mib(bytes_to_device), trapped, trapped == 1 ? "" : "s", hottest.empty() ? "" : "; most time: ", hottest));
} catch (const std::exception&) {
}

void serve(void*) noexcept {
    name_this_thread("hpe-progress");
    // So that it comes also where all threads of the program block it.
    kernel::sigprocmask(SIG_UNBLOCK, the_signal);
    for (std::uint32_t answered = 0;;) {
        wait_while(asked, answered);
        answered = asked.load(std::memory_order_acquire);
        print();
    }
}

}  // namespace

void in_child() noexcept {
    struct sigaction action {};
    // The child has no thread that answers.
    if (the_signal != 0 && sigaction(the_signal, nullptr, &action) == 0 && action.sa_handler == on_signal) {
        std::signal(the_signal, SIG_DFL);
    }
    the_signal = 0;
}

void configure(int signal) noexcept { wanted.store(signal, std::memory_order_relaxed); }

void begin() noexcept {
    const int signal = wanted.exchange(0, std::memory_order_acq_rel);
    if (signal == 0) return;
    began = ticks::nanoseconds();
    the_signal = signal;
    struct sigaction action {
    }, before{};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) {
        log::warn("HPE_PROGRESS_SIGNAL: the program handles or ignores signal {} itself", signal);
        return;
    }
    if (!start_thread(serve)) {
        log::warn("HPE_PROGRESS_SIGNAL: there is no thread to answer it");
        return;
    }
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, &action, nullptr) != 0) log::warn("HPE_PROGRESS_SIGNAL: {}", std::strerror(errno));
}

}  // namespace hpe::progress
