// SPDX-License-Identifier: MIT
// Stream capture into graphs: the nodes that captured work becomes (CUDA Driver API, "Stream Management", from
// cuStreamBeginCapture on).
//
// Threads: any, with the order lock held. Errors: exceptions of type Error (call.h).
#pragma once

#include "toolchain/softgpu/driver/graph/graph.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

// A node behind all that the stream has captured so far. The stream is being captured.
GraphNode& capture_node(Stream& stream, CUgraphNodeType type);

}  // namespace hpe::soft
