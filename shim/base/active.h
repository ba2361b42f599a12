// SPDX-License-Identifier: MIT
// Whether libhpe does anything in this process.
//
// Threads: any; async-signal-safe.
#pragma once

#include <atomic>

#include "shim/base/flag.h"

namespace hpe::process {

// False before the first use of CUDA, with HPE_PROTOCOL=off, and in a forked child of a process that used CUDA (it has
// no device). Set in shim/process/.
inline constinit Flag active{false};

}  // namespace hpe::process
