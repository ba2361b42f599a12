// SPDX-License-Identifier: MIT
// The nodes of graphs: adding them, and reading and changing what they hold, in a graph or in an instantiated one.
#include "api.h"
#include "code.h"
#include "copy_params.h"
#include "node_params.h"

using namespace hpe::soft::cudart;

namespace {

using Nodes = const cudaGraphNode_t*;

// Describes something with describe(driver, description), then hands the description and the current context to work.
template <class Description, class Describe, class Work>
cudaError_t described(Describe&& describe, Work&& work) {
    return with_context([&](const Driver& d) {
        Description description;
        CUcontext context = nullptr;
        if (cudaError_t e = describe(d, description)) return e;
        if (CUresult r = d.cuCtxGetCurrent(&context)) return as_error(r);
        return as_error(work(d, description, context));
    });
}

template <class Work>
cudaError_t with_kernel(const cudaKernelNodeParams* p, Work&& work) {
    return described<CUDA_KERNEL_NODE_PARAMS>(
        [&](const Driver& d, auto& k) { return p == nullptr ? cudaErrorInvalidValue : describe_kernel(d, k, *p); },
        work);
}

template <class Work>
cudaError_t with_copy(const cudaMemcpy3DParms* p, Work&& work) {
    return described<CUDA_MEMCPY3D>(
        [&](const Driver& d, auto& c) { return p == nullptr ? cudaErrorInvalidValue : describe_3d(d, c, *p); }, work);
}

template <class Work>
cudaError_t with_linear(void* to, const void* from, size_t size, cudaMemcpyKind kind, Work&& work) {
    return described<CUDA_MEMCPY3D>([&](const Driver&, auto& c) { return describe_1d(c, to, from, size, kind); }, work);
}

template <class Work>
cudaError_t with_variable(const void* symbol, const void* other, size_t size, size_t offset, cudaMemcpyKind kind,
                          bool into, Work&& work) {
    return described<CUDA_MEMCPY3D>(
        [&](const Driver& d, auto& c) { return describe_variable_copy(d, c, symbol, other, size, offset, kind, into); },
        work);
}

template <class Work>
cudaError_t with_memset(const cudaMemsetParams* p, Work&& work) {
    return described<CUDA_MEMSET_NODE_PARAMS>(
        [&](const Driver&, auto& m) {
            if (p == nullptr) return cudaErrorInvalidValue;
            m = describe_memset(*p);
            return cudaSuccess;
        },
        work);
}

auto add_copy(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count) {
    return [=](const Driver& d, const CUDA_MEMCPY3D& c, CUcontext context) {
        return d.cuGraphAddMemcpyNode(node, graph, after, count, &c, context);
    };
}
auto set_copy(cudaGraphNode_t node) {
    return [=](const Driver& d, const CUDA_MEMCPY3D& c, CUcontext) { return d.cuGraphMemcpyNodeSetParams(node, &c); };
}
auto set_exec_copy(cudaGraphExec_t exec, cudaGraphNode_t node) {
    return [=](const Driver& d, const CUDA_MEMCPY3D& c, CUcontext context) {
        return d.cuGraphExecMemcpyNodeSetParams(exec, node, &c, context);
    };
}

}  // namespace

extern "C" {

// Kernels.
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                   const cudaKernelNodeParams* p) {
    return with_kernel(p, [&](const Driver& d, const auto& k, CUcontext) {
        return d.cuGraphAddKernelNode(node, graph, after, count, &k);
    });
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
    return with_kernel(
        p, [&](const Driver& d, const auto& k, CUcontext) { return d.cuGraphKernelNodeSetParams(node, &k); });
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* p) {
    return with_kernel(
        p, [&](const Driver& d, const auto& k, CUcontext) { return d.cuGraphExecKernelNodeSetParams(exec, node, &k); });
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* p) {
    return with_context([&](const Driver& d) {
        CUDA_KERNEL_NODE_PARAMS k{};
        if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult r = d.cuGraphKernelNodeGetParams(node, &k)) return r;
        p->func = k.kern != nullptr ? host_function(k.kern) : static_cast<void*>(k.func);
        p->gridDim = {k.gridDimX, k.gridDimY, k.gridDimZ};
        p->blockDim = {k.blockDimX, k.blockDimY, k.blockDimZ};
        p->sharedMemBytes = k.sharedMemBytes;
        p->kernelParams = k.kernelParams;
        p->extra = k.extra;
        return CUDA_SUCCESS;
    });
}
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
    return with_context([&](const Driver& d) { return d.cuGraphKernelNodeCopyAttributes(to, from); });
}
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            cudaLaunchAttributeValue* value) {
    return with_context([&](const Driver& d) {
        return d.cuGraphKernelNodeGetAttribute(node, static_cast<CUkernelNodeAttrID>(attribute),
                                               reinterpret_cast<CUkernelNodeAttrValue*>(value));
    });
}
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            const cudaLaunchAttributeValue* value) {
    return with_context([&](const Driver& d) {
        return d.cuGraphKernelNodeSetAttribute(node, static_cast<CUkernelNodeAttrID>(attribute),
                                               reinterpret_cast<const CUkernelNodeAttrValue*>(value));
    });
}

