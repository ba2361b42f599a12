// SPDX-License-Identifier: MIT
// Making conditional handles and nodes.
#include "toolchain/softgpu/driver/graph/graph_conditional.h"

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/copy/copy.h"
#include "toolchain/softgpu/driver/launch/conditional_values.h"
#include "toolchain/softgpu/driver/memory/memory.h"

namespace hpe::soft {
namespace {

struct Handles {
    std::mutex mutex;
    CUgraphConditionalHandle last = 0;
    std::map<CUgraphConditionalHandle, std::weak_ptr<ConditionalHandle>> live;  // a graph's, as long as that lives
};
Handles& handles() {
    static auto* all = new Handles;
    return *all;
}

// Memory that the device does not reach by itself is copied with the host's help, which a body does not have.
bool copies_pageable_memory(const GraphNode& node) {
    const auto& op = get<CopyOp>(*node.operation);
    return op.bytes() > 0 && (place_of(op.to.address, op.span(op.to)) == Place::Pageable ||
                              place_of(op.from.address, op.span(op.from)) == Place::Pageable);
}

void check_body(const Graph& body) {
    for (const auto& node : body.nodes) {
        switch (node->type) {
            case CU_GRAPH_NODE_TYPE_KERNEL:
            case CU_GRAPH_NODE_TYPE_EMPTY:
            case CU_GRAPH_NODE_TYPE_MEMSET: break;
            case CU_GRAPH_NODE_TYPE_MEMCPY:
                if (!copies_pageable_memory(*node)) break;
                complain("the body of a conditional node copies from or to pageable memory");
                throw GraphError{{CUDA_ERROR_INVALID_VALUE}, CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED};
            case CU_GRAPH_NODE_TYPE_GRAPH: check_body(*node->child); break;
            case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                for (const auto& inner : node->conditional->bodies) check_body(*inner);
                break;
            default:
                complain("the body of a conditional node holds a node that CUDA does not allow there");
                throw GraphError{{CUDA_ERROR_INVALID_VALUE}, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED};
        }
    }
    require(body.nodes.empty() || !body.ordered().empty());
}

}  // namespace

void check_bodies(const Graph& graph) {
    for (const auto& node : graph.nodes) {
        if (node->child) check_bodies(*node->child);
        if (node->conditional)
            for (const auto& body : node->conditional->bodies) check_body(*body);
    }
}

void check_handles(const Graph& graph) {
    const std::lock_guard lock(handles().mutex);
    for (const auto& handle : graph.conditional_handles)
        if (handle->node.expired())
            throw GraphError{{CUDA_ERROR_INVALID_VALUE}, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED};
}

CUresult api::cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph graph_handle, CUcontext context,
                                             unsigned initial, unsigned flags) {
    require(out != nullptr && (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT)) == 0);
    const auto graph = graph_of(graph_handle);
    auto handle = std::make_shared<ConditionalHandle>();
    handle->context = context ? &context_of(context) : &current();
    handle->context->check();
    handle->initial = initial;
    handle->assigns = flags != 0;
    const std::lock_guard lock(handles().mutex);
    std::erase_if(handles().live, [](const auto& entry) { return entry.second.expired(); });
    handle->number = ++handles().last;
    handles().live.emplace(handle->number, handle);
    *out = handle->number;
    graph->conditional_handles.push_back(std::move(handle));
    return CUDA_SUCCESS;
}

CUresult add_conditional(CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* after, std::size_t count,
                         CUDA_CONDITIONAL_NODE_PARAMS& p) {
    require(out != nullptr);
    const auto graph = graph_of(graph_handle);
    const auto before = nodes_of(*graph, after, count);
    switch (p.type) {
        case CU_GRAPH_COND_TYPE_IF: require(p.size == 1 || p.size == 2); break;
        case CU_GRAPH_COND_TYPE_WHILE: require(p.size == 1); break;
        case CU_GRAPH_COND_TYPE_SWITCH: require(p.size > 0); break;
        default: fail(CUDA_ERROR_INVALID_VALUE);
    }
    auto conditional = std::make_shared<ConditionalNode>();
    {
        const std::lock_guard lock(handles().mutex);
        const auto at = handles().live.find(p.handle);
        const auto handle = at == handles().live.end() ? nullptr : at->second.lock();
        require(handle && !handle->used && (!p.ctx || &context_of(p.ctx) == handle->context));
        handle->context->check();
        handle->used = true;
        handle->node = conditional;
        conditional->handle = handle;
    }
    conditional->type = p.type;
    for (unsigned i = 0; i < p.size; ++i) {
        auto body = std::make_shared<Graph>(true);
        body->publish();
        body->owned = true;
        conditional->told.push_back(body->handle());
        conditional->bodies.push_back(std::move(body));
    }
    p.phGraph_out = conditional->told.data();
    GraphNode& node = graph->add(CU_GRAPH_NODE_TYPE_CONDITIONAL, before);
    node.context = conditional->handle->context;
    node.conditional = std::move(conditional);
    *out = node.handle();
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
