// SPDX-License-Identifier: MIT
// Launches of instantiated graphs: their operations become tasks, their memory is taken, their conditions are
// evaluated.
#include <algorithm>

#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/graph/graph.h"
#include "toolchain/softgpu/driver/graph/graph_capture.h"
#include "toolchain/softgpu/driver/graph/graph_exec.h"
#include "toolchain/softgpu/driver/graph/graph_memory.h"
#include "toolchain/softgpu/driver/launch/conditional_values.h"
#include "toolchain/softgpu/driver/launch/launch.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/event.h"
#include "toolchain/softgpu/driver/stream/operation.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

// One operation of a graph that is being launched, and where it runs.
struct Step {
    Context* context;
    OperationRef operation;
};

namespace {

// A conditional node with its bodies, as they were when the graph was launched.
struct ConditionalPlan {
    CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
    std::shared_ptr<const std::atomic<unsigned>> value;
    std::vector<std::vector<Step>> bodies;
};

bool contains(const std::vector<std::shared_ptr<GraphAllocation>>& list,
              const std::shared_ptr<GraphAllocation>& which) {
    return std::find(list.begin(), list.end(), which) != list.end();
}
bool add_once(std::vector<std::shared_ptr<GraphBlock>>& list, const std::shared_ptr<GraphBlock>& block) {
    if (std::find(list.begin(), list.end(), block) != list.end()) return false;
    list.push_back(block);
    return true;
}

void perform_all(const std::vector<Step>& steps) {
    for (const Step& step : steps) perform(*step.context, *step.operation);
}

CUresult run(Context& context, const ConditionalPlan& plan) {
    const auto number = [&] { return plan.value->load(); };
    switch (plan.type) {
        case CU_GRAPH_COND_TYPE_IF:
            if (number() != 0)
                perform_all(plan.bodies[0]);
            else if (plan.bodies.size() > 1)
                perform_all(plan.bodies[1]);
            break;
        case CU_GRAPH_COND_TYPE_WHILE:
            while (number() != 0 && !context.ending() && context.sticky() == CUDA_SUCCESS && life() == Life::Ready)
                perform_all(plan.bodies[0]);
            break;
        case CU_GRAPH_COND_TYPE_SWITCH:
            if (const unsigned which = number(); which < plan.bodies.size()) perform_all(plan.bodies[which]);
            break;
    }
    return CUDA_SUCCESS;
}

}  // namespace

