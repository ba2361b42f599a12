// SPDX-License-Identifier: MIT
// Stream capture (CUDA Driver API, "Stream Management", from cuStreamBeginCapture on): streams whose work becomes nodes
// of a graph instead of being done, and the calls that a capture forbids. What it becomes is written down by whoever
// begins the capture: graph_capture.cpp.
//
// One capture has the stream that began it and every stream that was led into it by waiting for an event of it. It
// begins, ends and is told what to capture under the order lock. It is shared by its streams and by events that were
// recorded in them. Threads: any, under that lock. Errors: exceptions of type Error (call.h).
#pragma once

#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/stream/operation.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

class Event;
struct ThreadState;

class Capture {
public:
    Capture() = default;
    virtual ~Capture() = default;
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    // What a call becomes, behind all that the stream has captured so far. With the order lock held. They throw when it
    // cannot be captured.
    virtual void add(Stream& stream, const OperationRef& operation) = 0;
    virtual void add_record(Stream& stream, const std::shared_ptr<Event>& event) = 0;
    virtual void add_wait(Stream& stream, const std::shared_ptr<Event>& event) = 0;
    virtual CUdeviceptr add_allocation(Stream& stream, const CUDA_MEM_ALLOC_NODE_PARAMS& wanted) = 0;
    virtual void add_free(Stream& stream, CUdeviceptr address) = 0;
    // It is over: what was captured is the application's, or nobody's. With the order lock held.
    virtual void finish(bool keep) = 0;

    unsigned long long id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ThreadState* thread = nullptr;  // that began it; only compared
    bool invalid = false, ended = false;
    Stream* origin = nullptr;
    std::vector<Stream*> streams;   // the origin included
    std::vector<GraphNode*> loose;  // the last nodes of streams that are gone
};

// With the order lock held:
// The stream begins the capture, behind those nodes.
void begin_capture(const std::shared_ptr<Capture>& capture, Stream& stream, std::vector<GraphNode*> behind);
void end_capture(const std::shared_ptr<Capture>& capture, bool keep);
// The capture that work given to the stream now belongs to; nullptr: none. Throws STREAM_CAPTURE_INVALIDATED, and
// STREAM_CAPTURE_IMPLICIT for the legacy stream while it would wait for a capture.
std::shared_ptr<Capture> capture_for_work(Stream& stream);
// Leads a stream into the capture of an event, behind the nodes that the event marks.
void join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& behind);
// What the stream captures next comes behind those nodes, too.
void add_to_tail(Stream& stream, const std::vector<GraphNode*>& nodes);
void invalidate(Capture& capture);
CUstreamCaptureStatus capture_status(const Stream& stream);  // throws STREAM_CAPTURE_IMPLICIT as above

// Without the lock:
void invalidate_capture_of(Stream& stream);  // if there is one
bool is_capturing(Stream& stream);
void leave_capture(Stream& stream);  // the stream ends

// Without the lock; these end captures that the call breaks, and throw then.
void forbid_while_capturing(const Context& context);  // for synchronising a whole context
void forbid_capturing(Stream& stream);                // for synchronising or querying a stream
void forbid_implicit_sync(Stream& stream);            // for synchronous calls through the legacy stream
void forbid_unsafe_call();                            // for calls that stream capture does not allow, like cuMemAlloc

}  // namespace hpe::soft
