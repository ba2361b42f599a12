// SPDX-License-Identifier: MIT
// Making conditional handles and nodes.
#include "toolchain/softgpu/driver/graph_conditional.h"

#include "toolchain/softgpu/driver/copy.h"
#include "toolchain/softgpu/driver/driver.h"
#include "toolchain/softgpu/driver/memory.h"

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

std::shared_ptr<ConditionalNode> ConditionalNode::clone(bool is_public) const {
    auto copy = std::make_shared<ConditionalNode>();
    copy->handle = handle;
    copy->type = type;
    for (const auto& body : bodies) {
        copy->bodies.push_back(body->clone(is_public));
        copy->bodies.back()->owned = true;
        copy->told.push_back(copy->bodies.back()->handle());
    }
    return copy;
}

bool ConditionalValues::set(CUgraphConditionalHandle handle, unsigned value) {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(handle);
    if (at == cells_.end()) return false;
    at->second.value->store(value);
    return true;
}

void ConditionalValues::add(const std::shared_ptr<const ConditionalHandle>& handle) {
    const std::lock_guard lock(mutex_);
    cells_[handle->number] = {handle, std::make_shared<std::atomic<unsigned>>(handle->initial)};
}

void ConditionalValues::also(const std::shared_ptr<const ConditionalHandle>& handle, CUgraphConditionalHandle known) {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(known);
    if (at == cells_.end()) return;
    const auto value = at->second.value;
    cells_[handle->number] = {handle, value};
    at->second.handle = handle;  // whose initial value counts from now on
}

std::shared_ptr<std::atomic<unsigned>> ConditionalValues::value(CUgraphConditionalHandle handle) const {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(handle);
    return at == cells_.end() ? nullptr : at->second.value;
}

void ConditionalValues::assign_initial() {
    const std::lock_guard lock(mutex_);
    for (auto& [number, cell] : cells_)
        if (cell.handle->assigns) cell.value->store(cell.handle->initial);
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
