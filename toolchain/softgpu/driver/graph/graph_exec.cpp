// SPDX-License-Identifier: MIT
// Instantiation: from a graph to the order in which its nodes go to the engine.
#include "toolchain/softgpu/driver/graph/graph_exec.h"

#include <algorithm>
#include <unordered_map>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph_conditional.h"
#include "toolchain/softgpu/driver/launch/conditional_values.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

GraphExec::GraphExec(const Graph& graph, unsigned long long instantiate_flags)
    : flags(instantiate_flags), image(graph.clone(false)) {
    check_handles(graph);
    check_bodies(*image);
    remember_images(*image);
    collect_memory();
    for (const auto& entry : images_) {
        const GraphNode& node = *entry.second;
        if (!node.conditional) continue;
        if (!conditionals_) conditionals_ = std::make_shared<ConditionalValues>();
        conditionals_->add(node.conditional->handle);
    }
    lay_out(*image, {});
    join_chains();
}

void GraphExec::collect_memory() {
    allocated_.clear();
    freed_.clear();
    for (const auto& entry : images_) {
        const GraphNode& node = *entry.second;
        if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) allocated_.push_back(node.allocation);
        if (node.type == CU_GRAPH_NODE_TYPE_MEM_FREE) freed_.push_back(node.allocation);
    }
}

void GraphExec::remember_images(const Graph& graph) {
    for (const auto& node : graph.nodes) {
        images_.emplace(node->origin.get(), node.get());
        if (node->child) remember_images(*node->child);
        if (node->conditional)
            for (const auto& body : node->conditional->bodies) remember_images(*body);
    }
}

GraphNode& GraphExec::image_of(CUgraphNode handle) const {
    const auto at = images_.find(reinterpret_cast<const GraphNode*>(handle));
    require(at != images_.end());
    return *at->second;
}

// Gives every node a segment of its own behind those it depends on; a child graph's nodes stand in its place. Returns
// the segments that have nothing behind them.
std::vector<unsigned> GraphExec::lay_out(const Graph& graph, const std::vector<unsigned>& behind) {
    const auto order = graph.ordered();
    require(!order.empty() || graph.nodes.empty());
    if (order.empty()) return behind;
    std::unordered_map<const GraphNode*, std::vector<unsigned>> ends;
    std::vector<unsigned> open;
    for (GraphNode* node : order) {
        std::vector<unsigned> after;
        for (const GraphNode* before : node->before)
            after.insert(after.end(), ends[before].begin(), ends[before].end());
        if (node->before.empty()) after = behind;
        std::sort(after.begin(), after.end());
        after.erase(std::unique(after.begin(), after.end()), after.end());
        std::vector<unsigned>& end = ends[node];
        const auto add_segment = [&] {
            Segment segment;
            segment.nodes = {node};
            segment.after = after;
            segments_.push_back(std::move(segment));
            return static_cast<unsigned>(segments_.size() - 1);
        };
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            // One marker before many roots is cheaper than all of them waiting for many tasks.
            if (after.size() > 1) after = {add_segment()};
            end = lay_out(*node->child, after);
        } else if (node->type == CU_GRAPH_NODE_TYPE_EMPTY && after.size() <= 1) {
            end = after;
        } else {
            end = {add_segment()};
        }
        if (node->after.empty()) open.insert(open.end(), end.begin(), end.end());
    }
    return open;
}

// Joins what can only run one after the other.
void GraphExec::join_chains() {
    const auto marks = [](const Segment& segment) {
        const CUgraphNodeType type = segment.nodes.back()->type;
        return type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    };
    std::vector<unsigned> dependents(segments_.size()), place(segments_.size());
    for (const Segment& segment : segments_)
        for (const unsigned before : segment.after) ++dependents[before];
    std::vector<Segment> joined;
    for (unsigned i = 0; i < segments_.size(); ++i) {
        Segment& segment = segments_[i];
        if (segment.after.size() == 1 && dependents[segment.after[0]] == 1 && !marks(segment) &&
            !marks(segments_[segment.after[0]])) {
            place[i] = place[segment.after[0]];
            joined[place[i]].nodes.push_back(segment.nodes.front());
            continue;
        }
        Segment next;
        next.nodes = segment.nodes;
        for (const unsigned before : segment.after) {
            next.after.push_back(place[before]);
            joined[place[before]].last = false;
        }
        place[i] = static_cast<unsigned>(joined.size());
        joined.push_back(std::move(next));
    }
    segments_ = std::move(joined);
}

std::shared_ptr<GraphExec> exec_of(CUgraphExec handle) {
    auto exec = driver().graph_execs.find(handle);
    require(exec != nullptr);
    return exec;
}

namespace {

constexpr unsigned long long known_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                           CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                           CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
    require(out != nullptr);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return not_supported("cuGraphInstantiate for launches from the device");
    require((flags & ~known_flags) == 0);
    const auto graph = graph_of(handle);
    current();
    forbid_unsafe_call();
    require(!graph->capturing);
    require(!graph->is_unique() || graph->instance.expired(), CUDA_ERROR_NOT_SUPPORTED);
    auto exec = std::make_shared<GraphExec>(*graph, flags);
    graph->instance = exec;
    *out = exec->handle();
    driver().graph_execs.add(std::move(exec));
    return CUDA_SUCCESS;
}

CUresult instantiate_with_log(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, std::size_t size) {
    if (error_node) *error_node = nullptr;
    if (log && size) *log = 0;
    return instantiate(out, graph, 0);
}

}  // namespace

CUresult api::cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
    return instantiate(out, graph, flags);
}
CUresult api::cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, size_t size) {
    return instantiate_with_log(out, graph, error_node, log, size);
}
CUresult api::cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, size_t size) {
    return instantiate_with_log(out, graph, error_node, log, size);
}
CUresult api::cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    require(params != nullptr);
    params->hErrNode_out = nullptr;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) stream_of(params->hUploadStream);
    CUresult result = CUDA_SUCCESS;
    try {
        result = instantiate(out, graph, params->flags);
    } catch (const GraphError& error) {
        params->result_out = error.result;
        throw;
    }
    if (result == CUDA_SUCCESS) params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    if (result == CUDA_ERROR_NOT_SUPPORTED) params->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return result;
}

CUresult api::cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
    require(flags != nullptr);
    *flags = exec_of(handle)->flags;
    return CUDA_SUCCESS;
}

CUresult api::cuGraphExecDestroy(CUgraphExec handle) {
    auto exec = driver().graph_execs.remove(handle);
    require(exec != nullptr);
    const std::lock_guard lock(driver().order);
    const TaskRef running = exec->running();
    if (!running || running->done()) return CUDA_SUCCESS;
    // What the graph keeps alive for the application stays until the launch is done.
    driver().engine.submit(std::make_shared<Task>([kept = std::move(exec)] {}), std::span(&running, 1));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
