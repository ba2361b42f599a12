// SPDX-License-Identifier: MIT
// Memory that graphs allocate and free (CUDA Driver API, "Graph Management", cuGraphAddMemAllocNode). An address is a
// graph's from the making of the node to the end of the graph; the memory behind it is taken when the graph is
// launched, and there from the allocation node to whatever frees it.
//
// Sizes in bytes. Threads: launches, frees and their bookkeeping under the order lock; the rest any. Errors: exceptions
// of type Error (call.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "toolchain/softgpu/driver/device/addresses.h"
#include "toolchain/softgpu/driver/device/device.h"
#include "toolchain/softgpu/driver/device/engine.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Graph;
class Stream;
struct GraphNode;

// A piece of a device's memory in the hands of graphs.
struct GraphChunk {
    std::uint64_t offset = 0, bytes = 0;
    TaskRef after;                  // the last work that uses it
    unsigned long long stream = 0;  // in which that is
};

// What a device has given to its graphs.
class GraphMemory {
public:
    explicit GraphMemory(Device& device) : device_(device) {}
    // Memory that nothing uses any more when work behind `start` in the stream begins. False: none left.
    bool take(std::uint64_t bytes, const Stream& stream, std::span<const TaskRef> start, GraphChunk& out);
    void give_back(GraphChunk chunk);
    void trim();  // to what is in use
    std::uint64_t attribute(CUgraphMem_attribute which) const;
    void reset_high(CUgraphMem_attribute which);

private:
    void trim_locked();
    Device& device_;
    mutable std::mutex mutex_;
    std::vector<GraphChunk> idle_;
    std::uint64_t reserved_ = 0, reserved_high_ = 0, used_high_ = 0;
};
GraphMemory& graph_memory(Device& device);

// A range of addresses, and the memory that is behind it for now. In the address table from its making on, so that
// copies and sets may name it before the graph runs.
class GraphBlock final : public Backing {
public:
    GraphBlock(Device& owner, std::uint64_t bytes);
    ~GraphBlock() override;
    bool present() const override { return allocated; }  // for work outside of graphs
    void end(const Allocation& allocation) override;     // its context has ended
    void free_in_stream(const Allocation& allocation, Stream& stream) override;
    void free_now(const Allocation& allocation) override;
    // Returns the memory: with the order lock held, or nothing else using the block.
    GraphChunk release_chunk();

    Device& device;
    const std::uint64_t bytes, size;  // as first asked for, and in whole pages
    std::uint64_t address = 0;
    GraphChunk chunk;                     // while allocated, or in a launch. Guarded by the order lock
    std::atomic<bool> allocated{false};   // launched, and to be freed from outside. Changed under the order lock
    unsigned users = 0;                   // GraphAllocations. Guarded by the mutex of this module
    const GraphNode* freed_by = nullptr;  // the last node of the graph that uses the block frees it
};

// Memory comes to a block's addresses, or goes.
struct GraphMemoryOp {
    std::shared_ptr<GraphBlock> block;
    bool map = false;
    std::uint64_t offset = 0;  // in the device's memory
};
CUresult run(Context& context, const GraphMemoryOp& operation);

// What one allocation node stands for; shared with the nodes that free it, and with copies of the graph.
struct GraphAllocation {
    ~GraphAllocation();
    std::shared_ptr<GraphBlock> block;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    std::vector<CUmemAccessDesc> access;
    // Ids of graphs: the one that allocates, and the last one that got a free node for it; 0: none.
    unsigned long long owner = 0, freed_in = 0;
};

// The allocation of a new node of the graph behind those nodes. Throws INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY.
std::shared_ptr<GraphAllocation> allocate_in(const Graph& graph, std::span<GraphNode* const> before, Context& context,
                                             const CUDA_MEM_ALLOC_NODE_PARAMS& parameters);
// The allocation that a new node of the graph frees. Throws INVALID_VALUE.
std::shared_ptr<GraphAllocation> freed_in(const Graph& graph, std::uint64_t address);
// Makes the node, new in the graph, free the allocation.
void set_freed(GraphNode& node, const Graph& graph, std::shared_ptr<GraphAllocation> allocation);

}  // namespace hpe::soft
