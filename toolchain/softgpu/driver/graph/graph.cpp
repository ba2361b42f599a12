// SPDX-License-Identifier: MIT
// Graphs as a whole: structure, copies, handles.
#include "toolchain/softgpu/driver/graph/graph.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {

namespace {
std::atomic<unsigned long long> last_graph_id{0};
}

Graph::Graph(bool is_public) : id(++last_graph_id), is_public_(is_public) {}

bool Graph::has_memory_nodes() const {
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return node->allocation || (node->child && node->child->has_memory_nodes());
    });
}

bool Graph::has_conditional_nodes() const {
    return !conditional_handles.empty() || std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return node->conditional || (node->child && node->child->has_conditional_nodes());
    });
}

bool Graph::is_unique() const { return has_memory_nodes() || has_conditional_nodes(); }

std::shared_ptr<Graph> Graph::copy() const {
    require(!is_unique(), CUDA_ERROR_NOT_SUPPORTED);
    return clone(true);
}

GraphNode& Graph::add(CUgraphNodeType type, std::span<GraphNode* const> before) {
    auto node = std::make_shared<GraphNode>();
    node->graph = this;
    node->type = type;
    node->before.assign(before.begin(), before.end());
    for (GraphNode* other : before) other->after.push_back(node.get());
    if (is_public_) driver().graph_nodes.add(node);
    nodes.push_back(std::move(node));
    return *nodes.back();
}

void Graph::remove(GraphNode& node) {
    for (GraphNode* other : node.before) std::erase(other->after, &node);
    for (GraphNode* other : node.after) std::erase(other->before, &node);
    if (node.child) node.child->forget();
    if (node.conditional)
        for (const auto& body : node.conditional->bodies) body->forget();
    driver().graph_nodes.remove(&node);
    std::erase_if(nodes, [&](const auto& held) { return held.get() == &node; });
}

std::shared_ptr<Graph> Graph::clone(bool is_public) const {
    auto copy = std::make_shared<Graph>(is_public);
    if (is_public) copy->publish();
    copy->user_objects = user_objects;
    copy->conditional_handles = conditional_handles;
    std::unordered_map<const GraphNode*, GraphNode*> made;
    for (const auto& node : nodes) {
        GraphNode& twin = copy->add(node->type, {});
        made.emplace(node.get(), &twin);
        twin.context = node->context;
        twin.operation = node->operation;
        twin.event = node->event;
        twin.enabled = node->enabled;
        twin.descriptor = node->descriptor;
        twin.memory_operations = node->memory_operations;
        twin.attributes = node->attributes;
        twin.allocation = node->allocation;
        if (node->conditional) twin.conditional = node->conditional->clone(is_public);
        twin.origin = node;
        if (node->child) {
            twin.child = node->child->clone(is_public);
            twin.child->owned = true;
        }
    }
    for (const auto& node : nodes) {
        GraphNode& twin = *made.at(node.get());
        for (const GraphNode* other : node->before) twin.before.push_back(made.at(other));
        for (const GraphNode* other : node->after) twin.after.push_back(made.at(other));
    }
    return copy;
}

void Graph::publish() { driver().graphs.add(shared_from_this()); }

void Graph::forget() {
    for (const auto& node : nodes) {
        driver().graph_nodes.remove(node.get());
        if (node->child) node->child->forget();
        if (node->conditional)
            for (const auto& body : node->conditional->bodies) body->forget();
    }
    driver().graphs.remove(this);
}

std::vector<GraphNode*> Graph::ordered() const {
    std::vector<GraphNode*> order;
    std::unordered_map<const GraphNode*, std::size_t> waiting_for;
    for (const auto& node : nodes) {
        waiting_for[node.get()] = node->before.size();
        if (node->before.empty()) order.push_back(node.get());
    }
    for (std::size_t i = 0; i < order.size(); ++i)
        for (GraphNode* next : order[i]->after)
            if (--waiting_for[next] == 0) order.push_back(next);
    if (order.size() != nodes.size()) order.clear();
    return order;
}

std::shared_ptr<ConditionalNode> ConditionalNode::clone(bool is_public) const {
    auto copy = std::make_shared<ConditionalNode>();
    copy->handle = handle;
    copy->type = type;
    for (const auto& body : bodies) {
        copy->bodies.push_back(body->clone(is_public));
        copy->bodies.back()->owned = true;
        copy->told.push_back(copy->bodies.back()->handle());
    }
    return copy;
}

std::shared_ptr<Graph> graph_of(CUgraph handle) {
    auto graph = driver().graphs.find(handle);
    require(graph != nullptr);
    return graph;
}

std::shared_ptr<GraphNode> node_of(CUgraphNode handle) {
    auto node = driver().graph_nodes.find(handle);
    require(node != nullptr);
    return node;
}

std::vector<GraphNode*> nodes_of(const Graph& graph, const CUgraphNode* handles, std::size_t count) {
    require(handles != nullptr || count == 0);
    std::vector<GraphNode*> nodes;
    for (std::size_t i = 0; i < count; ++i) {
        const auto node = node_of(handles[i]);
        require(graph.holds(*node));
        require(std::find(nodes.begin(), nodes.end(), node.get()) == nodes.end());
        nodes.push_back(node.get());
    }
    return nodes;
}

void check_edges(const CUgraphEdgeData* edges, std::size_t count) {
    for (std::size_t i = 0; edges && i < count; ++i) {
        require(edges[i].to_port == 0 && edges[i].type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
        // A programmatic dependency permits an earlier start; it is never made use of.
        require(edges[i].from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    }
}

CUresult api::cuGraphCreate(CUgraph* phGraph, unsigned flags) {
    require(phGraph != nullptr && flags == 0);
    auto graph = std::make_shared<Graph>(true);
    graph->publish();
    *phGraph = graph->handle();
    return CUDA_SUCCESS;
}

CUresult api::cuGraphDestroy(CUgraph handle) {
    const auto graph = graph_of(handle);
    require(!graph->capturing, CUDA_ERROR_ILLEGAL_STATE);
    require(!graph->owned);
    graph->forget();
    return CUDA_SUCCESS;
}

CUresult api::cuGraphClone(CUgraph* phGraphClone, CUgraph original) {
    require(phGraphClone != nullptr);
    *phGraphClone = graph_of(original)->copy()->handle();
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
