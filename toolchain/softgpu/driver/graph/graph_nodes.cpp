// SPDX-License-Identifier: MIT
// The nodes of graphs: what they do, and reading and changing that in a graph or in an instantiated one.
#include <algorithm>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/copy/copy.h"
#include "toolchain/softgpu/driver/copy/memory_value.h"
#include "toolchain/softgpu/driver/copy/memset.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph_conditional.h"
#include "toolchain/softgpu/driver/graph/graph_describe.h"
#include "toolchain/softgpu/driver/graph/graph_exec.h"
#include "toolchain/softgpu/driver/launch/launch.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/module/library.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/event.h"
#include "toolchain/softgpu/driver/stream/host_function.h"

namespace hpe::soft {
namespace {

// What a node does, before it is one.
struct Content {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Context* context = nullptr;
    OperationRef operation;
    std::shared_ptr<Graph> child;
    std::shared_ptr<Event> event;
    std::optional<CUDA_MEMCPY3D> descriptor;
    std::vector<CUstreamBatchMemOpParams> memory_operations;
};

Context& context_or_current(CUcontext handle) {
    if (!handle) return current();
    Context& context = context_of(handle);
    context.check();
    return context;
}

// CUDA_KERNEL_NODE_PARAMS of every version begin alike; the later ones may name a library's kernel and a context.
template <class Params>
Content kernel_content(const Params* p, CUkernel library_kernel, CUcontext context_handle) {
    require(p != nullptr);
    const void* handle = p->func ? static_cast<const void*>(p->func) : static_cast<const void*>(library_kernel);
    require(handle != nullptr);
    std::shared_ptr<KernelFunction> function;
    if (const auto kernel = driver().kernels.find(handle))
        function = function_in(context_or_current(context_handle), *kernel);
    else
        function = function_of(p->func);
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_KERNEL;
    content.context = &function->context;
    content.operation = make_operation(kernel_operation(function, {p->gridDimX, p->gridDimY, p->gridDimZ},
                                                        {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes,
                                                        false, p->kernelParams, p->extra));
    return content;
}

Content copy_content(const CUDA_MEMCPY3D* p, CUcontext context) {
    require(p != nullptr);
    CopyOp op = copy_of(*p);
    check_ranges(op);
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    content.context = &context_or_current(context);
    content.operation = make_operation(std::move(op));
    content.descriptor = *p;
    return content;
}

// CUDA_MEMSET_NODE_PARAMS of every version begin alike.
template <class Params>
Content set_content(const Params* p, CUcontext context) {
    require(p != nullptr && (p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4));
    require(p->width > 0 && p->height > 0 && p->dst % p->elementSize == 0);
    require(p->width <= ~std::size_t{0} / 4 / p->elementSize);
    const std::size_t row = p->width * p->elementSize;
    std::uint64_t span = row;
    if (p->height > 1) {
        require(p->pitch >= row && p->pitch % p->elementSize == 0 && p->pitch <= ~std::size_t{0} / 4 / p->height);
        span += (p->height - 1) * p->pitch;
    }
    require(place_of(p->dst, span) != Place::Pageable);
    SetOp op;
    op.address = p->dst;
    op.pitch = p->pitch;
    op.value = p->value;
    op.element = p->elementSize;
    op.width = p->width;
    op.height = p->height;
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_MEMSET;
    content.context = &context_or_current(context);
    content.operation = make_operation(op);
    return content;
}

template <class Params>
Content host_content(const Params* p) {
    require(p != nullptr && p->fn != nullptr);
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_HOST;
    content.operation = make_operation(HostOp{p->fn, p->userData});
    return content;
}

Content child_content(CUgraph handle, bool move = false) {
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_GRAPH;
    content.child = graph_of(handle);
    if (move) {
        require(!content.child->owned && !content.child->capturing);
        require(!content.child->has_conditional_nodes(), CUDA_ERROR_NOT_SUPPORTED);
    } else {
        content.child = content.child->copy();
    }
    content.child->owned = true;
    return content;
}

Content event_content(CUgraphNodeType type, CUevent event) {
    require(event != nullptr);
    Content content;
    content.type = type;
    content.event = event_of(event);
    if (content.event->shared) fail(not_supported("a graph node for an interprocess event"));
    return content;
}

template <class Params>
Content memory_content(const Params* p) {
    require(p != nullptr);
    Content content;
    content.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    content.context = &context_or_current(p->ctx);
    content.operation = make_operation(value_operations(p->count, p->paramArray, p->flags));
    content.memory_operations.assign(p->paramArray, p->paramArray + p->count);
    return content;
}

Content content_of(const CUgraphNodeParams* p) {
    require(p != nullptr && p->reserved2 == 0);
    switch (p->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return kernel_content(&p->kernel, p->kernel.kern, p->kernel.ctx);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            require(p->memcpy.flags == 0);
            return copy_content(&p->memcpy.copyParams, p->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET: return set_content(&p->memset, p->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST: return host_content(&p->host);
        case CU_GRAPH_NODE_TYPE_GRAPH:
            require(p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ||
                    p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
            return child_content(p->graph.graph, p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
        case CU_GRAPH_NODE_TYPE_EMPTY: return {};
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return event_content(p->type, p->eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_content(p->type, p->eventRecord.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return memory_content(&p->memOp);
        // Made by functions of their own, and never changed.
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: fail(CUDA_ERROR_INVALID_VALUE);
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: fail(not_supported("cuGraphAddNode of external semaphores"));
        default: fail(CUDA_ERROR_INVALID_VALUE);
    }
}

void put(GraphNode& node, Content content) {
    node.context = content.context;
    node.operation = std::move(content.operation);
    node.event = std::move(content.event);
    node.descriptor = content.descriptor;
    node.memory_operations = std::move(content.memory_operations);
    if (content.child) node.child = std::move(content.child);
}

CUresult add(CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* dependencies, std::size_t count,
             const CUgraphEdgeData* edges, Content content) {
    require(out != nullptr);
    const auto graph = graph_of(graph_handle);
    check_edges(edges, count);
    const auto before = nodes_of(*graph, dependencies, count);
    GraphNode& node = graph->add(content.type, before);
    put(node, std::move(content));
    *out = node.handle();
    return CUDA_SUCCESS;
}

// Being cooperative is an attribute of the node, which new parameters do not change.
void keep_cooperative(const GraphNode& node, Content& content) {
    if (content.type != CU_GRAPH_NODE_TYPE_KERNEL || !operation_of<KernelOp>(node).cooperative) return;
    KernelOp op = get<KernelOp>(*content.operation);
    op.cooperative = true;
    content.operation = make_operation(std::move(op));
}

CUresult set(CUgraphNode handle, Content content) {
    const auto node = node_of(handle);
    require(node->type == content.type && node->type != CU_GRAPH_NODE_TYPE_GRAPH);
    keep_cooperative(*node, content);
    put(*node, std::move(content));
    return CUDA_SUCCESS;
}

bool is_line(const CopyOp& op) { return op.height <= 1 && op.depth <= 1; }

CUresult set_exec(CUgraphExec exec_handle, CUgraphNode handle, Content content) {
    const auto exec = exec_of(exec_handle);
    GraphNode& node = exec->image_of(handle);
    require(node.type == content.type && node.type != CU_GRAPH_NODE_TYPE_GRAPH);
    if (!content.context) content.context = node.context;
    require(node.context == content.context);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const auto &old_op = operation_of<CopyOp>(node), &new_op = get<CopyOp>(*content.operation);
        require(is_line(old_op) && is_line(new_op) && new_op.width > 0);
    }
    keep_cooperative(node, content);
    const std::lock_guard lock(driver().order);
    put(node, std::move(content));
    return CUDA_SUCCESS;
}

std::shared_ptr<GraphNode> node_of_type(CUgraphNode handle, CUgraphNodeType type) {
    auto node = node_of(handle);
    require(node->type == type);
    return node;
}

// The library's kernel that a function came from, if any.
CUkernel library_kernel_of(const KernelFunction& function) {
    if (!function.module || !function.module->library) return nullptr;
    for (const auto& kernel : function.module->library->kernels)
        if (kernel->name == function.name) return reinterpret_cast<CUkernel>(kernel.get());
    return nullptr;
}

template <class Params>
void tell_kernel(GraphNode& node, Params& p) {
    const KernelOp& op = operation_of<KernelOp>(node);
    p = {};
    p.func = reinterpret_cast<CUfunction>(op.function.get());
    p.gridDimX = op.grid.x;
    p.gridDimY = op.grid.y;
    p.gridDimZ = op.grid.z;
    p.blockDimX = op.block.x;
    p.blockDimY = op.block.y;
    p.blockDimZ = op.block.z;
    p.sharedMemBytes = op.dynamic_shared;
    node.parameter_pointers.clear();
    for (const Parameter& parameter : op.function->info().parameters)
        node.parameter_pointers.push_back(const_cast<std::byte*>(op.parameters.data()) + parameter.offset);
    p.kernelParams = node.parameter_pointers.data();
}

CUresult tell_event(CUgraphNode handle, CUgraphNodeType type, CUevent* out) {
    require(out != nullptr);
    *out = node_of_type(handle, type)->event->handle();
    return CUDA_SUCCESS;
}

constexpr auto waits = CU_GRAPH_NODE_TYPE_WAIT_EVENT, records = CU_GRAPH_NODE_TYPE_EVENT_RECORD;

}  // namespace

// Any kind.
CUresult api::cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* p) {
    require(p != nullptr);
    check_edges(edges, count);
    if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        static_assert(sizeof p->alloc == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
        return api::cuGraphAddMemAllocNode(node, graph, after, count,
                                           reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(&p->alloc));
    }
    if (p->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return api::cuGraphAddMemFreeNode(node, graph, after, count, p->free.dptr);
    if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return add_conditional(node, graph, after, count, p->conditional);
    const CUresult result = add(node, graph, after, count, edges, content_of(p));
    // The application is told the graph that the node has made its own.
    if (p->type == CU_GRAPH_NODE_TYPE_GRAPH) p->graph.graph = node_of(*node)->child->handle();
    return result;
}
CUresult api::cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                             CUgraphNodeParams* p) {
    return api::cuGraphAddNode_v2(node, graph, after, nullptr, count, p);
}
CUresult api::cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* p) { return set(node, content_of(p)); }
CUresult api::cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
    require(p != nullptr);
    if (p->type == CU_GRAPH_NODE_TYPE_GRAPH) return api::cuGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph);
    return set_exec(exec, node, content_of(p));
}

// Kernels.
CUresult api::cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS_v1* p) {
    return add(node, graph, after, count, nullptr, kernel_content(p, nullptr, nullptr));
}
CUresult api::cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    require(p != nullptr);
    return add(node, graph, after, count, nullptr, kernel_content(p, p->kern, p->ctx));
}
CUresult api::cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
    return set(node, kernel_content(p, nullptr, nullptr));
}
CUresult api::cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    require(p != nullptr);
    return set(node, kernel_content(p, p->kern, p->ctx));
}
CUresult api::cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
    return set_exec(exec, node, kernel_content(p, nullptr, nullptr));
}
CUresult api::cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    require(p != nullptr);
    return set_exec(exec, node, kernel_content(p, p->kern, p->ctx));
}
CUresult api::cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1* p) {
    require(p != nullptr);
    tell_kernel(*node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL), *p);
    return CUDA_SUCCESS;
}
CUresult api::cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2* p) {
    require(p != nullptr);
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    tell_kernel(*node, *p);
    KernelFunction& function = *operation_of<KernelOp>(*node).function;
    p->kern = library_kernel_of(function);
    if (p->kern) p->func = nullptr;
    p->ctx = function.context.handle();
    return CUDA_SUCCESS;
}

