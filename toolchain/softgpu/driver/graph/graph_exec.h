// SPDX-License-Identifier: MIT
// Instantiated graphs (CUDA Driver API, "Graph Management", from cuGraphInstantiate on). How they run:
// graph_launch.cpp; how they are changed: graph_update.cpp, graph_nodes.cpp.
//
// Owned by its handle, and by its launches that are not over. Like CUDA's, it is not for use by several threads at
// once; only what launches read is guarded by the order lock. Errors: exceptions of type Error (call.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "toolchain/softgpu/driver/device/engine.h"
#include "toolchain/softgpu/driver/graph/graph.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class ConditionalValues;
class GraphBlock;
class Stream;
struct GraphAllocation;
struct Step;

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

// By handle; throws INVALID_VALUE.
std::shared_ptr<GraphExec> exec_of(CUgraphExec handle);

}  // namespace hpe::soft
