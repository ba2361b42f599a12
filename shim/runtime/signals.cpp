// SPDX-License-Identifier: MIT
// The program's SIGSEGV disposition, the masks it thinks it has, and delivery of foreign faults.
#include "shim/runtime/signals.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/runtime/fault.h"
#include "shim/runtime/real.h"

namespace hpe::signals {

namespace {

using Sigaction = int(int, const struct sigaction*, struct sigaction*);

constinit std::atomic<bool> on{false};
// Guarded by `busy`, which is only ever taken with all signals blocked.
constinit std::atomic_flag busy = ATOMIC_FLAG_INIT;
constinit struct sigaction program_action = {};
// Signals whose handlers the program wants to run with SIGSEGV blocked; bit n - 1 is signal n.
constinit std::atomic<std::uint64_t> blocks_segv{0};

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

int real_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
    static constinit std::atomic<Sigaction*> found{nullptr};
    auto* real = found.load(std::memory_order_relaxed);
    if (real == nullptr) {
        real = reinterpret_cast<Sigaction*>(real_dlsym(RTLD_NEXT, "sigaction"));
        found.store(real, std::memory_order_relaxed);
    }
    return real(signal, action, old);
}

class Locked {
public:
    Locked() noexcept {
        while (busy.test_and_set(std::memory_order_acquire)) busy.wait(true);
    }
    ~Locked() {
        busy.clear(std::memory_order_release);
        busy.notify_one();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

// Ours takes the flags that decide on which stack it runs and whether system calls restart from the program's: for a
// foreign SIGSEGV nothing is to be noticed.
int put_ours_on_top() noexcept {
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | (program_action.sa_flags & (SA_ONSTACK | SA_RESTART));
    sigfillset(&ours.sa_mask);
    return real_sigaction(SIGSEGV, &ours, nullptr);
}

void strip(sigset_t& mask, int signal) noexcept {
    if (sigismember(&mask, SIGSEGV) == 1) {
        sigdelset(&mask, SIGSEGV);
        blocks_segv.fetch_or(bit(signal), std::memory_order_relaxed);
    } else {
        blocks_segv.fetch_and(~bit(signal), std::memory_order_relaxed);
    }
}

[[noreturn]] void die_of(int signal) noexcept {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    real_sigaction(signal, &plain, nullptr);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, signal);
    SignalsBlocked::real_sigmask(SIG_UNBLOCK, &mask, nullptr);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
    _exit(128 + signal);
}

}  // namespace

bool installed() noexcept { return on.load(std::memory_order_acquire); }

void install() noexcept {
    SignalsBlocked blocked;
    Locked lock;
    if (on.load(std::memory_order_relaxed)) return;
    real_sigaction(SIGSEGV, nullptr, &program_action);
    for (int signal = 1; signal <= 64; ++signal) {
        struct sigaction action {};
        if (signal == SIGSEGV || real_sigaction(signal, nullptr, &action) != 0) continue;
        if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
            sigismember(&action.sa_mask, SIGSEGV) != 1) {
            continue;
        }
        strip(action.sa_mask, signal);
        real_sigaction(signal, &action, nullptr);
    }
    if (put_ours_on_top() != 0) {
        log::error("sigaction failed: the CPU cannot access device memory");
        return;
    }
    on.store(true, std::memory_order_release);
    // This thread, at least, can be freed now of a block set earlier; see signals.h for the others.
    sigset_t mask;
    sigemptyset(&mask);
    program_sigmask(SIG_BLOCK, &mask, nullptr);
}

int program_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
    if (!installed() || signal < 1 || signal > 64) return real_sigaction(signal, action, old);
    SignalsBlocked blocked;
    Locked lock;
    if (signal == SIGSEGV) {
        const auto before = program_action;
        if (action != nullptr) {
            program_action = *action;
            if (put_ours_on_top() != 0) {
                program_action = before;
                return -1;
            }
        }
        if (old != nullptr) *old = before;
        return 0;
    }
    const bool blocked_before = (blocks_segv.load(std::memory_order_relaxed) & bit(signal)) != 0;
    int result;
    if (action == nullptr) {
        result = real_sigaction(signal, nullptr, old);
    } else {
        auto stripped = *action;
        strip(stripped.sa_mask, signal);
        result = real_sigaction(signal, &stripped, old);
    }
    if (result == 0 && old != nullptr && blocked_before) sigaddset(&old->sa_mask, SIGSEGV);
    return result;
}

int program_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    auto& state = this_thread;
    sigset_t stripped{};
    const sigset_t* pass = set;
    bool blocks = state.blocks_sigsegv;
    if (set != nullptr) {
        const bool named = sigismember(set, SIGSEGV) == 1;
        if (how == SIG_SETMASK) blocks = named;
        if (how == SIG_BLOCK) blocks |= named;
        if (how == SIG_UNBLOCK && named) blocks = false;
        stripped = *set;
        if (how != SIG_UNBLOCK) sigdelset(&stripped, SIGSEGV);
        pass = &stripped;
    }
    sigset_t before{};
    if (SignalsBlocked::real_sigmask(how, pass, &before) != 0) return errno;
    // A block older than our handler shows in the kernel's mask: it becomes ours.
    if (sigismember(&before, SIGSEGV) == 1) {
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, SIGSEGV);
        SignalsBlocked::real_sigmask(SIG_UNBLOCK, &only, nullptr);
        if (how == SIG_BLOCK || set == nullptr) blocks = true;
    }
    if (old != nullptr) {
        *old = before;
        if (state.blocks_sigsegv) sigaddset(old, SIGSEGV);
    }
    state.blocks_sigsegv = blocks;
    return 0;
}

void deliver(int signal, siginfo_t* info, void* context) {
    const bool from_kernel = info->si_code > 0;
    struct sigaction action;
    {
        Locked lock;
        action = program_action;
        if ((action.sa_flags & SA_RESETHAND) != 0 && action.sa_handler != SIG_IGN) {
            program_action.sa_handler = SIG_DFL;
            program_action.sa_flags &= ~SA_SIGINFO;
        }
    }
    if (action.sa_handler == SIG_IGN && !from_kernel) return;
    // The kernel forces the default action on a fault that is ignored or blocked (signal(7)).
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN || (from_kernel && this_thread.blocks_sigsegv)) {
        if (!from_kernel) die_of(signal);
        // The faulting instruction is repeated and kills the process with the right address in its core.
        struct sigaction plain {};
        plain.sa_handler = SIG_DFL;
        real_sigaction(signal, &plain, nullptr);
        return;
    }
    // What the kernel would have blocked while the handler runs, less SIGSEGV: it may touch objects.
    auto* user = static_cast<ucontext_t*>(context);
    sigset_t mask = user->uc_sigmask;
    sigorset(&mask, &mask, &action.sa_mask);
    sigdelset(&mask, SIGSEGV);
    SignalsBlocked::real_sigmask(SIG_SETMASK, &mask, nullptr);
    if ((action.sa_flags & SA_SIGINFO) != 0) {
        action.sa_sigaction(signal, info, context);
    } else {
        action.sa_handler(signal);
    }
}

}  // namespace hpe::signals
