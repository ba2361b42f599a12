// SPDX-License-Identifier: MIT
// Updates of instantiated graphs: another graph of the same form, whose operations they take over.
#include <algorithm>
#include <unordered_map>

#include "toolchain/softgpu/driver/copy/copy.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph_exec.h"
#include "toolchain/softgpu/driver/graph/graph_memory.h"
#include "toolchain/softgpu/driver/launch/launch.h"
#include "toolchain/softgpu/driver/module/module.h"

namespace hpe::soft {
namespace {

// Another piece of memory like it: from now on that one is allocated or freed.
bool same_form(const GraphAllocation& a, const GraphAllocation& b) {
    const auto same_access = [](const CUmemAccessDesc& x, const CUmemAccessDesc& y) {
        return x.location.id == y.location.id && x.flags == y.flags;
    };
    return &a.block->device == &b.block->device && a.parameters.bytesize == b.parameters.bytesize &&
           std::equal(a.access.begin(), a.access.end(), b.access.begin(), b.access.end(), same_access);
}

// May an instantiated graph's node do what `from` does?
CUgraphExecUpdateResult check_update(const GraphNode& to, const GraphNode& from) {
    if (to.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const auto &a = operation_of<KernelOp>(to), &b = operation_of<KernelOp>(from);
        if (&a.function->context != &b.function->context) return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        if (a.cooperative != b.cooperative) return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    if (to.context && from.context && to.context != from.context) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (to.allocation != from.allocation && !same_form(*to.allocation, *from.allocation))
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    if (to.conditional) {
        const ConditionalNode &a = *to.conditional, &b = *from.conditional;
        if (a.bodies.size() != b.bodies.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        if (a.type != b.type) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (to.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const auto &a = operation_of<CopyOp>(to), &b = operation_of<CopyOp>(from);
        const bool same_shape = a.width == b.width && a.height == b.height && a.depth == b.depth;
        if (!same_shape && !(a.height <= 1 && a.depth <= 1 && b.height <= 1 && b.depth <= 1))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Makes it so. With the order lock held.
void take_over(GraphNode& to, const GraphNode& from) {
    to.operation = from.operation;
    to.event = from.event;
    to.descriptor = from.descriptor;
    to.memory_operations = from.memory_operations;
    to.attributes = from.attributes;
    to.allocation = from.allocation;
}

struct Comparison {
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    const GraphNode *node = nullptr, *from = nullptr;
    std::vector<std::pair<GraphNode*, const GraphNode*>> pairs;
};

// Pairs nodes in order of creation, as two captures of the same work make them.
bool compare(const Graph& image, const Graph& graph, Comparison& out) {
    const auto differ = [&](CUgraphExecUpdateResult result, const GraphNode* node, const GraphNode* from = nullptr) {
        out.result = result;
        out.node = node;
        out.from = from;
        return false;
    };
    if (image.nodes.size() != graph.nodes.size()) return differ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
    std::unordered_map<const GraphNode*, const GraphNode*> twin;
    for (std::size_t i = 0; i < image.nodes.size(); ++i) twin[graph.nodes[i].get()] = image.nodes[i].get();
    for (std::size_t i = 0; i < image.nodes.size(); ++i) {
        GraphNode& to = *image.nodes[i];
        const GraphNode& from = *graph.nodes[i];
        if (to.type != from.type) return differ(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &from);
        if (to.before.size() != from.before.size()) return differ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &from);
        for (const GraphNode* before : from.before)
            if (std::find(to.before.begin(), to.before.end(), twin.at(before)) == to.before.end())
                return differ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &from, before);
        if (to.child && !compare(*to.child, *from.child, out)) return false;
        const auto result = check_update(to, from);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return differ(result, &from);
        for (std::size_t body = 0; to.conditional && body < to.conditional->bodies.size(); ++body)
            if (!compare(*to.conditional->bodies[body], *from.conditional->bodies[body], out)) return false;
        out.pairs.emplace_back(&to, &from);
    }
    return true;
}

Comparison update(const std::shared_ptr<GraphExec>& exec, const Graph& image, Graph& graph) {
    Comparison comparison;
    // Memory of graphs has one user.
    if (const auto user = graph.instance.lock(); user && user != exec && graph.has_memory_nodes()) {
        comparison.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        return comparison;
    }
    if (compare(image, graph, comparison)) {
        const std::lock_guard lock(driver().order);
        for (const auto& [to, from] : comparison.pairs) {
            take_over(*to, *from);
            if (to->conditional) exec->rename_conditional(*to->conditional, *from->conditional);
        }
        exec->collect_memory();
        if (graph.has_memory_nodes()) graph.instance = exec;
    }
    return comparison;
}

}  // namespace

CUresult api::cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    const auto exec = exec_of(handle);
    const Comparison comparison = update(exec, *exec->image, *graph_of(graph));
    CUgraphExecUpdateResultInfo ignored;
    if (!info) info = &ignored;
    info->result = comparison.result;
    info->errorNode = comparison.node ? comparison.node->handle() : nullptr;
    info->errorFromNode = comparison.from ? comparison.from->handle() : nullptr;
    return comparison.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}
CUresult api::cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* error_node,
                                CUgraphExecUpdateResult* result) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult code = api::cuGraphExecUpdate_v2(handle, graph, &info);
    if (error_node) *error_node = info.errorNode;
    if (result) *result = info.result;
    return code;
}

CUresult api::cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, CUgraph child) {
    const auto exec = exec_of(handle);
    const GraphNode& node = exec->image_of(node_handle);
    require(node.type == CU_GRAPH_NODE_TYPE_GRAPH);
    require(update(exec, *node.child, *graph_of(child)).result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