// Copies.
CUresult api::cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   const CUDA_MEMCPY3D* p, CUcontext context) {
    return add(node, graph, after, count, nullptr, copy_content(p, context));
}
CUresult api::cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* p) {
    require(p != nullptr);
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMCPY);
    *p = node->descriptor ? *node->descriptor : describe(operation_of<CopyOp>(*node));
    return CUDA_SUCCESS;
}
CUresult api::cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D* p) {
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMCPY);
    return set(handle, copy_content(p, node->context ? node->context->handle() : nullptr));
}
CUresult api::cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p,
                                             CUcontext context) {
    return set_exec(exec, node, copy_content(p, context));
}

// Memory set to a value.
CUresult api::cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   const CUDA_MEMSET_NODE_PARAMS_v1* p, CUcontext context) {
    return add(node, graph, after, count, nullptr, set_content(p, context));
}
CUresult api::cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS_v1* p) {
    require(p != nullptr);
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMSET);
    const SetOp& op = operation_of<SetOp>(*node);
    *p = {op.address, op.pitch, op.value, op.element, op.width, op.height};
    return CUDA_SUCCESS;
}
CUresult api::cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS_v1* p) {
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMSET);
    return set(handle, set_content(p, node->context ? node->context->handle() : nullptr));
}
CUresult api::cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1* p,
                                             CUcontext context) {
    return set_exec(exec, node, set_content(p, context));
}

