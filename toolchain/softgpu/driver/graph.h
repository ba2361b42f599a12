// SPDX-License-Identifier: MIT
// Graphs: nodes and their order, made by hand or by stream capture, and what an instantiated graph runs.
//
// Like CUDA's, a graph is not for use by several threads at once; only what launches read is guarded by the order lock.
//
// Errors: exceptions of type Error (call.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "toolchain/softgpu/driver/context.h"
#include "toolchain/softgpu/driver/operation.h"

namespace hpe::soft {

class Event;
class Graph;
class Stream;
class ConditionalValues;
struct ConditionalHandle;
struct ConditionalNode;
struct GraphAllocation;
class GraphBlock;
struct Step;

struct GraphNode {
    CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(this)); }

    Graph* graph = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Context* context = nullptr;                  // where the operation runs; null: does not matter
    OperationRef operation;  // replaced, never changed: launches in flight may hold it
    std::shared_ptr<Graph> child;
    std::shared_ptr<Event> event;
    std::shared_ptr<GraphAllocation> allocation;   // of nodes that allocate or free
    std::shared_ptr<ConditionalNode> conditional;  // graph_conditional.h
    bool enabled = true;                           // in an instantiated graph
    std::vector<GraphNode*> before, after;
    std::shared_ptr<GraphNode> origin;  // in a clone: the node it was made from

    // What the application described the operation with, for the question what it was.
    std::optional<CUDA_MEMCPY3D> descriptor;
    std::vector<CUstreamBatchMemOpParams> memory_operations;
    std::map<CUlaunchAttributeID, CUlaunchAttributeValue> attributes;
    std::vector<void*> parameter_pointers;
};

class GraphExec;

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

// An instantiated graph: an image of the graph as it was, and the order in which to give its nodes to the engine.
class GraphExec {
public:
    // Throws INVALID_VALUE for circles.
    GraphExec(const Graph& graph, unsigned long long instantiate_flags);
    CUgraphExec handle() const { return reinterpret_cast<CUgraphExec>(const_cast<GraphExec*>(this)); }

    // The image of a node of the graph that was instantiated, children's nodes included. Throws INVALID_VALUE.
    GraphNode& image_of(CUgraphNode node) const;
    // With the order lock held. Throws INVALID_VALUE and OUT_OF_MEMORY for memory that it cannot allocate or free, and
    // has done nothing then.
    void launch(Stream& stream);
    // So that a launch finds the memory ready. With the order lock held. Throws OUT_OF_MEMORY.
    void upload(Stream& stream);
    // Which memory its nodes allocate and free, asked of them anew. With the order lock held.
    void collect_memory();
    // An updated node's handle means what the node's own did.
    void rename_conditional(const ConditionalNode& known, const ConditionalNode& renamed);
    TaskRef running() const { return running_; }

    const unsigned long long flags;
    std::shared_ptr<Graph> image;

private:
    // A run of nodes that follow each other and nothing else, done by one task.
    struct Segment {
        std::vector<GraphNode*> nodes;
        std::vector<unsigned> after;
        bool last = true;  // nothing waits for it but the end of the launch
    };
    std::vector<unsigned> lay_out(const Graph& graph, const std::vector<unsigned>& behind);
    void join_chains();
    void remember_images(const Graph& graph);
    // Parts of a launch.
    void prepare_memory(Stream& stream, std::span<const TaskRef> start, std::vector<Step>& first);
    void finish_memory(const Stream& stream, const TaskRef& finish);
    void add_steps(const GraphNode& node, Stream& stream, std::vector<Step>& steps) const;
    OperationRef operation_of(const GraphNode& node) const;
    std::vector<Step> body_steps(const Graph& body, Stream& stream) const;

    std::vector<Segment> segments_;
    std::map<const GraphNode*, GraphNode*> images_;
    std::shared_ptr<ConditionalValues> conditionals_;  // null: no conditional nodes
    // The memory that it allocates and that it frees, by the nodes of its own.
    std::vector<std::shared_ptr<GraphAllocation>> allocated_, freed_;
    std::vector<std::shared_ptr<GraphBlock>> kept_, passing_, foreign_;  // see prepare_memory
    TaskRef running_;                                                    // the last launch: the next one waits for it
};

// What a node of that kind does.
template <class Op>
const Op& operation_of(const GraphNode& node) {
    return get<Op>(*node.operation);
}

// By handle; throw INVALID_VALUE.
std::shared_ptr<Graph> graph_of(CUgraph handle);
std::shared_ptr<GraphNode> node_of(CUgraphNode handle);
std::shared_ptr<GraphExec> exec_of(CUgraphExec handle);
// Dependencies given by the application: different nodes of this graph.
std::vector<GraphNode*> nodes_of(const Graph& graph, const CUgraphNode* handles, std::size_t count);
// Only full dependencies are supported.
void check_edges(const CUgraphEdgeData* edges, std::size_t count);

}  // namespace hpe::soft
