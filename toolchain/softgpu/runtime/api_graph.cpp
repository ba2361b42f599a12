// SPDX-License-Identifier: MIT
// Graphs: making, taking apart, instantiating and launching them. What the nodes hold is in api_graph_nodes.cpp.
#include "api.h"

using namespace hpe::soft::cudart;

static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));

namespace {

CUgraphEdgeData* driver_edges(cudaGraphEdgeData* edges) { return reinterpret_cast<CUgraphEdgeData*>(edges); }
const CUgraphEdgeData* driver_edges(const cudaGraphEdgeData* edges) {
    return reinterpret_cast<const CUgraphEdgeData*>(edges);
}

}  // namespace

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuGraphCreate(graph, flags); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return with_context([&](const Driver& d) { return d.cuGraphDestroy(graph); });
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t original) {
    return with_context([&](const Driver& d) { return d.cuGraphClone(clone, original); });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original, cudaGraph_t clone) {
    return with_context([&](const Driver& d) { return d.cuGraphNodeFindInClone(node, original, clone); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return with_context([&](const Driver& d) { return d.cuGraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return with_context([&](const Driver& d) { return d.cuGraphGetRootNodes(graph, nodes, count); });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                              size_t* count) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphGetEdges(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies, cudaGraphEdgeData* edges,
                                         size_t* count) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphNodeGetDependencies(node, dependencies, driver_edges(edges), count); });
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* dependents, cudaGraphEdgeData* edges,
                                           size_t* count) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphNodeGetDependentNodes(node, dependents, driver_edges(edges), count); });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* edges, size_t count) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphAddDependencies(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData* edges, size_t count) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphRemoveDependencies(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    return with_context([&](const Driver& d) { return d.cuGraphDestroyNode(node); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuGraphDebugDotPrint(graph, path, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    return with_context([&](const Driver& d) { return d.cuGraphInstantiateWithFlags(exec, graph, flags); });
}

// The form with an error node and a log buffer is an inline function over this one since CUDA 12.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
    return with_context(
        [&](const Driver& d) { return d.cuGraphExecGetFlags(exec, reinterpret_cast<cuuint64_t*>(flags)); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return with_context([&](const Driver& d) { return d.cuGraphExecDestroy(exec); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    return with_context([&](const Driver& d) {
        return d.cuGraphExecUpdate(exec, graph, reinterpret_cast<CUgraphExecUpdateResultInfo*>(info));
    });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled) {
    return with_context([&](const Driver& d) { return d.cuGraphNodeSetEnabled(exec, node, enabled); });
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* enabled) {
    return with_context([&](const Driver& d) { return d.cuGraphNodeGetEnabled(exec, node, enabled); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned count,
                                 unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuUserObjectCreate(object, pointer, destroy, count, flags); });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    return with_context([&](const Driver& d) { return d.cuUserObjectRetain(object, count); });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    return with_context([&](const Driver& d) { return d.cuUserObjectRelease(object, count); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuGraphRetainUserObject(graph, object, count, flags); });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    return with_context([&](const Driver& d) { return d.cuGraphReleaseUserObject(graph, object, count); });
}
}

HPE_BOTH_FLAVOURS(cudaGraphInstantiateWithParams, ptsz,
                  (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams* params),
                  (exec, graph, params)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuGraphInstantiateWithParams(exec, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(params));
    });
}

HPE_BOTH_FLAVOURS(cudaGraphLaunch, ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuGraphLaunch(exec, stream); });
}

HPE_BOTH_FLAVOURS(cudaGraphUpload, ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuGraphUpload(exec, stream); });
}
