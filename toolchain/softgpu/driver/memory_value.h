// SPDX-License-Identifier: MIT
// What operations on memory values share with graphs.
// Threads: any; parameters are copied.
#pragma once

#include "toolchain/softgpu/driver/operation.h"

namespace hpe::soft {

// Checks a batch and turns it into an operation. Throws INVALID_VALUE.
ValueOps value_operations(unsigned count, const CUstreamBatchMemOpParams* parameters, unsigned flags);

}  // namespace hpe::soft
