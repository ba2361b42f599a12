// SPDX-License-Identifier: MIT
// How far a running process is: one line on stderr when a signal comes (HPE_PROGRESS_SIGNAL), with its objects, what
// has moved, and the call stack that took most time. The handler only wakes a thread of ours, which prints.
//
// A signal for which the program has a handler is left to it, and one that it sets later replaces ours. System calls
// that the signal interrupts are restarted, but for those that never are (signal(7)).
//
// Bytes, faults. Threads: moved() and faulted() any, also in the fault path; the others outside it. Errors: said in one
// line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe::progress {

inline constinit std::atomic<std::uint64_t> bytes_to_host{0}, bytes_to_device{0}, faults{0};

// 0: none. Before begin().
void configure(int signal) noexcept;
// The program uses CUDA.
void begin() noexcept;
// The child does with the signal what it would without libhpe.
void in_child() noexcept;

}  // namespace hpe::progress
