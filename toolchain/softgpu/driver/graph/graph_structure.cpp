// SPDX-License-Identifier: MIT
// Asking about and changing the structure of graphs, attributes of kernel nodes, objects that graphs keep alive.
#include <algorithm>
#include <atomic>
#include <cstdio>

#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph.h"
#include "toolchain/softgpu/driver/graph/graph_exec.h"
#include "toolchain/softgpu/driver/launch/launch.h"

namespace hpe::soft {
namespace {

using Edge = std::pair<GraphNode*, GraphNode*>;

// CUDA's way of returning lists: without an array only the number is told; with one, what is left of it becomes null.
template <class Fill>
void tell_list(std::size_t available, std::size_t* count, bool has_array, Fill fill) {
    require(count != nullptr);
    if (has_array)
        for (std::size_t i = 0; i < *count; ++i) fill(i);
    if (!has_array || *count > available) *count = available;
}

CUresult tell_nodes(const std::vector<GraphNode*>& found, CUgraphNode* nodes, std::size_t* count,
                    CUgraphEdgeData* edges = nullptr) {
    require(nodes != nullptr || edges == nullptr);
    tell_list(found.size(), count, nodes != nullptr, [&](std::size_t i) {
        nodes[i] = i < found.size() ? found[i]->handle() : nullptr;
        if (edges) edges[i] = {};
    });
    return CUDA_SUCCESS;
}

CUresult tell_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges, std::size_t* count) {
    require((from == nullptr) == (to == nullptr));
    const auto graph = graph_of(handle);
    std::vector<Edge> found;
    for (const auto& node : graph->nodes)
        for (GraphNode* after : node->after) found.emplace_back(node.get(), after);
    tell_list(found.size(), count, from != nullptr, [&](std::size_t i) {
        from[i] = i < found.size() ? found[i].first->handle() : nullptr;
        to[i] = i < found.size() ? found[i].second->handle() : nullptr;
        if (edges) edges[i] = {};
    });
    return CUDA_SUCCESS;
}

// The edges that the application names, all of this graph.
std::vector<Edge> edges_of(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    require((from != nullptr && to != nullptr) || count == 0);
    const auto graph = graph_of(handle);
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < count; ++i) {
        const auto a = node_of(from[i]), b = node_of(to[i]);
        require(a != b && graph->holds(*a) && graph->holds(*b));
        edges.emplace_back(a.get(), b.get());
    }
    return edges;
}

bool connected(const Edge& edge) {
    return std::find(edge.first->after.begin(), edge.first->after.end(), edge.second) != edge.first->after.end();
}

CUresult connect(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    const auto edges = edges_of(graph, from, to, count);
    for (const Edge& edge : edges) require(!connected(edge));
    for (const Edge& edge : edges) {
        require(!connected(edge));  // named twice
        edge.first->after.push_back(edge.second);
        edge.second->before.push_back(edge.first);
    }
    return CUDA_SUCCESS;
}

CUresult disconnect(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    const auto edges = edges_of(graph, from, to, count);
    require(edges.empty() || !graph_of(graph)->has_memory_nodes(), CUDA_ERROR_NOT_SUPPORTED);
    for (const Edge& edge : edges) require(connected(edge));
    for (const Edge& edge : edges) {
        std::erase(edge.first->after, edge.second);
        std::erase(edge.second->before, edge.first);
    }
    return CUDA_SUCCESS;
}

std::shared_ptr<GraphNode> kernel_node(CUgraphNode handle) {
    auto node = node_of(handle);
    require(node->type == CU_GRAPH_NODE_TYPE_KERNEL);
    return node;
}
const KernelOp& kernel_of(const GraphNode& node) { return get<KernelOp>(*node.operation); }

