// SPDX-License-Identifier: MIT
// Threads of our own, for work that the faulting thread may not do itself: driver calls during a host callback (CUDA
// forbids them), inside a call into the driver, or on a small alternate signal stack; and making threads.
//
// One thread for each kind of work, since work of one kind may wait for work of another. Errors: only of start();
// run() needs running(). Work is borrowed for the call.
#pragma once

namespace hpe::helper {

enum class Kind : unsigned char {
    Transfer,  // never waits for a host function, a launch or the lock of a block
    Fault,     // serves a fault in order: waits for the device, for launches and for blocks
};

// Creates the threads unless they exist. One thread at a time, outside the fault path. False: not all could be created.
bool start() noexcept;
bool running() noexcept;

// Runs work(argument) on the helper and waits for it. Inside the fault path too.
void run(Kind kind, void (*work)(void*), void* argument) noexcept;

template <class Work>
void run(Kind kind, Work& work) noexcept {
    run(
        kind, [](void* argument) { (*static_cast<Work*>(argument))(); }, &work);
}

// Runs work() on the helper if `elsewhere` is true and helpers exist, else on the calling thread.
template <class Work>
void with_driver(bool elsewhere, Kind kind, Work&& work) noexcept {
    if (elsewhere && running()) {
        run(kind, work);
    } else {
        work();
    }
}

// Has work() done soon, by a thread that may wait and allocate; nobody waits for it. Left out where such work is under
// way. Inside the fault path too.
void later(void (*work)()) noexcept;

// In a forked child the threads do not exist.
void forget() noexcept;

}  // namespace hpe::helper