// Copies.
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                   const cudaMemcpy3DParms* p) {
    return with_copy(p, add_copy(node, graph, after, count));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count, void* to,
                                     const void* from, size_t size, cudaMemcpyKind kind) {
    if (size == 0) return record(cudaErrorInvalidValue);
    return with_linear(to, from, size, kind, add_copy(node, graph, after, count));
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                           const void* symbol, const void* from, size_t size, size_t offset,
                                           cudaMemcpyKind kind) {
    return with_variable(symbol, from, size, offset, kind, true, add_copy(node, graph, after, count));
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                             void* to, const void* symbol, size_t size, size_t offset,
                                             cudaMemcpyKind kind) {
    return with_variable(symbol, to, size, offset, kind, false, add_copy(node, graph, after, count));
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* p) {
    return with_copy(p, set_copy(node));
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from, size_t size,
                                           cudaMemcpyKind kind) {
    return with_linear(to, from, size, kind, set_copy(node));
}
cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol, const void* from,
                                                 size_t size, size_t offset, cudaMemcpyKind kind) {
    return with_variable(symbol, from, size, offset, kind, true, set_copy(node));
}
cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* to, const void* symbol, size_t size,
                                                   size_t offset, cudaMemcpyKind kind) {
    return with_variable(symbol, to, size, offset, kind, false, set_copy(node));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemcpy3DParms* p) {
    return with_copy(p, set_exec_copy(exec, node));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               size_t size, cudaMemcpyKind kind) {
    return with_linear(to, from, size, kind, set_exec_copy(exec, node));
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, const void* symbol,
                                                     const void* from, size_t size, size_t offset,
                                                     cudaMemcpyKind kind) {
    return with_variable(symbol, from, size, offset, kind, true, set_exec_copy(exec, node));
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                                       const void* symbol, size_t size, size_t offset,
                                                       cudaMemcpyKind kind) {
    return with_variable(symbol, to, size, offset, kind, false, set_exec_copy(exec, node));
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* p) {
    return with_context([&](const Driver& d) {
        CUDA_MEMCPY3D c{};
        if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult r = d.cuGraphMemcpyNodeGetParams(node, &c)) return r;
        describe_runtime(d, *p, c);
        return CUDA_SUCCESS;
    });
}

// Fills.
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                   const cudaMemsetParams* p) {
    return with_memset(p, [&](const Driver& d, const auto& m, CUcontext context) {
        return d.cuGraphAddMemsetNode(node, graph, after, count, &m, context);
    });
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* p) {
    return with_memset(
        p, [&](const Driver& d, const auto& m, CUcontext) { return d.cuGraphMemsetNodeSetParams(node, &m); });
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemsetParams* p) {
    return with_memset(p, [&](const Driver& d, const auto& m, CUcontext context) {
        return d.cuGraphExecMemsetNodeSetParams(exec, node, &m, context);
    });
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* p) {
    return with_context([&](const Driver& d) {
        CUDA_MEMSET_NODE_PARAMS m{};
        if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult r = d.cuGraphMemsetNodeGetParams(node, &m)) return r;
        *p = {reinterpret_cast<void*>(m.dst), m.pitch, m.value, m.elementSize, m.width, m.height};
        return CUDA_SUCCESS;
    });
}

