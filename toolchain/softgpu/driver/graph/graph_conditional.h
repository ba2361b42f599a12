// SPDX-License-Identifier: MIT
// Conditional nodes (CUDA Driver API, "Graph Management"): which graphs run or do not run for the value of a handle.
//
// Threads: as the graph. Errors: exceptions of type Error (call.h).
#pragma once

#include "toolchain/softgpu/driver/graph/graph.h"

namespace hpe::soft {

// Throws GraphError for what a body must not hold, after a line on stderr.
void check_bodies(const Graph& graph);
// Throws GraphError for a handle of the graph that no node uses.
void check_handles(const Graph& graph);

CUresult add_conditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                         CUDA_CONDITIONAL_NODE_PARAMS& parameters);

}  // namespace hpe::soft
