// SPDX-License-Identifier: MIT
// The program's dispositions of shared signals, the masks it thinks it has, and delivery of foreign faults.
#include "shim/process/signals.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/next_function.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/observe/recording.h"

namespace hpe::signals {

namespace {

// Blocked in the kernel for a program that blocks SIGSEGV. Linux never sends it (signal(7)).
constexpr int kStandIn = SIGSTKFLT;

// glibc sets it in every action (SA_RESTORER of asm/signal.h), and programs read it back.
constexpr int kRestorer = 0x04000000;

constinit std::atomic<bool> on{false};
constinit Handler* ours_on_top = nullptr;  // constant once `on` is true
constexpr int kRaised[] = {SIGTRAP, SIGFPE, SIGBUS, SIGILL};
// Only ever taken with all signals blocked.
constinit SpinLock guard;
constinit Handler* ours_of_raised HPE_GUARDED_BY(guard) = nullptr;
constinit std::array<struct sigaction, 32> program_actions HPE_GUARDED_BY(guard) = {};
constinit std::atomic<pid_t> owner{0};  // the process whose disposition that is
// Without dlsym: another thread may hold the loader's lock and wait for this one.
constinit Next<int(int, const struct sigaction*, struct sigaction*)> real_sigaction{"sigaction"};

// The cancellation of a thread (nptl(7)), too, which sigfillset leaves out: it would unwind our handler where no C++
// function may be left.
void block_all(sigset_t& mask) noexcept {
    constexpr int kCancel = 32;
    sigfillset(&mask);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &mask, sizeof bits);
    bits |= std::uint64_t{1} << (kCancel - 1);
    std::memcpy(&mask, &bits, sizeof bits);
}

// Our action takes those flags from the program's that decide on which stack a handler runs and whether system calls
// are restarted: for a signal that is not ours nothing must look different.
int put_ours_on_top(int signal) noexcept HPE_REQUIRES(guard) {
    const auto& program = program_actions[static_cast<std::size_t>(signal)];
    struct sigaction ours {};
    ours.sa_sigaction = signal == SIGSEGV ? ours_on_top : ours_of_raised;
    // Where a SIGSEGV needs another stack, so does what follows it.
    ours.sa_flags =
        SA_SIGINFO | (program.sa_flags & (SA_ONSTACK | SA_RESTART)) | (program_actions[SIGSEGV].sa_flags & SA_ONSTACK);
    if (program.sa_handler == SIG_IGN) ours.sa_flags |= SA_RESTART;
    block_all(ours.sa_mask);
    sigdelset(&ours.sa_mask, kStandIn);  // threads that the driver makes meanwhile inherit the program's choice
    return real_sigaction(signal, &ours, nullptr);
}

bool has(const sigset_t& set, int signal) noexcept { return sigismember(&set, signal) == 1; }

// Nobody blocks the stand-in for its own sake: it is the program's if "all signals" was meant, or all but SIGSEGV. Of
// the latter it has to be left out, before our handler is there too: threads keep their masks, and hand them on.
bool means_all(const sigset_t& mask) noexcept { return has(mask, SIGPWR); }
constinit std::atomic<bool> left_out{false};
void show_left_out(sigset_t& mask) noexcept {
    if (left_out.load(std::memory_order_relaxed) && means_all(mask)) sigaddset(&mask, kStandIn);
}

// What the kernel reads of a mask. Programs that make masks for it have no more than that.
sigset_t kernels_part(const sigset_t& mask) noexcept {
    sigset_t part{};
    std::memcpy(&part, &mask, sizeof(std::uint64_t));
    return part;
}

// From the kernel's mask to the one that the program shall see, and back.
void show(sigset_t& mask) noexcept {
    if (!has(mask, kStandIn)) return show_left_out(mask);
    sigaddset(&mask, SIGSEGV);
    if (!means_all(mask)) sigdelset(&mask, kStandIn);
}
void hide(sigset_t& mask) noexcept {
    const bool blocks = has(mask, SIGSEGV);
    if (!blocks && has(mask, kStandIn) && means_all(mask)) left_out.store(true, std::memory_order_relaxed);
    sigdelset(&mask, SIGSEGV);
    sigdelset(&mask, kStandIn);
    if (blocks) sigaddset(&mask, kStandIn);
}

int change_other(int signal, struct sigaction* action, struct sigaction& before) noexcept {
    if (action != nullptr) hide(action->sa_mask);
    const int result = real_sigaction(signal, action, &before);
    if (result == 0) show(before.sa_mask);
    return result;
}

int change_shared(int signal, struct sigaction* action, struct sigaction& before) noexcept {
    SignalsBlocked blocked;
    const Locked lock(guard);
    if (signal != SIGSEGV && ours_of_raised == nullptr) return change_other(signal, action, before);
    auto& program = program_actions[static_cast<std::size_t>(signal)];
    before = program;
    // The child of a vfork has our memory, but dispositions of its own.
    if (owner.load(std::memory_order_relaxed) != getpid()) {
        struct sigaction its {};
        if (real_sigaction(signal, action, &its) != 0) return -1;
        if (its.sa_sigaction != (signal == SIGSEGV ? ours_on_top : ours_of_raised)) before = its;
        return 0;
    }
    if (action == nullptr) return 0;
    // As the kernel and glibc would keep it.
    program = *action;
    program.sa_flags |= kRestorer;
    sigdelset(&program.sa_mask, SIGKILL);
    sigdelset(&program.sa_mask, SIGSTOP);
    if (put_ours_on_top(signal) == 0) return 0;
    program = before;
    return -1;
}

// A SIGSEGV that was sent (by kill and the like) while the program blocks it stays pending as the stand-in, with its
// siginfo.
constexpr int kPostponed = 0x687065;  // si_errno, which the kernel leaves alone
constinit struct sigaction stand_in_action = {};
constinit std::atomic<bool> stand_in_caught{false};

void on_stand_in(int signal, siginfo_t* info, void* context);

void postpone(siginfo_t* info) noexcept {
    const Locked lock(guard);
    if (!stand_in_caught.load(std::memory_order_relaxed)) {
        struct sigaction ours {};
        ours.sa_sigaction = on_stand_in;
        ours.sa_flags = SA_SIGINFO | (program_actions[SIGSEGV].sa_flags & (SA_ONSTACK | SA_RESTART));
        block_all(ours.sa_mask);
        sigdelset(&ours.sa_mask, SIGSEGV);
        real_sigaction(kStandIn, &ours, &stand_in_action);
        stand_in_caught.store(true, std::memory_order_relaxed);
    }
    info->si_errno = kPostponed;
    queue_again(kStandIn, info);
}

[[noreturn]] void die_of(int signal) noexcept {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    real_sigaction(signal, &plain, nullptr);
    kernel::sigprocmask(SIG_UNBLOCK, signal);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
    _exit(128 + signal);
}

}  // namespace

