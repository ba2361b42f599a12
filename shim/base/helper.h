// SPDX-License-Identifier: MIT
// Threads of our own, for work that the faulting thread may not do itself: driver calls during a host callback (CUDA
// forbids them), inside a call into the driver, or on a small alternate signal stack.
//
// One for each kind of work, since one kind may wait for what another makes possible. Errors: start() alone; run() pre:
// running(). Work is borrowed for the call.
#pragma once

namespace hpe::helper {

enum class Kind : unsigned char {
    Transfer,  // waits for nothing that a host function, a launch or a lock of a block could hold up
    Wait,      // for the device, and so for host functions that need a Transfer
    Fault,     // all that serving one in order takes: waits for the device, for launches and for blocks
};

// Creates the threads unless they exist. Outside the fault path. False: not all can be had.
bool start() noexcept;
bool running() noexcept;

// Runs work(argument) on the helper and waits for it. Inside the fault path too.
void run(Kind kind, void (*work)(void*), void* argument) noexcept;

template <class Work>
void run(Kind kind, Work& work) noexcept {
    run(
        kind, [](void* argument) { (*static_cast<Work*>(argument))(); }, &work);
}

// The same where `elsewhere` says that the calling thread may not, and here otherwise, or if there are no helpers.
template <class Work>
void with_driver(bool elsewhere, Kind kind, Work&& work) noexcept {
    if (elsewhere && running()) {
        run(kind, work);
    } else {
        work();
    }
}

// In a forked child the threads do not exist.
void forget() noexcept;

}  // namespace hpe::helper
