// SPDX-License-Identifier: MIT
// Turns what the runtime says of a graph node into what the driver says, and back.
// Descriptions are filled in for the caller and point to what it gave. Threads: any. Errors: CUDA's.
#pragma once

#include "driver.h"

namespace hpe::soft::cudart {

cudaError_t describe_kernel(const Driver& d, CUDA_KERNEL_NODE_PARAMS& to, const cudaKernelNodeParams& from);
cudaError_t describe_variable_copy(const Driver& d, CUDA_MEMCPY3D& to, const void* symbol, const void* other,
                                   size_t size, size_t offset, cudaMemcpyKind kind, bool into_variable);
CUDA_MEMSET_NODE_PARAMS describe_memset(const cudaMemsetParams& from);

// The union that cudaGraphAddNode takes.
cudaError_t describe_node(const Driver& d, CUgraphNodeParams& to, const cudaGraphNodeParams& from);

}  // namespace hpe::soft::cudart
