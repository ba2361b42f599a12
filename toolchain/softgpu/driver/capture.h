// SPDX-License-Identifier: MIT
// Stream capture: streams whose work becomes nodes of a graph instead of being done.
//
// One capture has the stream that began it and every stream that was led into it by waiting for an event of it. It
// begins, ends and is told what to capture under the order lock.
//
// A capture is shared by its streams and gives its graph to whoever ends it. Threads: any, under that lock.
#pragma once

#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/graph.h"
#include "toolchain/softgpu/driver/operation.h"
#include "toolchain/softgpu/driver/stream.h"

namespace hpe::soft {

class Capture {
public:
    unsigned long long id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState* thread = nullptr;  // that began it; only compared
    std::shared_ptr<Graph> graph;
    bool own_graph = true;  // else the application gave the graph
    bool invalid = false, ended = false;
    Stream* origin = nullptr;
    std::vector<Stream*> streams;   // the origin included
    std::vector<GraphNode*> loose;  // the last nodes of streams that are gone
};

// Makes a captured node of the operation when the stream is being captured. With the order lock held. Throws when the
// capture forbids it.
bool capture_operation(Stream& stream, const OperationRef& operation);

// The capture that work given to the stream now belongs to; nullptr: none. With the order lock held. Throws
// STREAM_CAPTURE_INVALIDATED, and STREAM_CAPTURE_IMPLICIT for the legacy stream while it would wait for a capture.
std::shared_ptr<Capture> capture_for_work(Stream& stream);
// A node behind all that the stream has captured so far. With the order lock held.
GraphNode& capture_node(Stream& stream, CUgraphNodeType type);
// Leads a stream into the capture of an event, behind the nodes that the event marks. With the order lock held.
void join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& behind);
void invalidate(Capture& capture);  // with the order lock held

// The same without the lock.
void invalidate_capture_of(Stream& stream);  // if there is one
bool is_capturing(Stream& stream);
void leave_capture(Stream& stream);         // the stream ends
void forbid_implicit_sync(Stream& stream);  // for synchronous calls through the legacy stream

}  // namespace hpe::soft
