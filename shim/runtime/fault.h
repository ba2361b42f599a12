// SPDX-License-Identifier: MIT
// The signal handler, for whoever installs it. It stands in shim/doors/fault.cpp: a door like any other.
// Threads: any, as the kernel calls it. Errors: what is not ours goes to the program (signals.h).
#pragma once

#include <csignal>

namespace hpe {

void on_fault(int signal, siginfo_t* info, void* context);

}  // namespace hpe