bool can_be_disabled(const GraphNode& node) {
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

const char* name_of(CUgraphNodeType type) {
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return "KERNEL";
        case CU_GRAPH_NODE_TYPE_MEMCPY: return "MEMCPY";
        case CU_GRAPH_NODE_TYPE_MEMSET: return "MEMSET";
        case CU_GRAPH_NODE_TYPE_HOST: return "HOST";
        case CU_GRAPH_NODE_TYPE_GRAPH: return "GRAPH";
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "EVENT_WAIT";
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "EVENT_RECORD";
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "BATCH_MEM_OP";
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return "MEM_ALLOC";
        case CU_GRAPH_NODE_TYPE_MEM_FREE: return "MEM_FREE";
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: return "CONDITIONAL";
        default: return "EMPTY";
    }
}

// Something of the application's that is destroyed when nothing refers to it any more.
struct UserObject {
    UserObject(void* its_data, CUhostFn its_destroy, unsigned count)
        : data(its_data), destroy(its_destroy), references(count) {}
    void* const data;
    const CUhostFn destroy;
    std::atomic<unsigned> references;
};

Registry<UserObject>& user_objects() {
    static auto* all = new Registry<UserObject>;
    return *all;
}

std::shared_ptr<UserObject> user_object_of(CUuserObject handle) {
    auto object = user_objects().find(handle);
    require(object != nullptr);
    return object;
}

void release(const std::shared_ptr<UserObject>& object, unsigned count) {
    if (object->references.fetch_sub(count) != count) return;
    user_objects().remove(object.get());
    const InCallback inside;
    object->destroy(object->data);
}

}  // namespace

CUresult api::cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    std::vector<GraphNode*> found;
    for (const auto& node : graph_of(handle)->nodes) found.push_back(node.get());
    return tell_nodes(found, nodes, count);
}
CUresult api::cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    std::vector<GraphNode*> found;
    for (const auto& node : graph_of(handle)->nodes)
        if (node->before.empty()) found.push_back(node.get());
    return tell_nodes(found, nodes, count);
}
CUresult api::cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
    return tell_edges(graph, from, to, nullptr, count);
}
CUresult api::cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                                 size_t* count) {
    return tell_edges(graph, from, to, edges, count);
}
CUresult api::cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return tell_nodes(node_of(node)->before, nodes, count);
}
CUresult api::cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                            size_t* count) {
    return tell_nodes(node_of(node)->before, nodes, count, edges);
}
CUresult api::cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return tell_nodes(node_of(node)->after, nodes, count);
}
CUresult api::cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                              size_t* count) {
    return tell_nodes(node_of(node)->after, nodes, count, edges);
}
CUresult api::cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    require(type != nullptr);
    *type = node_of(node)->type;
    return CUDA_SUCCESS;
}

CUresult api::cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return connect(graph, from, to, count);
}
CUresult api::cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* edges, size_t count) {
    check_edges(edges, count);
    return connect(graph, from, to, count);
}
CUresult api::cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return disconnect(graph, from, to, count);
}
CUresult api::cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData* edges, size_t count) {
    check_edges(edges, count);
    return disconnect(graph, from, to, count);
}

CUresult api::cuGraphDestroyNode(CUgraphNode handle) {
    const auto node = node_of(handle);
    require(!node->graph->capturing);
    require(!node->graph->has_memory_nodes(), CUDA_ERROR_NOT_SUPPORTED);
    node->graph->remove(*node);
    return CUDA_SUCCESS;
}

