// SPDX-License-Identifier: MIT
// Private to Coherence: what faults inside host callbacks and inside the driver need.
//
// Threads: any, also inside the fault path. Errors: none of its own.
#pragma once

#include "shim/runtime/helper.h"

namespace hpe {

// Runs the work here, or on a helper where driver calls are not allowed or the stack is too small for them.
template <class Work>
void with_driver(bool elsewhere, helper::Kind kind, Work&& work) noexcept {
    if (elsewhere && helper::running()) {
        helper::run(kind, work);
    } else {
        work();
    }
}

}  // namespace hpe
