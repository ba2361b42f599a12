// SPDX-License-Identifier: MIT
// One instruction of the program that accesses memory which is uncached (coherence/uncached.h): the fault door sets the
// CPU's trap flag (Intel SDM volume 3, 18.3.1.4), and the SIGTRAP behind the instruction closes the pages.
//
// Until then every signal that may interrupt the thread is blocked. What else the instruction may raise (SIGFPE,
// SIGBUS, SIGILL) is shared with the program from the first step on, as SIGTRAP is (process/signals.h). An instruction
// that repeats itself (REP) is one instruction; copies and fills by such ones, as memcpy makes of them, go on to the
// end of a page at once. A debugger takes the SIGTRAP for its own (docs/limits.md).
//
// Threads: any, in a signal handler. Errors: begin() is false where the access is not served.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace hpe::single_step {

// Opens the page at the address for the instruction that trapped there; another one, if some are open already. The
// caller has disabled cancellation, and leaves it so until end(): `cancellation` is the program's state.
bool begin(std::uintptr_t address, bool is_write, ucontext_t& context, int cancellation) noexcept;
// The thread has trapped before the instruction is over.
bool under_way() noexcept;
// Closes all pages; `context` is as the program left it. Returns the program's cancellation state.
[[nodiscard]] int end(ucontext_t& context) noexcept;

}  // namespace hpe::single_step
