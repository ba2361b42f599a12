// SPDX-License-Identifier: MIT
// The process: from its first use of CUDA to its end, and its children.
#pragma once

#include "shim/base/active.h"
#include "shim/process/signals.h"

namespace hpe::process {

// Called when the program looks for the driver. Reads the options the first time; a bad one ends the process here, with
// one line, before any CUDA work. Returns whether to put doors in front of the driver. Any thread.
bool first_use() noexcept;

// Whether first_use() has not decided yet.
bool undecided() noexcept;

// The driver was initialised: from here on a forked child is inert.
void cuda_started() noexcept;

// The first object exists: faults may come, to this handler.
[[gnu::hot]] void objects_exist(signals::Handler* on_fault) noexcept;

// Called at exit with a function that adds to what is said under HPE_LOG=debug.
void at_exit(void (*say)()) noexcept;

}  // namespace hpe::process
