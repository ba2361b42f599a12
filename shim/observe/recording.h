// SPDX-License-Identifier: MIT
// Whether the program's calls are recorded: for the timeline, or for the report's call stacks. Then no thread is
// `quick`, and every call comes by its door's slow path (doors/traced.h).
//
// Threads: any; two loads.
#pragma once

#include "shim/observe/call_stacks.h"
#include "shim/observe/trace.h"

namespace hpe {

inline bool recording() noexcept { return trace::on() || call_stacks::on(); }

}  // namespace hpe