void catch_too(Handler* handler) noexcept {
    const Locked lock(guard);
    if (ours_of_raised != nullptr) return;
    ours_of_raised = handler;
    for (const int signal : kRaised) {
        auto& program = program_actions[static_cast<std::size_t>(signal)];
        real_sigaction(signal, nullptr, &program);
        show(program.sa_mask);
        put_ours_on_top(signal);
    }
}

bool shared(int signal) noexcept {
    return signal == SIGSEGV || std::find(std::begin(kRaised), std::end(kRaised), signal) != std::end(kRaised);
}

// To the thread, or to the process, as before.
void queue_again(int signal, siginfo_t* info) noexcept {
    if (info->si_code == SI_TKILL) {
        syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, info);
    } else {
        syscall(SYS_rt_sigqueueinfo, getpid(), signal, info);
    }
}

namespace {

void on_stand_in(int signal, siginfo_t* info, void* context) {
    if (info->si_errno == kPostponed) {
        info->si_signo = SIGSEGV;
        info->si_errno = 0;
        deliver(SIGSEGV, info, context);
    } else if (stand_in_action.sa_handler == SIG_DFL) {
        die_of(signal);
    } else if ((stand_in_action.sa_flags & SA_SIGINFO) != 0) {
        stand_in_action.sa_sigaction(signal, info, context);
    } else if (stand_in_action.sa_handler != SIG_IGN) {
        stand_in_action.sa_handler(signal);
    }
}

}  // namespace

bool installed() noexcept { return on.load(std::memory_order_acquire); }

void install(Handler* handler) noexcept {
    const int saved = errno;  // some signals are libc's: asking for them is an error
    SignalsBlocked blocked;
    const Locked lock(guard);
    if (on.load(std::memory_order_relaxed)) return;
    ours_on_top = handler;
    real_sigaction(SIGSEGV, nullptr, &program_actions[SIGSEGV]);
    for (int signal = 1; signal <= 64; ++signal) {
        struct sigaction action {};
        if (signal == SIGSEGV || real_sigaction(signal, nullptr, &action) != 0) continue;
        if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
        if (!has(action.sa_mask, SIGSEGV) && !has(action.sa_mask, kStandIn)) continue;
        const auto read = action;
        hide(action.sa_mask);
        real_sigaction(signal, &action, &action);
        // Another thread has set another one meanwhile.
        if (action.sa_sigaction == read.sa_sigaction && has(action.sa_mask, SIGSEGV) == has(read.sa_mask, SIGSEGV))
            continue;
        hide(action.sa_mask);
        real_sigaction(signal, &action, nullptr);
    }
    errno = saved;
    if (put_ours_on_top(SIGSEGV) != 0) {
        log::error("sigaction failed: the CPU cannot access device memory");
        return;
    }
    owner.store(getpid(), std::memory_order_relaxed);
    on.store(true, std::memory_order_release);
}

void settle_thread() noexcept {
    if (!installed()) return;
    this_thread.settled = true;
    this_thread.quick = !recording();
    program_sigmask(SIG_BLOCK, nullptr, nullptr);
}

// In a child of fork(), where another thread may have held the lock.
void forget() noexcept HPE_NOT_ANALYSED {
    guard.unlock();
    owner.store(getpid(), std::memory_order_relaxed);
}

