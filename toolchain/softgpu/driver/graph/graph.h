// SPDX-License-Identifier: MIT
// Graphs: nodes and their order, made by hand or by stream capture (CUDA Driver API, "Graph Management"). What an
// instantiated graph runs: graph_exec.h.
//
// A graph is the registry's, a capture's, or a node's that holds it. Like CUDA's, it is not for use by several threads
// at once; only what launches read is guarded by the order lock. Errors: exceptions of type Error (call.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Event;
class Graph;
class GraphExec;
struct ConditionalHandle;
struct GraphAllocation;

// What a conditional node stands for.
struct ConditionalNode {
    std::shared_ptr<const ConditionalHandle> handle;
    CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<CUgraph> told;  // the bodies, as the application's array

    std::shared_ptr<ConditionalNode> clone(bool is_public) const;
};

struct GraphNode {
    CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(this)); }

    Graph* graph = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Context* context = nullptr;  // where the operation runs; null: does not matter
    OperationRef operation;      // replaced, never changed: launches in flight may hold it
    std::shared_ptr<Graph> child;
    std::shared_ptr<Event> event;
    std::shared_ptr<GraphAllocation> allocation;  // of nodes that allocate or free
    std::shared_ptr<ConditionalNode> conditional;
    bool enabled = true;  // in an instantiated graph
    std::vector<GraphNode*> before, after;
    std::shared_ptr<GraphNode> origin;  // in a clone: the node it was made from

    // What the application described the operation with, for the question what it was.
    std::optional<CUDA_MEMCPY3D> descriptor;
    std::vector<CUstreamBatchMemOpParams> memory_operations;
    std::map<CUlaunchAttributeID, CUlaunchAttributeValue> attributes;
    std::vector<void*> parameter_pointers;
};

// Why a graph is not instantiated.
struct GraphError : Error {
    CUgraphInstantiateResult result;
};

class Graph : public std::enable_shared_from_this<Graph> {
public:
    // A public graph's nodes have handles that the application may use.
    explicit Graph(bool is_public);
    CUgraph handle() const { return reinterpret_cast<CUgraph>(const_cast<Graph*>(this)); }

    GraphNode& add(CUgraphNodeType type, std::span<GraphNode* const> before);
    void remove(GraphNode& node);
    std::shared_ptr<Graph> clone(bool is_public) const;
    // A clone for the application. Throws NOT_SUPPORTED for a graph of which there is only one.
    std::shared_ptr<Graph> copy() const;
    // In child graphs, too.
    bool has_memory_nodes() const;
    bool has_conditional_nodes() const;  // or handles for some
    bool is_unique() const;              // either: no copies, and one instance at a time
    void publish();                      // the graph and its nodes get handles
    void forget();                       // takes all handles away
    bool holds(const GraphNode& node) const { return node.graph == this; }
    // Nodes, each behind all it depends on. Empty although there are nodes: they wait for each other in a circle.
    std::vector<GraphNode*> ordered() const;

    std::vector<std::shared_ptr<GraphNode>> nodes;  // in order of creation
    bool capturing = false;                         // belongs to a stream capture for now
    bool owned = false;                             // inside of a child graph node
    std::vector<std::shared_ptr<void>> user_objects;
    std::vector<std::shared_ptr<ConditionalHandle>> conditional_handles;  // made for this graph
    std::weak_ptr<GraphExec> instance;                                    // the last one
    const unsigned long long id;                                          // never reused

private:
    bool is_public_;
};

// What a node of that kind does.
template <class Op>
const Op& operation_of(const GraphNode& node) {
    return get<Op>(*node.operation);
}

// By handle; throw INVALID_VALUE.
std::shared_ptr<Graph> graph_of(CUgraph handle);
std::shared_ptr<GraphNode> node_of(CUgraphNode handle);
// Dependencies given by the application: different nodes of this graph.
std::vector<GraphNode*> nodes_of(const Graph& graph, const CUgraphNode* handles, std::size_t count);
// Only full dependencies are supported.
void check_edges(const CUgraphEdgeData* edges, std::size_t count);

}  // namespace hpe::soft