// Sorts the blocks by what becomes of their memory: it stays after the launch, it is for the launch alone, or the
// launch frees what another graph allocated. What an earlier launch left behind is freed by `first`, when that was
// asked for.
void GraphExec::prepare_memory(Stream& stream, std::span<const TaskRef> start, std::vector<Step>& first) {
    kept_.clear();
    passing_.clear();
    foreign_.clear();
    if (allocated_.empty() && freed_.empty()) return;
    for (const auto& allocation : allocated_)
        if (!contains(freed_, allocation)) add_once(kept_, allocation->block);
    for (const auto& allocation : allocated_) {
        const bool stays = std::find(kept_.begin(), kept_.end(), allocation->block) != kept_.end();
        if (!stays) add_once(passing_, allocation->block);
    }
    for (const auto& allocation : freed_) {
        if (contains(allocated_, allocation)) continue;
        require(allocation->block->allocated && add_once(foreign_, allocation->block));
    }
    for (const auto& block : kept_)
        require(!block->allocated || (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    std::vector<GraphBlock*> taken;
    for (const auto* list : {&kept_, &passing_})
        for (const auto& block : *list) {
            if (block->allocated) {
                first.push_back({&stream.context, make_operation(GraphMemoryOp{block, false, 0})});
                continue;
            }
            if (graph_memory(block->device).take(block->size, stream, start, block->chunk)) {
                taken.push_back(block.get());
                continue;
            }
            for (GraphBlock* other : taken) graph_memory(other->device).give_back(other->release_chunk());
            fail(CUDA_ERROR_OUT_OF_MEMORY);
        }
}

void GraphExec::upload(Stream& stream) {
    const std::vector<TaskRef> start = predecessors(stream);
    std::vector<std::shared_ptr<GraphBlock>> blocks;
    for (const auto& allocation : allocated_) add_once(blocks, allocation->block);
    std::vector<std::pair<Device*, GraphChunk>> taken;
    bool enough = true;
    for (const auto& block : blocks) {
        if (block->allocated) continue;
        GraphChunk chunk;
        enough = enough && graph_memory(block->device).take(block->size, stream, start, chunk);
        if (enough) taken.emplace_back(&block->device, std::move(chunk));
    }
    for (auto& [device, chunk] : taken) graph_memory(*device).give_back(std::move(chunk));
    require(enough, CUDA_ERROR_OUT_OF_MEMORY);
}

void GraphExec::finish_memory(const Stream& stream, const TaskRef& finish) {
    for (const auto& block : kept_) block->allocated = true;
    for (const auto& block : foreign_) block->allocated = false;
    for (const auto* list : {&passing_, &foreign_})
        for (const auto& block : *list) {
            GraphChunk chunk = block->release_chunk();
            chunk.after = finish;
            chunk.stream = stream.id;
            graph_memory(block->device).give_back(std::move(chunk));
        }
}

// Null: the node does nothing.
OperationRef GraphExec::operation_of(const GraphNode& node) const {
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        const auto& block = node.allocation->block;
        const bool map = node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        return make_operation(GraphMemoryOp{block, map, block->chunk.offset});
    }
    if (!node.operation || !node.enabled) return nullptr;
    if (!conditionals_ || !holds<KernelOp>(*node.operation)) return node.operation;
    KernelOp kernel = get<KernelOp>(*node.operation);
    kernel.conditionals = conditionals_;
    return make_operation(std::move(kernel));
}

void GraphExec::add_steps(const GraphNode& node, Stream& stream, std::vector<Step>& steps) const {
    Context& context = node.context ? *node.context : stream.context;
    OperationRef operation;
    if (node.conditional) {
        ConditionalPlan plan;
        plan.type = node.conditional->type;
        plan.value = conditionals_->value(node.conditional->handle->number);
        for (const auto& body : node.conditional->bodies) plan.bodies.push_back(body_steps(*body, stream));
        operation = make_operation(std::move(plan));
    } else {
        operation = operation_of(node);
    }
    if (operation) steps.push_back({&context, std::move(operation)});
}

// A body runs one node after the other: its size and number of runs are not known before.
std::vector<Step> GraphExec::body_steps(const Graph& body, Stream& stream) const {
    std::vector<Step> steps;
    for (const GraphNode* node : body.ordered()) {
        if (node->child) {
            auto inner = body_steps(*node->child, stream);
            steps.insert(steps.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
        } else {
            add_steps(*node, stream, steps);
        }
    }
    return steps;
}

void GraphExec::rename_conditional(const ConditionalNode& known, const ConditionalNode& renamed) {
    conditionals_->also(renamed.handle, known.handle->number);
}

void GraphExec::launch(Stream& stream) {
    Engine& engine = driver().engine;
    std::vector<TaskRef> start = predecessors(stream);
    if (running_) start.push_back(running_);  // an instantiated graph never runs twice at once
    std::vector<Step> first;
    prepare_memory(stream, start, first);
    if (!first.empty() || conditionals_) {
        auto before = std::make_shared<Task>(
            [first = std::move(first), values = conditionals_] {
                perform_all(first);
                if (values) values->assign_initial();
            },
            stream.priority);
        engine.submit(before, start);
        start = {std::move(before)};
    }
    std::vector<TaskRef> tasks, open;
    std::vector<Context*> elsewhere;
    for (const Segment& segment : segments_) {
        std::vector<TaskRef> after;
        if (segment.after.empty()) after = start;
        for (const unsigned before : segment.after) after.push_back(tasks[before]);
        std::vector<Step> steps;
        for (const GraphNode* node : segment.nodes) {
            const std::size_t before = steps.size();
            add_steps(*node, stream, steps);
            if (steps.size() == before) continue;
            Context* const context = steps.back().context;
            if (context != &stream.context && std::find(elsewhere.begin(), elsewhere.end(), context) == elsewhere.end())
                elsewhere.push_back(context);
        }
        const GraphNode& front = *segment.nodes.front();
        if (front.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && front.event->mark) after.push_back(front.event->mark);
        std::function<void()> work;
        if (!steps.empty()) work = [steps = std::move(steps)] { perform_all(steps); };
        auto task = std::make_shared<Task>(std::move(work), stream.priority);
        engine.submit(task, after);
        if (front.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
            front.event->mark = task;
            front.event->capture.reset();
            front.event->captured_at.clear();
        }
        if (segment.last) open.push_back(task);
        tasks.push_back(std::move(task));
    }
    if (open.empty()) open = std::move(start);
    auto finish = open.size() == 1 && open.front() ? open.front()
                                                   : std::make_shared<Task>(std::function<void()>{}, stream.priority);
    if (open.size() != 1) engine.submit(finish, open);
    stream.tail = finish;
    running_ = finish;
    finish_memory(stream, finish);
    // So that waiting for those contexts, or ending them, waits for this as well.
    for (Context* context : elsewhere) context->orphans.push_back({finish, false});
}

CUresult api::cuGraphUpload(CUgraphExec handle, CUstream stream) {
    const auto exec = exec_of(handle);
    const auto there = stream_of(stream);
    const std::lock_guard lock(driver().order);
    exec->upload(*there);
    return CUDA_SUCCESS;
}

CUresult api::cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    const auto exec = exec_of(handle);
    const auto stream = stream_of(stream_handle);
    const std::lock_guard lock(driver().order);
    if (const auto capture = capture_for_work(*stream)) {
        if (exec->image->is_unique()) {
            invalidate(*capture);
            fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        auto child = exec->image->copy();
        GraphNode& node = capture_node(*stream, CU_GRAPH_NODE_TYPE_GRAPH);
        node.child = std::move(child);
        node.child->owned = true;
        return CUDA_SUCCESS;
    }
    exec->launch(*stream);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
