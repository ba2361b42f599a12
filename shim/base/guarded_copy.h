// SPDX-License-Identifier: MIT
// Copies that fail where an access of one's own would end the process: of what a pointer of the program's names, which
// the kernel would answer with EFAULT, and into an object that another thread may free meanwhile. The SIGSEGV handler
// knows the instruction that copies, as the kernel knows its own (exception tables).
//
// Bytes. Threads: any; async-signal-safe. Errors: false where memory cannot be accessed; part may have been copied.
// For a process with objects: else there is no handler.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace hpe {

extern "C" [[gnu::visibility("hidden")]] bool hpe_guarded_copy(void* to, const void* from, std::size_t bytes) noexcept;

template <class T>
bool guarded_copy(T* to, const T* from, std::size_t count = 1) noexcept {
    return hpe_guarded_copy(to, from, count * sizeof(T));
}

// For the handler, of a trap that nobody serves: whether it came from such a copy, which then returns false.
bool leave_guarded_copy(ucontext_t& context) noexcept;

}  // namespace hpe
