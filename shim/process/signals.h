// SPDX-License-Identifier: MIT
// SIGSEGV shared with the program: the kernel has our handler. The program's disposition is kept here, and a SIGSEGV
// that is not ours is handled as the kernel would have handled it. Before install() the doors pass everything through
// but one kind of mask. The same of SIGTRAP, SIGFPE, SIGBUS and SIGILL from the first catch_too() on; these the program
// may block.
//
// The program may access objects anywhere: in its own SIGSEGV handler, and where it blocks SIGSEGV. So the kernel never
// blocks SIGSEGV. In every mask that the program sets, the unused SIGSTKFLT stands in for SIGSEGV, and in every mask
// that the program reads it is shown as SIGSEGV again. Thus the kernel itself keeps the program's choice through
// siglongjmp, sigreturn, swapcontext and new threads, and a SIGSEGV that is not ours kills the process where the
// stand-in is blocked, as it would have without us.
//
// A mask of all signals but SIGSEGV goes to the kernel without the stand-in and is shown with it: before install(),
// too, since threads keep such a mask and hand it on, and their faults are for the program's handler.
//
// What differs from a process without us: SIGSTKFLT cannot be blocked unless SIGSEGV is. A thread that blocked SIGSEGV
// before the first allocation keeps it blocked until it next calls the driver or a mask function. A touch of an object
// ends the process where SIGSEGV is blocked past our doors: in threads that libc makes with all signals blocked
// (SIGEV_THREAD of timer_create and its like), and under a mask written into a ucontext_t by hand (for swapcontext, or
// uc_sigmask in the handler of another signal). sigwait, sigtimedwait and signalfd do not see a SIGSEGV that is
// blocked. A program started by exec inherits SIGSTKFLT blocked instead of SIGSEGV, and the default action of a signal
// that is shared where it was ignored.
//
// Threads: any. deliver() runs in the signal handler; the others block signals while they hold the lock it takes.
//
// Errors: as the system call has them.
#pragma once

#include <csignal>

namespace hpe::signals {

// Puts our handler on top. Once; outside the fault path.
using Handler = void(int signal, siginfo_t* info, void* context);
void install(Handler* handler) noexcept;
bool installed() noexcept;

// sigaction(2) as the program sees it. Returns 0 or -1 with errno.
int program_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept;

// A thread's first driver call after install(): see above.
void settle_thread() noexcept;
// In a forked child: a thread that held a lock does not exist there.
void forget() noexcept;

// Whether an access to memory that is not there calls a handler of the program's (SIGSEGV, SIGBUS).
bool program_handles_faults() noexcept;

// sigprocmask(2) as the program sees it. Returns 0 or an error number.
int program_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept;

// The mask to give to the kernel where the program gives this one to a system call.
sigset_t kernel_mask(const sigset_t& program) noexcept;

// From such a mask back to the program's.
void show_mask(sigset_t& kernel) noexcept;

// What sigpending(2) tells, as the program sees it.
void show_pending(sigset_t& pending) noexcept;

// Shares what else an instruction may raise, with one handler for all. In a signal handler, with all signals blocked.
void catch_too(Handler* handler) noexcept;
// Whether it is such a signal, or SIGSEGV, whose actions go by program_sigaction().
bool shared(int signal) noexcept;

// A shared signal that is not ours goes to the program. May not return (siglongjmp).
void deliver(int signal, siginfo_t* info, void* context);
// One that was sent while the program blocks it, and came all the same, is pending again. In its handler.
void queue_again(int signal, siginfo_t* info) noexcept;

}  // namespace hpe::signals