// Functions of the application.
CUresult api::cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 const CUDA_HOST_NODE_PARAMS_v1* p) {
    return add(node, graph, after, count, nullptr, host_content(p));
}
CUresult api::cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS_v1* p) {
    require(p != nullptr);
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_HOST);
    *p = {operation_of<HostOp>(*node).function, operation_of<HostOp>(*node).data};
    return CUDA_SUCCESS;
}
CUresult api::cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS_v1* p) {
    return set(handle, host_content(p));
}
CUresult api::cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1* p) {
    return set_exec(exec, node, host_content(p));
}

// Nodes without an operation.
CUresult api::cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count) {
    return add(node, graph, after, count, nullptr, {});
}
CUresult api::cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                       CUgraph child) {
    return add(node, graph, after, count, nullptr, child_content(child));
}
CUresult api::cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
    require(out != nullptr);
    *out = node_of_type(handle, CU_GRAPH_NODE_TYPE_GRAPH)->child->handle();
    return CUDA_SUCCESS;
}

// Events.
CUresult api::cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                        CUevent event) {
    return add(node, graph, after, count, nullptr, event_content(records, event));
}
CUresult api::cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                      CUevent event) {
    return add(node, graph, after, count, nullptr, event_content(waits, event));
}
CUresult api::cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) { return tell_event(node, records, out); }
CUresult api::cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) { return tell_event(node, waits, out); }
CUresult api::cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set(node, event_content(records, event));
}
CUresult api::cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set(node, event_content(waits, event));
}
CUresult api::cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_exec(exec, node, event_content(records, event));
}
CUresult api::cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_exec(exec, node, event_content(waits, event));
}

// Memory values.
CUresult api::cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    return add(node, graph, after, count, nullptr, memory_content(p));
}
CUresult api::cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    require(p != nullptr);
    const auto node = node_of_type(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    if (node->memory_operations.empty()) node->memory_operations = describe(operation_of<ValueOps>(*node));
    *p = {node->context->handle(), static_cast<unsigned>(node->memory_operations.size()),
          node->memory_operations.data(), 0};
    return CUDA_SUCCESS;
}
CUresult api::cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    return set(node, memory_content(p));
}
CUresult api::cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    return set_exec(exec, node, memory_content(p));
}

}  // namespace hpe::soft
