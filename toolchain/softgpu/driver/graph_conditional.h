// SPDX-License-Identifier: MIT
// Conditional nodes: handles, whose values kernels set, and the graphs that run or do not run for it.
//
// A handle is made for a graph; each instantiated graph has values of its own. Threads: any for values; handles and
// nodes as the graph. Errors: exceptions of type Error (call.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/graph.h"

namespace hpe::soft {

struct ConditionalNode;

struct ConditionalHandle {
    CUgraphConditionalHandle number = 0;
    Context* context = nullptr;
    unsigned initial = 0;
    bool assigns = false;  // the initial value at each launch
    bool used = false;     // by a node
    std::weak_ptr<const ConditionalNode> node;
};

struct ConditionalNode {
    std::shared_ptr<const ConditionalHandle> handle;
    CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<CUgraph> told;  // the bodies, as the application's array

    std::shared_ptr<ConditionalNode> clone(bool is_public) const;
};

// The values of one instantiated graph.
class ConditionalValues {
public:
    // False: no handle of this graph.
    bool set(CUgraphConditionalHandle handle, unsigned value);
    void add(const std::shared_ptr<const ConditionalHandle>& handle);
    // After an update the handle of another graph means the value that `known` has here.
    void also(const std::shared_ptr<const ConditionalHandle>& handle, CUgraphConditionalHandle known);
    std::shared_ptr<std::atomic<unsigned>> value(CUgraphConditionalHandle handle) const;
    void assign_initial();
    bool empty() const { return cells_.empty(); }

private:
    struct Cell {
        std::shared_ptr<const ConditionalHandle> handle;
        std::shared_ptr<std::atomic<unsigned>> value;
    };
    mutable std::mutex mutex_;
    std::map<CUgraphConditionalHandle, Cell> cells_;
};

// Throws GraphError for what a body must not hold, after a line on stderr.
void check_bodies(const Graph& graph);
// Throws GraphError for a handle of the graph that no node uses.
void check_handles(const Graph& graph);

CUresult add_conditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                         CUDA_CONDITIONAL_NODE_PARAMS& parameters);

}  // namespace hpe::soft