CUresult api::cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
    require(out != nullptr);
    const auto wanted = node_of(original);
    for (const auto& node : graph_of(clone)->nodes)
        if (node->origin == wanted) {
            *out = node->handle();
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuGraphNodeSetEnabled(CUgraphExec exec_handle, CUgraphNode handle, unsigned enabled) {
    const auto exec = exec_of(exec_handle);
    GraphNode& node = exec->image_of(handle);
    require(can_be_disabled(node));
    const std::lock_guard lock(driver().order);
    node.enabled = enabled != 0;
    return CUDA_SUCCESS;
}
CUresult api::cuGraphNodeGetEnabled(CUgraphExec exec_handle, CUgraphNode handle, unsigned* enabled) {
    require(enabled != nullptr);
    const auto exec = exec_of(exec_handle);
    const GraphNode& node = exec->image_of(handle);
    require(can_be_disabled(node));
    *enabled = node.enabled;
    return CUDA_SUCCESS;
}

CUresult api::cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
    require(path != nullptr);
    const auto graph = graph_of(handle);
    FILE* out = std::fopen(path, "w");
    require(out != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
    std::fputs("digraph graph_1 {\n", out);
    for (std::size_t i = 0; i < graph->nodes.size(); ++i)
        std::fprintf(out, "  \"%p\" [label=\"%zu %s\"];\n", static_cast<const void*>(graph->nodes[i].get()), i,
                     name_of(graph->nodes[i]->type));
    for (const auto& node : graph->nodes)
        for (const GraphNode* after : node->after)
            std::fprintf(out, "  \"%p\" -> \"%p\";\n", static_cast<const void*>(node.get()),
                         static_cast<const void*>(after));
    std::fputs("}\n", out);
    std::fclose(out);
    return CUDA_SUCCESS;
}

// Attributes of kernel nodes.
CUresult api::cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                            const CUkernelNodeAttrValue* value) {
    require(value != nullptr);
    const auto node = kernel_node(handle);
    switch (attribute) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: {
            KernelOp op = kernel_of(*node);
            op.cooperative = value->cooperative != 0;
            node->operation = make_operation(std::move(op));
            break;
        }
        // Hints about speed.
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            if (value->clusterDim.x <= 1 && value->clusterDim.y <= 1 && value->clusterDim.z <= 1) break;
            return not_supported("cuGraphKernelNodeSetAttribute with clusters of blocks");
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    node->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}
CUresult api::cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                            CUkernelNodeAttrValue* value) {
    require(value != nullptr);
    const auto node = kernel_node(handle);
    *value = {};
    if (const auto at = node->attributes.find(attribute); at != node->attributes.end()) *value = at->second;
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value->cooperative = kernel_of(*node).cooperative;
    return CUDA_SUCCESS;
}
CUresult api::cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
    const auto to = kernel_node(to_handle);
    const auto from = kernel_node(from_handle);
    to->attributes = from->attributes;
    KernelOp op = kernel_of(*to);
    op.cooperative = kernel_of(*from).cooperative;
    to->operation = make_operation(std::move(op));
    return CUDA_SUCCESS;
}

CUresult api::cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
    require(out != nullptr && destroy != nullptr && references > 0 && references <= 0x7fffffff);
    require(flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    auto object = std::make_shared<UserObject>(data, destroy, references);
    *out = reinterpret_cast<CUuserObject>(object.get());
    user_objects().add(std::move(object));
    return CUDA_SUCCESS;
}
CUresult api::cuUserObjectRetain(CUuserObject handle, unsigned count) {
    require(count > 0 && count <= 0x7fffffff);
    user_object_of(handle)->references += count;
    return CUDA_SUCCESS;
}
CUresult api::cuUserObjectRelease(CUuserObject handle, unsigned count) {
    const auto object = user_object_of(handle);
    require(count > 0 && count <= object->references);
    release(object, count);
    return CUDA_SUCCESS;
}

CUresult api::cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
    require(count > 0 && (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) == 0);
    const auto graph = graph_of(graph_handle);
    const auto object = user_object_of(handle);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) object->references += count;
    // One entry holds one reference; clones and instantiated graphs share it.
    for (unsigned i = 0; i < count; ++i)
        graph->user_objects.push_back(
            std::shared_ptr<void>(object.get(), [object](const void*) { release(object, 1); }));
    return CUDA_SUCCESS;
}
CUresult api::cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
    require(count > 0);
    const auto graph = graph_of(graph_handle);
    const auto object = user_object_of(handle);
    auto& held = graph->user_objects;
    const auto is_it = [&](const std::shared_ptr<void>& entry) { return entry.get() == object.get(); };
    require(static_cast<std::size_t>(std::count_if(held.begin(), held.end(), is_it)) >= count);
    for (unsigned i = 0; i < count; ++i) held.erase(std::find_if(held.begin(), held.end(), is_it));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
