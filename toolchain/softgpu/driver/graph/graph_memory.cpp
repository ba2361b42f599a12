// SPDX-License-Identifier: MIT
// The memory of graphs, and the nodes that allocate and free it.
#include "toolchain/softgpu/driver/graph/graph_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph.h"
#include "toolchain/softgpu/driver/graph/graph_exec.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

// Guards who uses a block, and with it whether the block is in the address table.
std::mutex& blocks_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
}

std::shared_ptr<GraphBlock> block_of(const Allocation& allocation) {
    return std::static_pointer_cast<GraphBlock>(allocation.backing);
}

// Takes the block's addresses out of the table when nobody may use them any more.
void forget_if_unused(GraphBlock& block) {
    const std::lock_guard lock(blocks_mutex());
    if (block.users > 0 || block.allocated) return;
    const AllocationRef there = driver().addresses.find(block.address);
    if (there && there->backing.get() == &block) driver().addresses.remove(block.address);
}

bool contains(std::span<const TaskRef> tasks, const TaskRef& task) {
    return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

// Is `node` one of those nodes or something before them?
bool is_before(const GraphNode* node, std::span<GraphNode* const> nodes) {
    std::vector<const GraphNode*> open(nodes.begin(), nodes.end());
    std::unordered_set<const GraphNode*> seen(open.begin(), open.end());
    while (!open.empty()) {
        const GraphNode* next = open.back();
        open.pop_back();
        if (next == node) return true;
        for (const GraphNode* before : next->before)
            if (seen.insert(before).second) open.push_back(before);
    }
    return false;
}

void check(const CUDA_MEM_ALLOC_NODE_PARAMS& p) {
    require(p.bytesize > 0 && (p.accessDescs != nullptr || p.accessDescCount == 0));
    require(p.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (p.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        fail(not_supported("a graph's allocation of memory that is not a device's"));
    require(is_device(p.poolProps.location.id));
    require(p.poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    require(p.accessDescCount <= driver().devices.size());
    for (std::size_t i = 0; i < p.accessDescCount; ++i) {
        const CUmemAccessDesc& access = p.accessDescs[i];
        require(access.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        require(&device_at(access.location.id) == &device_at(p.poolProps.location.id) || driver().options.peer,
                CUDA_ERROR_INVALID_DEVICE);
    }
}

}  // namespace

GraphMemory& graph_memory(Device& device) {
    static auto* all = new std::array<std::unique_ptr<GraphMemory>, 8>;
    static auto* mutex = new std::mutex;
    const std::lock_guard lock(*mutex);
    auto& memory = all->at(static_cast<std::size_t>(device.ordinal));
    if (!memory) memory = std::make_unique<GraphMemory>(device);
    return *memory;
}

bool GraphMemory::take(std::uint64_t bytes, const Stream& stream, std::span<const TaskRef> start, GraphChunk& out) {
    const std::lock_guard lock(mutex_);
    for (auto at = idle_.begin(); at != idle_.end(); ++at) {
        if (at->bytes != bytes) continue;
        const bool free = !at->after || at->after->done() || at->stream == stream.id || contains(start, at->after);
        if (!free) continue;
        out = std::move(*at);
        idle_.erase(at);
        return true;
    }
    out = {};
    if (!device_.memory.open()) return false;
    if (!device_.memory.allocate(bytes, out.offset)) {
        trim_locked();
        if (!device_.memory.allocate(bytes, out.offset)) return false;
    }
    out.bytes = bytes;
    reserved_ += bytes;
    reserved_high_ = std::max(reserved_high_, reserved_);
    used_high_ = std::max(used_high_, reserved_);
    return true;
}

void GraphMemory::give_back(GraphChunk chunk) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(chunk));
}

void GraphMemory::trim() {
    const std::lock_guard lock(mutex_);
    trim_locked();
}

void GraphMemory::trim_locked() {
    std::erase_if(idle_, [this](const GraphChunk& chunk) {
        if (chunk.after && !chunk.after->done()) return false;
        device_.memory.release(chunk.offset, chunk.bytes);
        reserved_ -= chunk.bytes;
        return true;
    });
}

std::uint64_t GraphMemory::attribute(CUgraphMem_attribute which) const {
    const std::lock_guard lock(mutex_);
    switch (which) {
        // Memory is a graph's until it is trimmed away.
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: return reserved_;
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: return used_high_;
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: return reserved_high_;
    }
    fail(CUDA_ERROR_INVALID_VALUE);
}

void GraphMemory::reset_high(CUgraphMem_attribute which) {
    const std::lock_guard lock(mutex_);
    if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        used_high_ = reserved_;
    else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        reserved_high_ = reserved_;
    else
        fail(CUDA_ERROR_INVALID_VALUE);
}

GraphBlock::GraphBlock(Device& owner, std::uint64_t wanted)
    : device(owner), bytes(wanted), size(round_up(wanted, page_2m)) {
    // More than the device has is only missed by who launches the graph; not even that many addresses are there for one
    // (an H200 gives 300 GB and refuses 2^44).
    constexpr std::uint64_t too_many = std::uint64_t{1} << 44;
    require(bytes < too_many, CUDA_ERROR_OUT_OF_MEMORY);
    address = driver().addresses.reserve(size, page_2m);
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
}

GraphBlock::~GraphBlock() {
    if (chunk.bytes > 0) graph_memory(device).give_back(std::move(chunk));
    driver().addresses.unreserve(address, size);
}

GraphChunk GraphBlock::release_chunk() { return std::exchange(chunk, {}); }

GraphAllocation::~GraphAllocation() {
    if (!block) return;
    {
        const std::lock_guard lock(blocks_mutex());
        --block->users;
    }
    forget_if_unused(*block);
}

std::shared_ptr<GraphAllocation> allocate_in(const Graph& graph, std::span<GraphNode* const> before, Context& context,
                                             const CUDA_MEM_ALLOC_NODE_PARAMS& p) {
    check(p);
    Device& device = device_at(p.poolProps.location.id);
    auto made = std::make_shared<GraphAllocation>();
    made->parameters = p;
    made->access.assign(p.accessDescs, p.accessDescs + p.accessDescCount);
    made->parameters.accessDescs = made->access.empty() ? nullptr : made->access.data();
    made->owner = graph.id;
    // Addresses that a node before has freed may be used again, as on hardware.
    for (const auto& node : graph.nodes) {
        if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
        const auto& block = node->allocation->block;
        if (&block->device != &device || !block->freed_by || p.bytesize > block->bytes) continue;
        if (!is_before(block->freed_by, before)) continue;
        made->block = block;
        block->freed_by = nullptr;
        break;
    }
    const bool fresh = !made->block;
    if (fresh) made->block = std::make_shared<GraphBlock>(device, p.bytesize);
    {
        const std::lock_guard lock(blocks_mutex());
        ++made->block->users;
    }
    made->parameters.dptr = made->block->address;
    const auto let_in = [&](Allocation& a) {
        a.access.insert(device.ordinal);
        for (const CUmemAccessDesc& desc : made->access) a.access.insert(desc.location.id);
    };
    if (!fresh) {
        driver().addresses.change(made->block->address, let_in);
        return made;
    }
    auto a = std::make_shared<Allocation>();
    a->address = made->block->address;
    a->size = p.bytesize;
    a->kind = Kind::Graph;
    a->context = &context;
    a->device = &device;
    a->backing = made->block;
    let_in(*a);
    driver().addresses.add(std::move(a));
    return made;
}

std::shared_ptr<GraphAllocation> freed_in(const Graph& graph, std::uint64_t address) {
    const AllocationRef there = driver().addresses.find(address);
    require(there && there->kind == Kind::Graph && there->address == address);
    // Of several in one graph that use the address one after the other, all but the last have been freed.
    std::shared_ptr<GraphAllocation> found;
    const auto look = [&](const Graph& in) {
        for (const auto& node : in.nodes)
            if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->allocation->parameters.dptr == address &&
                node->allocation->freed_in != node->allocation->owner)
                found = node->allocation;
    };
    look(graph);
    if (!found) driver().graphs.each([&](const Graph& other) { look(other); });
    if (!found) driver().graph_execs.each([&](const GraphExec& exec) { look(*exec.image); });
    require(found != nullptr);
    // Either the graph that allocates frees it, or others do.
    require(found->freed_in == 0 || (found->owner != graph.id && found->freed_in != graph.id));
    return found;
}

void GraphBlock::free_in_stream(const Allocation& allocation, Stream& stream) {
    require(allocated);
    allocated = false;
    GraphChunk freed = release_chunk();
    auto task = append(stream, [&context = stream.context, block = block_of(allocation)] {
        perform(context, *make_operation(GraphMemoryOp{block, false, 0}));
        forget_if_unused(*block);
    });
    freed.after = std::move(task);
    freed.stream = stream.id;
    graph_memory(device).give_back(std::move(freed));
}

void GraphBlock::free_now(const Allocation& allocation) {
    require(allocated);
    allocated = false;
    GraphChunk freed = release_chunk();
    require(run(*allocation.context, GraphMemoryOp{block_of(allocation), false, 0}) == CUDA_SUCCESS);
    freed.after = nullptr;
    graph_memory(device).give_back(std::move(freed));
    forget_if_unused(*this);
}

void GraphBlock::end(const Allocation&) {
    const std::lock_guard lock(driver().order);
    allocated = false;
    if (chunk.bytes > 0) graph_memory(device).give_back(release_chunk());
}

CUresult run(Context&, const GraphMemoryOp& op) {
    GraphBlock& block = *op.block;
    std::byte* const bytes = op.map ? block.device.memory.view(op.offset) : nullptr;
    driver().addresses.change(block.address, [&](Allocation& a) {
        if (a.backing.get() != &block) return;
        a.bytes = bytes;
        a.id = driver().addresses.new_id();
    });
    return CUDA_SUCCESS;
}

namespace {

CUresult add_allocation(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count,
                        CUDA_MEM_ALLOC_NODE_PARAMS* p) {
    require(out != nullptr && p != nullptr);
    const auto graph = graph_of(handle);
    const auto before = nodes_of(*graph, after, count);
    auto allocation = allocate_in(*graph, before, current(), *p);
    GraphNode& node = graph->add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, before);
    node.context = &current();
    p->dptr = allocation->parameters.dptr;
    node.allocation = std::move(allocation);
    *out = node.handle();
    return CUDA_SUCCESS;
}

CUresult add_free(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count, CUdeviceptr address) {
    require(out != nullptr);
    const auto graph = graph_of(handle);
    const auto before = nodes_of(*graph, after, count);
    auto allocation = freed_in(*graph, address);
    GraphNode& node = graph->add(CU_GRAPH_NODE_TYPE_MEM_FREE, before);
    node.context = &current();
    set_freed(node, *graph, std::move(allocation));
    *out = node.handle();
    return CUDA_SUCCESS;
}

const GraphAllocation& allocation_of(CUgraphNode handle, CUgraphNodeType type) {
    const auto node = node_of(handle);
    require(node->type == type);
    return *node->allocation;
}

}  // namespace

