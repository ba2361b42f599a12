// SPDX-License-Identifier: MIT
// The numbers.
#include "shim/driver/primary_contexts.h"

namespace hpe {

constinit PrimaryContexts primary_contexts;

void PrimaryContexts::retained(CUdevice device) noexcept {
    const Locked lock(mutex_);
    if (unsigned* const count = count_of(device)) ++*count;
}

void PrimaryContexts::reset(CUdevice device) noexcept {
    const Locked lock(mutex_);
    if (unsigned* const count = count_of(device)) *count = 0;
}

}  // namespace hpe
