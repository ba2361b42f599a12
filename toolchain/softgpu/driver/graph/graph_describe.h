// SPDX-License-Identifier: MIT
// What a node does, told to an application that did not say it itself, because the node came from a capture (CUDA
// Driver API, "Graph Management", cuGraphMemcpyNodeGetParams and cuGraphBatchMemOpNodeGetParams).
//
// Threads: any, there is no state. Errors: exceptions of type Error (call.h).
#pragma once

#include <vector>

#include "toolchain/softgpu/driver/copy/copy.h"
#include "toolchain/softgpu/driver/copy/memory_value.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

// The form of cuMemcpy3D, rows and layers in bytes of the memory that is copied.
CUDA_MEMCPY3D describe(const CopyOp& op);
std::vector<CUstreamBatchMemOpParams> describe(const ValueOps& operations);

}  // namespace hpe::soft
