// SPDX-License-Identifier: MIT
// SIGSEGV shared with the program: our handler is the kernel's, the program's disposition is kept here and served as
// the kernel would have served it. Before install() everything is the kernel's business and the doors pass through.
//
// What differs from a process without us, on purpose: while the program's own SIGSEGV handler runs, and wherever it
// asked for SIGSEGV to be blocked, the kernel does not block it, since objects may be touched there. A thread that
// blocked SIGSEGV before the first allocation keeps it blocked until it next calls a mask function.
//
// Threads: any. deliver() runs in the signal handler; the others block signals while they hold the lock it takes.
#pragma once

#include <csignal>

namespace hpe::signals {

// Puts our handler on top. Once; outside the fault path.
void install() noexcept;
bool installed() noexcept;

// sigaction(2) as the program sees it. Returns 0 or -1 with errno.
int program_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept;

// sigprocmask(2) as the program sees it. Returns 0 or an error number.
int program_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept;

// A SIGSEGV that is not ours goes to the program. May not return (siglongjmp).
void deliver(int signal, siginfo_t* info, void* context);

}  // namespace hpe::signals
