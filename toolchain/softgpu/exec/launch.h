// SPDX-License-Identifier: MIT
// Runs a grid on the calling thread and the shared workers: blocks in any order, several at once, clusters and
// cooperative grids together. Models what distributes blocks to multiprocessors.
// Source: CUDA C++ Programming Guide, "Thread Hierarchy", "Cooperative Groups"; PTX ISA, "Machine Model".
//
// Threads: any number of launches at once, each from a thread of its own. Errors: in the launch's Failure.
#pragma once

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

// Returns when every block has ended, or the first failure has ended them all.
void run_grid(LaunchState& launch);

}  // namespace hpe::soft::exec