void set_freed(GraphNode& node, const Graph& graph, std::shared_ptr<GraphAllocation> allocation) {
    allocation->freed_in = graph.id;
    if (allocation->owner == graph.id) allocation->block->freed_by = &node;
    node.allocation = std::move(allocation);
}

CUresult api::cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS* p) {
    return add_allocation(node, graph, after, count, p);
}
CUresult api::cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
    require(p != nullptr);
    *p = allocation_of(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC).parameters;
    return CUDA_SUCCESS;
}
CUresult api::cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                    CUdeviceptr address) {
    return add_free(node, graph, after, count, address);
}
CUresult api::cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
    require(address != nullptr);
    *address = allocation_of(node, CU_GRAPH_NODE_TYPE_MEM_FREE).parameters.dptr;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
    Device& device = device_at(dev);
    require(value != nullptr);
    const std::uint64_t number = graph_memory(device).attribute(attribute);
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
}
CUresult api::cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
    Device& device = device_at(dev);
    require(value != nullptr);
    std::uint64_t given = 0;
    std::memcpy(&given, value, sizeof given);
    require(given == 0);
    graph_memory(device).reset_high(attribute);
    return CUDA_SUCCESS;
}
CUresult api::cuDeviceGraphMemTrim(CUdevice dev) {
    graph_memory(device_at(dev)).trim();
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