// Host functions.
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                 const cudaHostNodeParams* p) {
    return with_context([&](const Driver& d) {
        return d.cuGraphAddHostNode(node, graph, after, count, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(p));
    });
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* p) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphHostNodeGetParams(node, reinterpret_cast<CUDA_HOST_NODE_PARAMS*>(p)); });
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* p) {
    return with_context([&](const Driver& d) {
        return d.cuGraphHostNodeSetParams(node, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(p));
    });
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaHostNodeParams* p) {
    return with_context([&](const Driver& d) {
        return d.cuGraphExecHostNodeSetParams(exec, node, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(p));
    });
}

// Graphs within graphs, and nodes that only order.
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                       cudaGraph_t child) {
    return with_context([&](const Driver& d) { return d.cuGraphAddChildGraphNode(node, graph, after, count, child); });
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* child) {
    return with_context([&](const Driver& d) { return d.cuGraphChildGraphNodeGetGraph(node, child); });
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
    return with_context([&](const Driver& d) { return d.cuGraphExecChildGraphNodeSetParams(exec, node, child); });
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count) {
    return with_context([&](const Driver& d) { return d.cuGraphAddEmptyNode(node, graph, after, count); });
}

// Events.
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                        cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphAddEventRecordNode(node, graph, after, count, event); });
}
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
    return with_context([&](const Driver& d) { return d.cuGraphEventRecordNodeGetEvent(node, event); });
}
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphEventRecordNodeSetEvent(node, event); });
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphExecEventRecordNodeSetEvent(exec, node, event); });
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                      cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphAddEventWaitNode(node, graph, after, count, event); });
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
    return with_context([&](const Driver& d) { return d.cuGraphEventWaitNodeGetEvent(node, event); });
}
cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphEventWaitNodeSetEvent(node, event); });
}
cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuGraphExecEventWaitNodeSetEvent(exec, node, event); });
}

// Conditions.
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned initial,
                                             unsigned flags) {
    return with_context([&](const Driver& d) {
        CUcontext context = nullptr;
        if (CUresult r = d.cuCtxGetCurrent(&context)) return r;
        static_assert(sizeof *handle == sizeof(CUgraphConditionalHandle));
        return d.cuGraphConditionalHandleCreate(reinterpret_cast<CUgraphConditionalHandle*>(handle), graph, context,
                                                initial, flags);
    });
}

// Allocations.
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                     cudaMemAllocNodeParams* p) {
    return with_context([&](const Driver& d) {
        return d.cuGraphAddMemAllocNode(node, graph, after, count, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(p));
    });
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* p) {
    return with_context([&](const Driver& d) {
        return d.cuGraphMemAllocNodeGetParams(node, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(p));
    });
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                    void* pointer) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphAddMemFreeNode(node, graph, after, count, device_pointer(pointer)); });
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphMemFreeNodeGetParams(node, static_cast<CUdeviceptr*>(pointer)); });
}

// Any kind of node.
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, const cudaGraphEdgeData* edges,
                             size_t count, cudaGraphNodeParams* p) {
    return described<CUgraphNodeParams>(
        [&](const Driver& d, auto& n) { return p == nullptr ? cudaErrorInvalidValue : describe_node(d, n, *p); },
        [&](const Driver& d, CUgraphNodeParams& n, CUcontext) {
            const CUresult r =
                d.cuGraphAddNode(node, graph, after, reinterpret_cast<const CUgraphEdgeData*>(edges), count, &n);
            // What comes back through the parameters.
            if (r != CUDA_SUCCESS) return r;
            if (p->type == cudaGraphNodeTypeMemAlloc) p->alloc.dptr = reinterpret_cast<void*>(n.alloc.dptr);
            if (p->type == cudaGraphNodeTypeGraph) p->graph.graph = n.graph.graph;
            if (p->type == cudaGraphNodeTypeConditional) p->conditional.phGraph_out = n.conditional.phGraph_out;
            return r;
        });
}
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* p) {
    return described<CUgraphNodeParams>(
        [&](const Driver& d, auto& n) { return p == nullptr ? cudaErrorInvalidValue : describe_node(d, n, *p); },
        [&](const Driver& d, CUgraphNodeParams& n, CUcontext) { return d.cuGraphNodeSetParams(node, &n); });
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* p) {
    return described<CUgraphNodeParams>(
        [&](const Driver& d, auto& n) { return p == nullptr ? cudaErrorInvalidValue : describe_node(d, n, *p); },
        [&](const Driver& d, CUgraphNodeParams& n, CUcontext) { return d.cuGraphExecNodeSetParams(exec, node, &n); });
}
}
