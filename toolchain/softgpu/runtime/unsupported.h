// SPDX-License-Identifier: MIT
// The answer of a runtime function that the soft device does not have.
#pragma once

namespace hpe::soft::cudart {

// Says once that `name` is not supported, remembers cudaErrorNotSupported as the thread's last error and returns it.
int unsupported(const char* name);

}  // namespace hpe::soft::cudart
