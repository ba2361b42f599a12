// SPDX-License-Identifier: MIT
// Private to Coherence: the lock under which doors change the states of several blocks at once, so that no object is
// freed while another door has locked its blocks. Never taken in the fault path.
//
// Threads: any, outside the fault path, with signals blocked (SignalsBlocked) so that no handler faults under it.
#pragma once

#include "shim/base/mutex.h"

namespace hpe {

Mutex& apply_mutex() noexcept;

}  // namespace hpe
