// SPDX-License-Identifier: MIT
// Conditional handles of graphs, whose values kernels set (CUDA Driver API, "Graph Management",
// cuGraphConditionalHandleCreate).
//
// A handle is made for a graph, which owns it; each instantiated graph has values of its own, which its kernels in
// flight keep alive. Threads: any for values; handles as the graph. Errors: false or nullptr.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "toolchain/softgpu/driver/base/abi.h"

namespace hpe::soft {

class Context;
struct ConditionalNode;

struct ConditionalHandle {
    CUgraphConditionalHandle number = 0;
    Context* context = nullptr;
    unsigned initial = 0;
    bool assigns = false;  // the initial value at each launch
    bool used = false;     // by a node
    std::weak_ptr<const ConditionalNode> node;
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

}  // namespace hpe::soft
