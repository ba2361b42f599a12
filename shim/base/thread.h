// SPDX-License-Identifier: MIT
// What libhpe knows about the calling thread. Initial-exec TLS: reading it allocates nothing, even in a signal handler.
#pragma once

#include <pthread.h>
#include <csignal>

#include <initializer_list>

#include "shim/base/kernel.h"

namespace hpe {

struct ThreadState {
    static constexpr unsigned kNoSlot = 32;

    unsigned inside = 0;                    // depth of calls into the real driver from one of our doors
    unsigned in_callback = 0;               // running a host function that a stream called
    const void* callback_stream = nullptr;  // which stream that is (InFlight::Mark::record): it waits for the function
    unsigned slot = kNoSlot;                // inside the gate, as a launch
    bool in_gate = false;                   // as a launch or a fault: the other group waits (launch_gate.h)
    bool in_fault = false;                  // in our SIGSEGV handler, where every signal is blocked
    bool touched_inside = false;  // a fault was served while inside or in_gate: the door looks again when it returns
    bool settled = false;         // its signal mask was examined since our handler was installed, in this process
    bool quick = false;           // settled, and nothing is recorded: a door needs no other check
    bool stepping = false;        // has pages open for one instruction (coherence/uncached.h)
    bool reentered = false;       // a door that records its call is about to call itself
    bool ours = false;            // a thread of libhpe's own
    unsigned traced = 0;          // depth of calls that are being recorded
};

inline thread_local constinit ThreadState this_thread __attribute__((tls_model("initial-exec")));

// Whether the calling thread may wait for the device, or enter the gate. Not in a host function or inside a driver
// call, since a stream may be waiting for this thread; nor inside the gate, where a signal handler runs if it
// interrupted a launch, a copy or a free.
inline bool may_wait_for_device() noexcept {
    return this_thread.in_callback == 0 && this_thread.inside == 0 && !this_thread.in_gate;
}

// Scope of a call into the real driver. Calls that libcuda makes to itself through our doors pass through.
class Inside {
public:
    Inside() noexcept { ++this_thread.inside; }
    ~Inside() { --this_thread.inside; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

// While block locks are held outside the fault path, no signal handler of the program may run on this thread: it could
// touch the very block and wait for itself.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        // A fault of our own must still be fatal in the usual way, not silent.
        // Whether SIGSTKFLT is blocked says whether the program blocks SIGSEGV; threads that the driver makes meanwhile
        // inherit it (signals.h).
        for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSTKFLT}) sigdelset(&all, fault);
        kernel::sigprocmask(SIG_BLOCK, &all, &saved_);
    }
    ~SignalsBlocked() { kernel::sigprocmask(SIG_SETMASK, &saved_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

    // As libc's own pthread_sigmask, which leaves alone the signals that it sends to threads itself (setuid,
    // pthread_cancel), whatever a program blocks.
    static int libc_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept;

private:
    sigset_t saved_;
};

// Starts a detached thread of our own, with every signal blocked but SIGSEGV. False: it could not be started.
bool start_thread(void (*body)(void*)) noexcept;
// Names the calling thread. Naming another thread opens a file of it in /proc, which the kernel has to find and drop
// when that thread ends (4 ms more for three threads at the end of a process, on two busy cores).
void name_this_thread(const char* name) noexcept;

}  // namespace hpe
