// SPDX-License-Identifier: MIT
// The fault door: our SIGSEGV handler, which process::objects_exist() installs.
//
// Beside it copies of what a pointer of the program's names, for a door that must look at it before the kernel does: a
// vector, a message. The kernel answers a wrong pointer with EFAULT, and so must the door, where its own access would
// end the process. So the handler knows the instruction that copies, as the kernel knows its own (exception tables).
//
// Bytes. Threads: any; async-signal-safe. Errors: what is not ours goes to the program (signals.h); a copy is false
// where memory cannot be read. Copies are for a process with objects: else there is no handler.
#pragma once

#include <csignal>
#include <cstddef>

namespace hpe {

void on_fault(int signal, siginfo_t* info, void* context);

extern "C" [[gnu::visibility("hidden")]] bool hpe_guarded_copy(void* to, const void* from, std::size_t bytes) noexcept;
template <class T>
bool guarded_copy(T* to, const T* from, std::size_t count = 1) noexcept {
    static_assert(sizeof(T) % 8 == 0);  // it copies words
    return hpe_guarded_copy(to, from, count * sizeof(T));
}

}  // namespace hpe