int program_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
    if (!installed() || signal < 1 || signal > 64) return real_sigaction(signal, action, old);
    // The program's pointers are read here, with no lock held and no signal blocked: a fault in it is the program's.
    struct sigaction wanted {
    }, before{};
    if (action != nullptr) wanted = *action;
    auto* const set = action != nullptr ? &wanted : nullptr;
    const int result = shared(signal) ? change_shared(signal, set, before) : change_other(signal, set, before);
    if (result == 0 && old != nullptr) *old = before;
    return result;
}

bool program_handles_faults() noexcept {
    for (const int signal : {SIGSEGV, SIGBUS}) {
        struct sigaction action {};
        if (program_sigaction(signal, nullptr, &action) != 0) return true;
        if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) return true;
    }
    return false;
}

int program_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    sigset_t hidden{};
    if (!installed()) {
        if (set != nullptr) hidden = how == SIG_UNBLOCK ? kernels_part(*set) : kernel_mask(*set);
        const int error = SignalsBlocked::libc_sigmask(how, set != nullptr ? &hidden : nullptr, old);
        if (error == 0 && old != nullptr) show_mask(*old);
        return error;
    }
    if (set != nullptr) {
        hidden = kernels_part(*set);
        hide(hidden);
        if (how == SIG_UNBLOCK && has(*set, SIGSEGV)) sigaddset(&hidden, SIGSEGV);
    }
    // The kernel writes what was, and says so if it cannot.
    sigset_t own{};
    auto& before = old != nullptr ? *old : own;
    const int error = SignalsBlocked::libc_sigmask(how, set != nullptr ? &hidden : nullptr, &before);
    if (error != 0) return error;
    // SIGSEGV blocked before our handler was installed is in the kernel's mask: the stand-in takes its place.
    if (has(before, SIGSEGV)) {
        if (set == nullptr || how == SIG_BLOCK) kernel::sigprocmask(SIG_BLOCK, kStandIn);
        kernel::sigprocmask(SIG_UNBLOCK, SIGSEGV);
        sigaddset(&before, kStandIn);
        sigdelset(&before, SIGSEGV);
    }
    show(before);
    return 0;
}

void show_pending(sigset_t& pending) noexcept {
    if (!stand_in_caught.load(std::memory_order_relaxed) || !has(pending, kStandIn)) return;
    sigdelset(&pending, kStandIn);
    sigaddset(&pending, SIGSEGV);
}

sigset_t kernel_mask(const sigset_t& program) noexcept {
    auto mask = kernels_part(program);
    if (installed() || (!has(mask, SIGSEGV) && means_all(mask))) hide(mask);
    return mask;
}

void show_mask(sigset_t& kernel) noexcept { installed() ? show(kernel) : show_left_out(kernel); }

namespace {

// Blocks what the kernel would have blocked while the handler runs; the handler may still access objects.
void run_handler(const struct sigaction& action, const sigset_t& mask, int signal, siginfo_t* info, void* context) {
    kernel::sigprocmask(SIG_SETMASK, &mask, nullptr);
    if ((action.sa_flags & SA_SIGINFO) != 0) {
        action.sa_sigaction(signal, info, context);
    } else {
        action.sa_handler(signal);
    }
}

sigset_t mask_of(const struct sigaction& action, int signal, const ucontext_t& interrupted) noexcept {
    sigset_t mask = interrupted.uc_sigmask;
    sigorset(&mask, &mask, &action.sa_mask);
    if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, signal);
    return mask;
}

}  // namespace

void deliver(int signal, siginfo_t* info, void* context) {
    const bool from_kernel = info->si_code > 0;
    auto* user = static_cast<ucontext_t*>(context);
    // One that was sent to the process is for a thread of the program.
    const bool blocked = signal == SIGSEGV && (this_thread.ours ? !from_kernel : has(user->uc_sigmask, kStandIn));
    if (blocked && !from_kernel) {
        postpone(info);
        return;
    }
    struct sigaction action;
    bool handled;
    {
        const Locked lock(guard);
        auto& program = program_actions[static_cast<std::size_t>(signal)];
        action = program;
        handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && !blocked;
        if (handled && (action.sa_flags & SA_RESETHAND) != 0) program.sa_handler = SIG_DFL;
    }
    if (!handled) {
        // The kernel forces the default action on a fault that is ignored or blocked (signal(7)).
        if (!from_kernel && action.sa_handler == SIG_IGN) return;
        // Behind a trap the instruction is over, and there may be none behind what the kernel says by itself: it has no
        // stack for a handler, say.
        if (!from_kernel || signal == SIGTRAP || info->si_code == SI_KERNEL) die_of(signal);
        // The faulting instruction is repeated and kills the process with the right address in its core.
        struct sigaction plain {};
        plain.sa_handler = SIG_DFL;
        real_sigaction(signal, &plain, nullptr);
        return;
    }
    auto mask = mask_of(action, signal, *user);
    hide(mask);
    run_handler(action, mask, signal, info, context);
    hide(user->uc_sigmask);  // the handler may have changed the mask to return to
}

}  // namespace hpe::signals
