// SPDX-License-Identifier: MIT
// One thread of our own, for work that the faulting thread may not do itself: driver calls during a host callback (CUDA
// forbids them), inside a call into the driver, or on a small alternate signal stack.
#pragma once

namespace hpe::helper {

// Creates the thread unless it exists. Outside the fault path. False: no thread can be had.
bool start() noexcept;
bool running() noexcept;

// Runs work(argument) on the helper and waits for it. Inside the fault path too. Pre: running().
void run(void (*work)(void*), void* argument) noexcept;

template <class Work>
void run(Work& work) noexcept {
    run([](void* argument) { (*static_cast<Work*>(argument))(); }, &work);
}

// In a forked child the thread does not exist.
void forget() noexcept;

}  // namespace hpe::helper
