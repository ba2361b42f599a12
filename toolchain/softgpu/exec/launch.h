// SPDX-License-Identifier: MIT
// Runs a grid on the calling thread and the shared workers.
#pragma once

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

// Returns when every block has ended, or the first failure has ended them all.
void run_grid(LaunchState& launch);

}  // namespace hpe::soft::exec
