// SPDX-License-Identifier: MIT
// The fault door: our SIGSEGV handler, which process::objects_exist() installs.
//
// Bytes. Threads: any; async-signal-safe. Errors: what is not ours goes to the program (signals.h).
#pragma once

#include <csignal>

namespace hpe {

void on_fault(int signal, siginfo_t* info, void* context);

}  // namespace hpe
