// SPDX-License-Identifier: MIT
// Conditional nodes of graphs: if, if and else, while, switch, one in another, bodies by nodes and by capture, initial
// values, updates; what must not be in a body, and that there is only one of such a graph.
#include "check.h"

__global__ void decide(cudaGraphConditionalHandle handle, const int* value) { cudaGraphSetConditional(handle, *value); }
__global__ void count_down(cudaGraphConditionalHandle handle, int* left, int* rounds) {
    ++*rounds;
    cudaGraphSetConditional(handle, --*left > 0);
}
__global__ void put(int* p, int value) { *p = *p * 10 + value; }

static int *number, *trace;  // of the device

static void set(int* p, int value) { CUDA(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice)); }
static int get(const int* p) {
    int value;
    CUDA(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static cudaGraphNode_t kernel_node(cudaGraph_t graph, cudaGraphNode_t after, void* function, void** arguments) {
    cudaKernelNodeParams kernel = {};
    kernel.func = function;
    kernel.gridDim = kernel.blockDim = dim3(1);
    kernel.kernelParams = arguments;
    cudaGraphNode_t node;
    CUDA(cudaGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &kernel));
    return node;
}
static cudaGraphNode_t put_node(cudaGraph_t graph, cudaGraphNode_t after, int value) {
    void* arguments[] = {&trace, &value};
    return kernel_node(graph, after, reinterpret_cast<void*>(put), arguments);
}
static cudaGraphNode_t decide_node(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle) {
    void* arguments[] = {&handle, &number};
    return kernel_node(graph, after, reinterpret_cast<void*>(decide), arguments);
}

struct Conditional {
    cudaGraphNode_t node;
    cudaGraph_t* bodies;
};
static Conditional conditional_node(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                    cudaGraphConditionalNodeType type, unsigned size) {
    cudaGraphNodeParams p = {};
    p.type = cudaGraphNodeTypeConditional;
    p.conditional.handle = handle;
    p.conditional.type = type;
    p.conditional.size = size;
    Conditional made;
    CUDA(cudaGraphAddNode(&made.node, graph, &after, nullptr, after ? 1 : 0, &p));
    made.bodies = p.conditional.phGraph_out;
    EXPECT(made.bodies != nullptr);
    return made;
}
static cudaGraphConditionalHandle handle_of(cudaGraph_t graph, unsigned initial = 0, unsigned flags = 0) {
    cudaGraphConditionalHandle handle = 0;
    CUDA(cudaGraphConditionalHandleCreate(&handle, graph, initial, flags));
    return handle;
}

// What the graph writes for this number.
static int traced(cudaGraphExec_t exec, cudaStream_t stream, int value) {
    set(number, value);
    set(trace, 1);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    return get(trace);
}

// decide, then the node with one body for each of `size` that writes its number, then 9.
static cudaGraph_t choice(cudaGraphConditionalNodeType type, unsigned size, int first = 1) {
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    const auto handle = handle_of(graph);
    const Conditional c = conditional_node(graph, decide_node(graph, nullptr, handle), handle, type, size);
    for (unsigned i = 0; i < size; i++) put_node(c.bodies[i], nullptr, first + static_cast<int>(i));
    put_node(graph, c.node, 9);
    return graph;
}

static void choices(cudaStream_t stream) {
    struct Row {
        cudaGraphConditionalNodeType type;
        unsigned size;
        int value, expected;
    };
    const Row rows[] = {{cudaGraphCondTypeIf, 1, 0, 19},     {cudaGraphCondTypeIf, 1, 1, 119},
                        {cudaGraphCondTypeIf, 1, -5, 119},   {cudaGraphCondTypeIf, 2, 0, 129},
                        {cudaGraphCondTypeIf, 2, 7, 119},    {cudaGraphCondTypeSwitch, 3, 0, 119},
                        {cudaGraphCondTypeSwitch, 3, 2, 139}, {cudaGraphCondTypeSwitch, 3, 3, 19},
                        {cudaGraphCondTypeSwitch, 3, -1, 19}};
    for (const Row& row : rows) {
        cudaGraph_t graph = choice(row.type, row.size);
        cudaGraphExec_t exec;
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        EXPECT(traced(exec, stream, row.value) == row.expected);
        EXPECT(traced(exec, stream, row.value) == row.expected);
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
    }
}

// A loop whose body was captured, with a choice in it.
static void loop(cudaStream_t stream) {
    cudaGraph_t graph, none;
    CUDA(cudaGraphCreate(&graph, 0));
    const auto handle = handle_of(graph, 1, cudaGraphCondAssignDefault);
    const Conditional c = conditional_node(graph, nullptr, handle, cudaGraphCondTypeWhile, 1);
    int *left, *rounds;
    CUDA(cudaMalloc(&left, 4));
    CUDA(cudaMalloc(&rounds, 4));
    CUDA(cudaStreamBeginCaptureToGraph(stream, c.bodies[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    count_down<<<1, 1, 0, stream>>>(handle, left, rounds);
    CUDA(cudaMemcpyAsync(number, left, 4, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaStreamEndCapture(stream, &none));
    EXPECT(none == c.bodies[0]);
    std::size_t n = 0;
    CUDA(cudaGraphGetNodes(c.bodies[0], nullptr, &n));
    EXPECT(n == 2);
    cudaGraphNode_t nodes[2];
    CUDA(cudaGraphGetNodes(c.bodies[0], nodes, &n));
    const auto inner_handle = handle_of(graph, 0);
    const auto decided = decide_node(c.bodies[0], nodes[1], inner_handle);
    const Conditional inner = conditional_node(c.bodies[0], decided, inner_handle, cudaGraphCondTypeSwitch, 3);
    for (int i = 0; i < 3; i++) put_node(inner.bodies[i], nullptr, i + 1);
    for (int instance = 0; instance < 2; instance++) {
        cudaGraphExec_t exec, second;
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        FAILS(cudaErrorNotSupported, cudaGraphInstantiate(&second, graph, 0));  // one at a time
        for (int run = 0; run < 2; run++) {
            set(left, 4);
            set(rounds, 0);
            EXPECT(traced(exec, stream, 0) == 1321);
            EXPECT(get(rounds) == 4 && get(left) == 0);
            // The initial value counts again: one round, with nothing left.
            CUDA(cudaGraphLaunch(exec, stream));
            CUDA(cudaStreamSynchronize(stream));
            EXPECT(get(rounds) == 5);
        }
        CUDA(cudaGraphExecDestroy(exec));
    }
    CUDA(cudaGraphDestroy(graph));
}

// There are no copies. An update brings the handles of the other graph.
static void copies(cudaStream_t stream) {
    cudaGraph_t graph = choice(cudaGraphCondTypeIf, 1), copy, other = choice(cudaGraphCondTypeIf, 1, 5);
    FAILS(cudaErrorNotSupported, cudaGraphClone(&copy, graph));
    cudaGraphNode_t child;
    CUDA(cudaGraphCreate(&copy, 0));
    FAILS(cudaErrorNotSupported, cudaGraphAddChildGraphNode(&child, copy, nullptr, 0, graph));
    cudaGraphNodeParams move = {};
    move.type = cudaGraphNodeTypeGraph;
    move.graph.graph = graph;
    move.graph.ownership = cudaGraphChildGraphOwnershipMove;
    FAILS(cudaErrorNotSupported, cudaGraphAddNode(&child, copy, nullptr, nullptr, 0, &move));
    CUDA(cudaGraphDestroy(copy));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    EXPECT(traced(exec, stream, 1) == 119 && traced(exec, stream, 0) == 19);
    cudaGraphExecUpdateResultInfo info;
    CUDA(cudaGraphExecUpdate(exec, other, &info));
    EXPECT(traced(exec, stream, 1) == 159 && traced(exec, stream, 0) == 19);
    CUDA(cudaGraphDestroy(other));
    other = choice(cudaGraphCondTypeIf, 2);
    FAILS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == cudaGraphExecUpdateErrorNotSupported);
    EXPECT(traced(exec, stream, 1) == 159);
    CUDA(cudaGraphDestroy(other));
    CUDA(cudaGraphExecDestroy(exec));
}

// A handle is for a node, and the graph is nothing without it.
static void unused_handles() {
    cudaGraph_t graph, copy;
    CUDA(cudaGraphCreate(&graph, 0));
    const auto handle = handle_of(graph);
    cudaGraphExec_t exec;
    FAILS(cudaErrorNotSupported, cudaGraphClone(&copy, graph));
    FAILS(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, graph, 0));
    const Conditional c = conditional_node(graph, nullptr, handle, cudaGraphCondTypeIf, 1);
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroyNode(c.node));
    FAILS(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

// What a body may hold: of copies, those that the device makes by itself.
static void bodies() {
    static int pageable;
    int* pinned;
    CUDA(cudaMallocHost(&pinned, sizeof *pinned));
    const auto instantiated = [](auto fill) {
        cudaGraph_t graph;
        CUDA(cudaGraphCreate(&graph, 0));
        const Conditional c = conditional_node(graph, nullptr, handle_of(graph), cudaGraphCondTypeIf, 1);
        fill(c.bodies[0]);
        cudaGraphInstantiateParams p = {};
        cudaGraphExec_t exec;
        const bool good = cudaGraphInstantiateWithParams(&exec, graph, &p) == cudaSuccess;
        EXPECT(cudaGetLastError() == (good ? cudaSuccess : cudaErrorInvalidValue));
        if (good) CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
        return p.result_out;
    };
    const auto copy_to = [](int* to) {
        return [=](cudaGraph_t body) {
            cudaGraphNode_t node;
            CUDA(cudaGraphAddMemcpyNode1D(&node, body, nullptr, 0, to, number, 4, cudaMemcpyDeviceToHost));
        };
    };
    EXPECT(instantiated(copy_to(pinned)) == cudaGraphInstantiateSuccess);
    EXPECT(instantiated(copy_to(&pageable)) == cudaGraphInstantiateMultipleDevicesNotSupported);
    EXPECT(instantiated([](cudaGraph_t body) {
               cudaGraphNode_t node;
               cudaHostNodeParams host = {[](void*) {}, nullptr};
               CUDA(cudaGraphAddHostNode(&node, body, nullptr, 0, &host));
           }) == cudaGraphInstantiateNodeOperationNotSupported);
    CUDA(cudaFreeHost(pinned));
}

static void refusals() {
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    FAILS(cudaErrorInvalidValue, cudaGraphConditionalHandleCreate(nullptr, graph, 0, 0));
    FAILS(cudaErrorInvalidValue, cudaGraphConditionalHandleCreate(&handle, graph, 0, 8));
    handle = handle_of(graph);
    cudaGraphNode_t node;
    cudaGraphNodeParams p = {};
    p.type = cudaGraphNodeTypeConditional;
    const auto refused = [&](cudaGraphConditionalHandle h, cudaGraphConditionalNodeType type, unsigned size) {
        p.conditional.handle = h;
        p.conditional.type = type;
        p.conditional.size = size;
        FAILS(cudaErrorInvalidValue, cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &p));
    };
    refused(handle, cudaGraphCondTypeIf, 0);
    refused(handle, cudaGraphCondTypeIf, 3);
    refused(handle, cudaGraphCondTypeWhile, 2);
    refused(handle, cudaGraphCondTypeSwitch, 0);
    refused(handle, static_cast<cudaGraphConditionalNodeType>(7), 1);
    refused(handle + 1000, cudaGraphCondTypeIf, 1);
    const Conditional c = conditional_node(graph, nullptr, handle, cudaGraphCondTypeIf, 1);
    refused(handle, cudaGraphCondTypeIf, 1);  // it has a node
    FAILS(cudaErrorInvalidValue, cudaGraphDestroy(c.bodies[0]));
    cudaHostNodeParams host = {[](void*) {}, nullptr};
    CUDA(cudaGraphAddHostNode(&node, c.bodies[0], nullptr, 0, &host));
    cudaGraphExec_t exec;
    FAILS(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

int main() {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaMalloc(&number, 4));
    CUDA(cudaMalloc(&trace, 4));
    choices(stream);
    loop(stream);
    copies(stream);
    unused_handles();
    bodies();
    refusals();
    std::printf("graph conditional: ok\n");
}
