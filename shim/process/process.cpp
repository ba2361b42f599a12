// SPDX-License-Identifier: MIT
// First use, fork, exit.
#include "shim/process/process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#include "shim/base/helper.h"
#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/uncached.h"
#include "shim/copies/unread_copies.h"
#include "shim/ipc/exports.h"
#include "shim/memory/pinned.h"
#include "shim/mpi/host_memory.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/progress.h"
#include "shim/observe/report.h"
#include "shim/observe/trace.h"
#include "shim/observe/unread.h"
#include "shim/process/options.h"
#include "shim/process/signals.h"
#include "shim/transfer/read_ahead.h"
#include "shim/transfer/staging.h"

namespace hpe::process {

namespace {

enum class Phase : int { Unknown, Reading, On, Off };
constinit std::atomic<Phase> phase{Phase::Unknown};
constinit std::atomic<bool> started{false};
constinit std::atomic<void (*)()> say_at_exit{nullptr};

void finish() {
    if (!active.load(std::memory_order_relaxed)) return;
    call_stacks::finish();
    unread::finish();
    report::write();
    trace::write();
    if (auto* say = say_at_exit.load(std::memory_order_acquire)) say();
}

void in_child() {
    signals::forget();
    uncached::in_child();
    unread::in_child();
    trace::in_child(started.load(std::memory_order_relaxed));
    call_stacks::in_child();
    progress::in_child();
    if (!started.load(std::memory_order_relaxed)) return;
    active.store(false, std::memory_order_relaxed);
    this_thread.settled = this_thread.quick = false;
    helper::forget();
}

bool read_options() {
    Options options;
    std::string problem;
    if (!parse_options(options, problem)) {
        log::write_line(problem);
        // Not exit(): this may be inside a lock of the CUDA runtime, whose own exit handlers would wait for it.
        std::fflush(nullptr);
        _exit(2);
    }
    log::threshold.store(options.log, std::memory_order_relaxed);
    if (options.protocol == "off") return false;
    coherence().configure(make_protocol(options.protocol, options.rolling_size), options.block_size);
    read_ahead::configure(options.read_ahead);
    mpi::configure(options.mpi);
    ipc::configure(options.mpi_ipc);
    pinned::configure(options.pinned_limit);
    staging::configure(options.staging_threads, options.staging_block);
    report::configure(options.report, options.protocol);
    if (options.stacks && (report::is_json(options.report) || options.progress_signal != 0)) call_stacks::want();
    unread_copies::configure(options.unread);
    progress::configure(options.progress_signal);
    trace::configure(options.trace);
    if (!options.trace.empty() || options.progress_signal != 0) report::number_allocations();
    pthread_atfork(nullptr, nullptr, in_child);
    std::atexit(finish);
    return true;
}

}  // namespace

bool first_use() noexcept {
    for (;;) {
        auto seen = phase.load(std::memory_order_acquire);
        if (seen == Phase::On) return true;
        if (seen == Phase::Off) return false;
        if (seen == Phase::Unknown && phase.compare_exchange_strong(seen, Phase::Reading)) break;
        wait_while(phase, Phase::Reading);
    }
    pthread_atfork(nullptr, nullptr, [] {
        auto reading = Phase::Reading;  // by a thread that the child does not have
        phase.compare_exchange_strong(reading, Phase::Unknown);
    });
    // Calls of CUDA's that this thread makes meanwhile, as the program's malloc may, pass.
    const Inside inside;
    bool on = false;
    try {
        on = read_options();
    } catch (const std::bad_alloc&) {
        log::warn("no memory is left to begin with: the program runs without libhpe");
    }
    if (on) active.store(true, std::memory_order_release);
    phase.store(on ? Phase::On : Phase::Off, std::memory_order_seq_cst);  // before notify_all() looks for sleepers
    phase.notify_all();
    return on;
}

bool undecided() noexcept {
    const auto now = phase.load(std::memory_order_acquire);
    return now == Phase::Unknown || now == Phase::Reading;
}

void cuda_started() noexcept {
    started.store(true, std::memory_order_relaxed);
    call_stacks::begin();
    progress::begin();
}

void objects_exist(signals::Handler* on_fault) noexcept {
    static std::once_flag once;
    HPE_READ_OFTEN static constinit Flag installed{false};  // std::call_once calls pthread_once each time
    if (installed.load(std::memory_order_acquire) == 0) {
        std::call_once(once, [on_fault] {
            if (!helper::start() && !helper::start()) {
                log::warn("no helper thread (pthread_create failed): host functions cannot access objects");
            }
            signals::install(on_fault);
            installed.store(true, std::memory_order_release);
        });
    }
    if (!this_thread.settled) signals::settle_thread();
}

void at_exit(void (*say)()) noexcept { say_at_exit.store(say, std::memory_order_release); }

}  // namespace hpe::process
