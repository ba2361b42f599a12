// SPDX-License-Identifier: MIT
// What captures make of the work of streams, and their driver functions.
#include "toolchain/softgpu/driver/graph/graph_capture.h"

#include <algorithm>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/copy/copy.h"
#include "toolchain/softgpu/driver/copy/memory_value.h"
#include "toolchain/softgpu/driver/copy/memset.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph_memory.h"
#include "toolchain/softgpu/driver/launch/launch.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/host_function.h"

namespace hpe::soft {
namespace {

CUgraphNodeType type_of(const Operation& operation) {
    if (holds<KernelOp>(operation)) return CU_GRAPH_NODE_TYPE_KERNEL;
    if (holds<CopyOp>(operation)) return CU_GRAPH_NODE_TYPE_MEMCPY;
    if (holds<SetOp>(operation)) return CU_GRAPH_NODE_TYPE_MEMSET;
    if (holds<HostOp>(operation)) return CU_GRAPH_NODE_TYPE_HOST;
    if (holds<ValueOps>(operation)) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

// Every capture is one.
class GraphCapture final : public Capture {
public:
    // Null: a graph of its own.
    explicit GraphCapture(std::shared_ptr<Graph> given) : own_graph_(!given), graph_(std::move(given)) {
        if (own_graph_) {
            graph_ = std::make_shared<Graph>(true);
            graph_->publish();
        }
        graph_->capturing = true;
    }
    Graph& graph() const { return *graph_; }

    void add(Stream& stream, const OperationRef& operation) override {
        if (holds<CallbackOp>(*operation)) {
            invalidate(*this);
            fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        capture_node(stream, type_of(*operation)).operation = operation;
    }
    void add_record(Stream& stream, const std::shared_ptr<Event>& event) override {
        capture_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD).event = event;
    }
    void add_wait(Stream& stream, const std::shared_ptr<Event>& event) override {
        capture_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT).event = event;
    }
    CUdeviceptr add_allocation(Stream& stream, const CUDA_MEM_ALLOC_NODE_PARAMS& wanted) override {
        auto allocation = allocate_in(*graph_, stream.capture_tail, stream.context, wanted);
        const CUdeviceptr address = allocation->parameters.dptr;
        capture_node(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC).allocation = std::move(allocation);
        return address;
    }
    void add_free(Stream& stream, CUdeviceptr address) override {
        auto allocation = freed_in(*graph_, address);
        set_freed(capture_node(stream, CU_GRAPH_NODE_TYPE_MEM_FREE), *graph_, std::move(allocation));
    }
    void finish(bool keep) override {
        graph_->capturing = false;
        if (!keep && own_graph_) graph_->forget();
        graph_.reset();
    }

private:
    const bool own_graph_;  // else the application gave the graph
    std::shared_ptr<Graph> graph_;
};

Graph& graph_of_capture(const Capture& capture) { return static_cast<const GraphCapture&>(capture).graph(); }

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

}  // namespace

GraphNode& capture_node(Stream& stream, CUgraphNodeType type) {
    GraphNode& node = graph_of_capture(*stream.capture).add(type, stream.capture_tail);
    node.context = &stream.context;
    stream.capture_tail = {&node};
    return node;
}

namespace {

CUresult begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               std::vector<GraphNode*> behind) {
    require(mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    const auto stream = stream_of(handle);
    require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const std::lock_guard lock(driver().order);
    require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<GraphCapture>(std::move(graph));
    capture->mode = mode;
    capture->thread = &thread_state();
    begin_capture(capture, *stream, std::move(behind));
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
    if (result == CUDA_SUCCESS && phGraph) *phGraph = graph_of_capture(*capture).handle();
    // A graph of the capture's own that nobody is told is lost.
    end_capture(capture, result == CUDA_SUCCESS && phGraph != nullptr);
    return result;
}

namespace {

// Valid until the thread's next question, which is longer than CUDA promises.
thread_local std::vector<CUgraphNode>* told = nullptr;

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
    require(status != nullptr);
    const auto stream = stream_of(handle);
    const std::lock_guard lock(driver().order);
    *status = capture_status(*stream);
    if (edges) *edges = nullptr;  // all of them are full dependencies
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    const Capture& capture = *stream->capture;
    if (id) *id = capture.id;
    if (graph) *graph = graph_of_capture(capture).handle();
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
    const auto nodes = nodes_of(graph_of_capture(*stream->capture), dependencies, count);
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
