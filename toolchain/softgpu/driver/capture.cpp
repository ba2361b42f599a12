// SPDX-License-Identifier: MIT
// Stream capture: its life, what it makes of operations, and what it forbids.
#include "toolchain/softgpu/driver/capture.h"

#include <algorithm>
#include <atomic>

#include "toolchain/softgpu/driver/copy.h"
#include "toolchain/softgpu/driver/driver.h"
#include "toolchain/softgpu/driver/host_function.h"
#include "toolchain/softgpu/driver/launch.h"
#include "toolchain/softgpu/driver/memory_value.h"
#include "toolchain/softgpu/driver/memset.h"

namespace hpe::soft {
namespace {

unsigned long long last_capture_id = 0;  // guarded by the order lock
// All that have begun and not ended. Guarded by the order lock; their number is read without it.
std::vector<std::shared_ptr<Capture>>& captures() {
    static auto* all = new std::vector<std::shared_ptr<Capture>>;
    return *all;
}
std::atomic<unsigned> capture_count{0};

void add_to_tail(Stream& stream, const std::vector<GraphNode*>& nodes) {
    for (GraphNode* node : nodes)
        if (std::find(stream.capture_tail.begin(), stream.capture_tail.end(), node) == stream.capture_tail.end())
            stream.capture_tail.push_back(node);
}

// Invalidates the captures of blocking streams of a context, for which its legacy stream would have to wait.
bool invalidate_blocking(const Context& context) {
    bool any = false;
    for (const auto& capture : captures())
        for (const Stream* stream : capture->streams)
            if (&stream->context == &context && stream->blocking()) {
                capture->invalid = true;
                any = true;
            }
    return any;
}

void release_streams(Capture& capture) {
    for (Stream* stream : capture.streams) {
        stream->capture.reset();
        stream->capture_tail.clear();
    }
    capture.streams.clear();
}

// Events may keep the record of a capture, but not its graph.
void end(const std::shared_ptr<Capture>& capture, bool keep_graph) {
    release_streams(*capture);
    capture->ended = true;
    capture->origin = nullptr;
    capture->graph->capturing = false;
    if (!keep_graph && capture->own_graph) capture->graph->forget();
    capture->graph.reset();
    std::erase(captures(), capture);
    capture_count = static_cast<unsigned>(captures().size());
}

// Is all that other streams captured before something in the origin's future?
bool all_joined(const Capture& capture) {
    std::vector<GraphNode*> open = capture.origin->capture_tail;
    std::vector<GraphNode*> seen = open;
    std::sort(seen.begin(), seen.end());
    while (!open.empty()) {
        GraphNode* node = open.back();
        open.pop_back();
        for (GraphNode* before : node->before) {
            const auto at = std::lower_bound(seen.begin(), seen.end(), before);
            if (at != seen.end() && *at == before) continue;
            seen.insert(at, before);
            open.push_back(before);
        }
    }
    const auto joined = [&](const std::vector<GraphNode*>& tail) {
        return std::all_of(tail.begin(), tail.end(),
                           [&](GraphNode* node) { return std::binary_search(seen.begin(), seen.end(), node); });
    };
    return joined(capture.loose) && std::all_of(capture.streams.begin(), capture.streams.end(),
                                                [&](const Stream* stream) { return joined(stream->capture_tail); });
}

CUgraphNodeType type_of(const Operation& operation) {
    if (holds<KernelOp>(operation)) return CU_GRAPH_NODE_TYPE_KERNEL;
    if (holds<CopyOp>(operation)) return CU_GRAPH_NODE_TYPE_MEMCPY;
    if (holds<SetOp>(operation)) return CU_GRAPH_NODE_TYPE_MEMSET;
    if (holds<HostOp>(operation)) return CU_GRAPH_NODE_TYPE_HOST;
    if (holds<ValueOps>(operation)) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalid = true; }

std::shared_ptr<Capture> capture_for_work(Stream& stream) {
    if (capture_count == 0) return nullptr;
    if (!stream.capture) {
        if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
            fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return nullptr;
    }
    require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return stream.capture;
}

GraphNode& capture_node(Stream& stream, CUgraphNodeType type) {
    GraphNode& node = stream.capture->graph->add(type, stream.capture_tail);
    node.context = &stream.context;
    stream.capture_tail = {&node};
    return node;
}

bool capture_operation(Stream& stream, const OperationRef& operation) {
    const auto capture = capture_for_work(stream);
    if (!capture) return false;
    if (holds<CallbackOp>(*operation)) {
        invalidate(*capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    GraphNode& node = capture_node(stream, type_of(*operation));
    node.operation = operation;
    return true;
}

void join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& behind) {
    if (capture->ended) {
        if (stream.capture) invalidate(*stream.capture);
        fail(CUDA_ERROR_INVALID_VALUE);
    }
    require(!capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (stream.kind == Stream::Kind::Legacy) {
        invalidate(*capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream.capture && stream.capture != capture) {
        invalidate(*capture);
        invalidate(*stream.capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream.capture) {
        stream.capture = capture;
        stream.capture_tail.clear();
        capture->streams.push_back(&stream);
    }
    add_to_tail(stream, behind);
}

bool is_capturing(Stream& stream) {
    if (capture_count == 0) return false;
    const std::lock_guard lock(driver().order);
    return stream.capture != nullptr;
}

void invalidate_capture_of(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.capture) invalidate(*stream.capture);
}

void leave_capture(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    const auto capture = stream.capture;
    if (!capture) return;
    if (capture->origin == &stream) {
        invalidate(*capture);
        // Nobody can end it any more.
        end(capture, false);
        return;
    }
    // Its part stays; whether it was joined is asked at the end.
    std::erase(capture->streams, &stream);
    capture->loose.insert(capture->loose.end(), stream.capture_tail.begin(), stream.capture_tail.end());
    stream.capture.reset();
    stream.capture_tail.clear();
}

void forbid_implicit_sync(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void forbid_capturing(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.capture) {
        invalidate(*stream.capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void forbid_while_capturing(const Context& context) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    bool any = false;
    for (const auto& capture : captures())
        for (const Stream* stream : capture->streams)
            if (&stream->context == &context) {
                invalidate(*capture);
                any = true;
            }
    require(!any, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void forbid_unsafe_call() {
    if (capture_count == 0) return;
    const ThreadState& thread = thread_state();
    if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
    const std::lock_guard lock(driver().order);
    bool any = false;
    for (const auto& capture : captures()) {
        const bool forbids = capture->thread == &thread ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                                        : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                              thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbids) continue;
        invalidate(*capture);
        any = true;
    }
    require(!any, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

namespace {

CUresult begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               std::vector<GraphNode*> behind) {
    require(mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    const auto stream = stream_of(handle);
    require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const std::lock_guard lock(driver().order);
    require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<Capture>();
    capture->id = ++last_capture_id;
    capture->mode = mode;
    capture->thread = &thread_state();
    capture->own_graph = !graph;
    if (!graph) {
        graph = std::make_shared<Graph>(true);
        graph->publish();
    }
    graph->capturing = true;
    capture->graph = std::move(graph);
    capture->origin = stream.get();
    capture->streams = {stream.get()};
    stream->capture_tail = std::move(behind);
    stream->capture = capture;
    captures().push_back(std::move(capture));
    capture_count = static_cast<unsigned>(captures().size());
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin(stream, mode, nullptr, {});
}
CUresult api::cuStreamBeginCapture(CUstream stream) {
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
CUresult api::cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph_handle, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
    auto graph = graph_of(graph_handle);
    require(!graph->capturing, CUDA_ERROR_ILLEGAL_STATE);
    check_edges(edges, count);
    auto behind = nodes_of(*graph, dependencies, count);
    return begin(stream, mode, std::move(graph), std::move(behind));
}

CUresult api::cuStreamEndCapture(CUstream handle, CUgraph* phGraph) {
    const auto stream = stream_of(handle);
    const std::lock_guard lock(driver().order);
    const auto capture = stream->capture;
    if (phGraph) *phGraph = nullptr;
    require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream.get()) {
        invalidate(*capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    CUresult result = CUDA_SUCCESS;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_state())
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (!all_joined(*capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    // Whatever the result, the capture is over.
    if (result == CUDA_SUCCESS && phGraph) *phGraph = capture->graph->handle();
    // A graph of the capture's own that nobody is told is lost.
    end(capture, result == CUDA_SUCCESS && phGraph != nullptr);
    return result;
}

namespace {

CUstreamCaptureStatus status_of(const Stream& stream) {
    if (!stream.capture) {
        if (stream.kind == Stream::Kind::Legacy)
            for (const auto& capture : captures())
                for (const Stream* other : capture->streams)
                    if (&other->context == &stream.context && other->blocking())
                        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Valid until the thread's next question, which is longer than CUDA promises.
thread_local std::vector<CUgraphNode>* told = nullptr;

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
    require(status != nullptr);
    const auto stream = stream_of(handle);
    const std::lock_guard lock(driver().order);
    *status = status_of(*stream);
    if (edges) *edges = nullptr;  // all of them are full dependencies
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    const Capture& capture = *stream->capture;
    if (id) *id = capture.id;
    if (graph) *graph = capture.graph->handle();
    if (dependencies) {
        if (!told) told = new std::vector<CUgraphNode>;
        told->clear();
        for (const GraphNode* node : stream->capture_tail) told->push_back(node->handle());
        *dependencies = told->data();
    }
    if (count) *count = stream->capture_tail.size();
    return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                             size_t count, unsigned flags) {
    require(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES || flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    check_edges(edges, count);
    const auto stream = stream_of(handle);
    const std::lock_guard lock(driver().order);
    require(stream->capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    require(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    const auto nodes = nodes_of(*stream->capture->graph, dependencies, count);
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
    add_to_tail(*stream, nodes);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return info(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
CUresult api::cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult api::cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, size_t* count) {
    return info(stream, status, id, graph, dependencies, nullptr, count);
}
CUresult api::cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                                        size_t* count) {
    return info(stream, status, id, graph, dependencies, edges, count);
}
CUresult api::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                                unsigned flags) {
    return update_dependencies(stream, dependencies, nullptr, count, flags);
}
CUresult api::cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies,
                                                   const CUgraphEdgeData* edges, size_t count, unsigned flags) {
    return update_dependencies(stream, dependencies, edges, count, flags);
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    require(mode != nullptr && *mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    std::swap(*mode, thread_state().capture_mode);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
