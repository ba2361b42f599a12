// SPDX-License-Identifier: MIT
// Memory that graphs allocate: by nodes and by capture; its life, its addresses, launches that find it still there, what
// a device has given to its graphs, and the calls that CUDA forbids for such graphs.
#include <cstdint>
#include <vector>

#include "check.h"

constexpr std::size_t bytes = 4 << 20;
constexpr int count = bytes / sizeof(int);

__global__ void fill(int* p, int n, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = value + i;
}
__global__ void add(const int* from, int* to, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] += from[i];
}

static cudaMemAllocNodeParams wanted(std::size_t size = bytes) {
    cudaMemAllocNodeParams p = {};
    p.poolProps.allocType = cudaMemAllocationTypePinned;
    p.poolProps.location.type = cudaMemLocationTypeDevice;
    p.bytesize = size;
    return p;
}

static std::uint64_t attribute(cudaGraphMemAttributeType which) {
    std::uint64_t value = ~0ull;
    CUDA(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static cudaGraphNode_t fill_node(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, int* p, int value) {
    int n = count;
    void* arguments[] = {&p, &n, &value};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void*>(fill);
    kernel.gridDim = kernel.blockDim = dim3(64);
    kernel.kernelParams = arguments;
    cudaGraphNode_t node;
    CUDA(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &kernel));
    return node;
}

// Allocates, fills, copies to the host, frees; a second allocation behind the free uses the same addresses.
static void own_memory(cudaStream_t stream) {
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    auto p = wanted();
    cudaGraphNode_t allocation, copy, release, second, last;
    CUDA(cudaGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &p));
    int* const address = static_cast<int*>(p.dptr);
    EXPECT(address != nullptr);
    const cudaGraphNode_t filled = fill_node(graph, {allocation}, address, 5);
    std::vector<int> host(count);
    CUDA(cudaGraphAddMemcpyNode1D(&copy, graph, &filled, 1, host.data(), address, bytes, cudaMemcpyDeviceToHost));
    CUDA(cudaGraphAddMemFreeNode(&release, graph, &copy, 1, address));
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&last, graph, &copy, 1, address));  // twice
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&last, graph, &copy, 1, address + 1));
    auto q = wanted(), beside = wanted();
    CUDA(cudaGraphAddMemAllocNode(&second, graph, &release, 1, &q));
    EXPECT(q.dptr == address);
    CUDA(cudaGraphAddMemAllocNode(&last, graph, &allocation, 1, &beside));
    EXPECT(beside.dptr != address);
    cudaGraphNode_t ignored;
    CUDA(cudaGraphAddMemFreeNode(&ignored, graph, &second, 1, q.dptr));
    CUDA(cudaGraphAddMemFreeNode(&ignored, graph, &last, 1, beside.dptr));
    cudaMemAllocNodeParams told;
    CUDA(cudaGraphMemAllocNodeGetParams(allocation, &told));
    EXPECT(told.dptr == address && told.bytesize == bytes);
    void* freed = nullptr;
    CUDA(cudaGraphMemFreeNodeGetParams(release, &freed));
    EXPECT(freed == address);
    cudaGraphNodeType type;
    CUDA(cudaGraphNodeGetType(release, &type));
    EXPECT(type == cudaGraphNodeTypeMemFree);

    cudaGraph_t other;
    FAILS(cudaErrorNotSupported, cudaGraphClone(&other, graph));
    FAILS(cudaErrorNotSupported, cudaGraphDestroyNode(release));
    FAILS(cudaErrorNotSupported, cudaGraphRemoveDependencies(graph, &copy, &release, nullptr, 1));
    CUDA(cudaGraphCreate(&other, 0));
    FAILS(cudaErrorNotSupported, cudaGraphAddChildGraphNode(&ignored, other, nullptr, 0, graph));
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&ignored, other, nullptr, 0, address));  // its own graph does
    CUDA(cudaGraphDestroy(other));

    EXPECT(attribute(cudaGraphMemAttrReservedMemCurrent) == 0);
    cudaGraphExec_t exec, again;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    FAILS(cudaErrorNotSupported, cudaGraphInstantiate(&again, graph, 0));  // one at a time
    for (int run = 0; run < 3; run++) {
        std::fill(host.begin(), host.end(), 0);
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < count; i++) EXPECT(host[i] == 5 + i);
        // Devices reserve in units that may be larger.
        EXPECT(attribute(cudaGraphMemAttrReservedMemCurrent) >= 2 * bytes);
        EXPECT(attribute(cudaGraphMemAttrUsedMemCurrent) >= 2 * bytes);  // until it is trimmed away
    }
    EXPECT(attribute(cudaGraphMemAttrUsedMemHigh) >= attribute(cudaGraphMemAttrUsedMemCurrent));
    EXPECT(attribute(cudaGraphMemAttrReservedMemHigh) >= attribute(cudaGraphMemAttrReservedMemCurrent));
    FAILS(cudaErrorInvalidValue, cudaFree(address));
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(address, stream));
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrReservedMemCurrent) == 0);
    std::uint64_t zero = 0, one = 1;
    FAILS(cudaErrorInvalidValue, cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &one));
    FAILS(cudaErrorInvalidValue, cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &zero));
    CUDA(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    EXPECT(attribute(cudaGraphMemAttrReservedMemHigh) == 0);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

// Captured allocations and frees; memory that leaves the graph, freed by the stream, by cudaFree and by another graph.
static void captured(cudaStream_t stream) {
    int *out, *scratch;
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaMallocAsync(&out, bytes, stream));
    CUDA(cudaMallocAsync(&scratch, bytes, stream));
    EXPECT(out != scratch);
    fill<<<64, 64, 0, stream>>>(scratch, count, 100);
    CUDA(cudaMemsetAsync(out, 0, bytes, stream));
    add<<<64, 64, 0, stream>>>(scratch, out, count);
    CUDA(cudaFreeAsync(scratch, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 6);
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    FAILS(cudaErrorInvalidValue, cudaFree(out));  // not there yet
    std::vector<int> host(count);
    const auto check = [&] {
        CUDA(cudaMemcpyAsync(host.data(), out, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < count; i++) EXPECT(host[i] == 100 + i);
    };
    CUDA(cudaGraphLaunch(exec, stream));
    check();
    FAILS(cudaErrorInvalidValue, cudaGraphLaunch(exec, stream));  // not freed
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrUsedMemCurrent) >= bytes);
    CUDA(cudaFreeAsync(out, stream));
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(out, stream));
    CUDA(cudaGraphLaunch(exec, stream));  // at once
    check();
    CUDA(cudaFree(out));
    FAILS(cudaErrorInvalidValue, cudaFree(out));
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrUsedMemCurrent) == 0);

    cudaGraph_t freeing;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaFreeAsync(out, stream));
    CUDA(cudaStreamEndCapture(stream, &freeing));
    cudaGraphExec_t freeing_exec;
    CUDA(cudaGraphInstantiate(&freeing_exec, freeing, 0));
    FAILS(cudaErrorInvalidValue, cudaGraphLaunch(freeing_exec, stream));  // nothing to free
    for (int run = 0; run < 3; run++) {
        CUDA(cudaGraphLaunch(exec, stream));
        check();
        CUDA(cudaGraphLaunch(freeing_exec, stream));
    }
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrUsedMemCurrent) == 0);
    CUDA(cudaGraphExecDestroy(freeing_exec));
    CUDA(cudaGraphDestroy(freeing));
    CUDA(cudaGraphExecDestroy(exec));

    // Freed by the next launch; and memory that outlives its graph.
    CUDA(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int run = 0; run < 3; run++) CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    check();
    CUDA(cudaFree(out));
    FAILS(cudaErrorInvalidValue, cudaFree(out));
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrReservedMemCurrent) == 0 && attribute(cudaGraphMemAttrUsedMemCurrent) == 0);

    // Memory of no graph cannot be freed by one, and the capture goes on.
    CUDA(cudaMalloc(&out, 100));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(out, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 0);
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(out));
}

// A stream that took part in a capture may be gone before its end, when its work has been joined.
static void streams_gone(cudaStream_t stream) {
    for (const bool join : {true, false}) {
        cudaStream_t other;
        cudaEvent_t fork, joined;
        CUDA(cudaStreamCreate(&other));
        CUDA(cudaEventCreate(&fork));
        CUDA(cudaEventCreate(&joined));
        int* p;
        CUDA(cudaMalloc(&p, bytes));
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        CUDA(cudaEventRecord(fork, stream));
        CUDA(cudaStreamWaitEvent(other, fork, 0));
        fill<<<1, 1, 0, other>>>(p, 2, 30);
        CUDA(cudaEventRecord(joined, other));
        if (join) CUDA(cudaStreamWaitEvent(stream, joined, 0));
        CUDA(cudaStreamDestroy(other));
        cudaGraph_t graph = nullptr;
        if (!join) {
            FAILS(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &graph));
        } else {
            CUDA(cudaStreamEndCapture(stream, &graph));
            cudaGraphExec_t exec;
            CUDA(cudaGraphInstantiate(&exec, graph, 0));
            CUDA(cudaGraphLaunch(exec, stream));
            int got[2];
            CUDA(cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost));
            EXPECT(got[0] == 30 && got[1] == 31);
            CUDA(cudaGraphExecDestroy(exec));
            CUDA(cudaGraphDestroy(graph));
        }
        CUDA(cudaEventDestroy(fork));
        CUDA(cudaEventDestroy(joined));
        CUDA(cudaFree(p));
    }
}

// A graph with memory becomes a part of another by being moved there.
static void moved(cudaStream_t stream) {
    cudaGraph_t graph, parent;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphCreate(&parent, 0));
    auto p = wanted();
    cudaGraphNode_t allocation, child, release;
    CUDA(cudaGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &p));
    fill_node(graph, {allocation}, static_cast<int*>(p.dptr), 9);
    cudaGraphNodeParams node = {};
    node.type = cudaGraphNodeTypeGraph;
    node.graph.graph = graph;
    node.graph.ownership = cudaGraphChildGraphOwnershipMove;
    CUDA(cudaGraphAddNode(&child, parent, nullptr, nullptr, 0, &node));
    FAILS(cudaErrorInvalidValue, cudaGraphDestroy(graph));
    cudaGraphNodeParams release_node = {};
    release_node.type = cudaGraphNodeTypeMemFree;
    release_node.free.dptr = p.dptr;
    int last = 0;
    cudaGraphNode_t copy;
    CUDA(cudaGraphAddMemcpyNode1D(&copy, parent, &child, 1, &last, static_cast<int*>(p.dptr) + count - 1, 4,
                                  cudaMemcpyDeviceToHost));
    CUDA(cudaGraphAddNode(&release, parent, &copy, nullptr, 1, &release_node));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, parent, 0));
    for (int run = 0; run < 2; run++) {
        last = 0;
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
        EXPECT(last == 9 + count - 1);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(parent));
    CUDA(cudaDeviceGraphMemTrim(0));
}

// Another graph of the same form brings memory of its own.
static void updated(cudaStream_t stream) {
    int *addresses[2], got = 0;
    cudaGraph_t graphs[2];
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphCreate(&graphs[i], 0));
        auto p = wanted();
        cudaGraphNode_t allocation, release;
        CUDA(cudaGraphAddMemAllocNode(&allocation, graphs[i], nullptr, 0, &p));
        addresses[i] = static_cast<int*>(p.dptr);
        const cudaGraphNode_t filled = fill_node(graphs[i], {allocation}, addresses[i], 20 + i);
        cudaGraphNode_t copy;
        CUDA(cudaGraphAddMemcpyNode1D(&copy, graphs[i], &filled, 1, &got, addresses[i], 4, cudaMemcpyDeviceToHost));
        CUDA(cudaGraphAddMemFreeNode(&release, graphs[i], &copy, 1, addresses[i]));
    }
    EXPECT(addresses[0] != addresses[1]);
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graphs[0], 0));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT(got == 20);
    CUDA(cudaGraphExecUpdate(exec, graphs[1], nullptr));
    CUDA(cudaGraphDestroy(graphs[0]));
    for (int run = 0; run < 2; run++) {
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
        EXPECT(got == 21);
        got = 0;
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graphs[1]));
    CUDA(cudaDeviceGraphMemTrim(0));
    EXPECT(attribute(cudaGraphMemAttrReservedMemCurrent) == 0);
}

// Outside of graphs their memory is none but between a launch that leaves it and a free.
static void outside(cudaStream_t stream) {
    int *kept, first = 0;
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaMallocAsync(&kept, bytes, stream));
    fill<<<64, 64, 0, stream>>>(kept, count, 8);
    CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(&first, kept, 4, cudaMemcpyDeviceToHost));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaMemcpyAsync(&first, kept, 4, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT(first == 8);
    CUDA(cudaFreeAsync(kept, stream));
    CUDA(cudaStreamSynchronize(stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(&first, kept, 4, cudaMemcpyDeviceToHost));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaDeviceGraphMemTrim(0));
}

// Whoever needs the memory misses it.
static void too_much(cudaMemAllocNodeParams p) {
    cudaGraph_t graph;
    cudaGraphNode_t node, release;
    cudaGraphExec_t exec;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    CUDA(cudaGraphAddMemFreeNode(&release, graph, &node, 1, p.dptr));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    FAILS(cudaErrorMemoryAllocation, cudaGraphUpload(exec, nullptr));
    FAILS(cudaErrorMemoryAllocation, cudaGraphLaunch(exec, nullptr));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaDeviceGraphMemTrim(0));
}

static void refusals() {
    int* device;
    int host;
    CUDA(cudaMalloc(&device, 4));  // now: an H200 does not give back what too_much() made it reserve
    std::size_t free_bytes, total;
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node;
    auto p = wanted(std::size_t{1} << 44);
    FAILS(cudaErrorMemoryAllocation, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    p = wanted(total * 2);
    too_much(p);
    p = wanted(0);
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, nullptr));
    p = wanted();
    p.poolProps.location.id = 9;
    FAILS(cudaErrorInvalidValue, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    p = wanted();
    p.poolProps.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    FAILS(cudaErrorNotSupported, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    FAILS(cudaErrorInvalidValue,
          cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, &host, device, 0, cudaMemcpyDeviceToHost));
    FAILS(cudaErrorInvalidValue, cudaGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr));
    FAILS(cudaErrorInvalidValue, cudaGraphAddEventWaitNode(&node, graph, nullptr, 0, nullptr));
    cudaGraphNodeParams unknown = {};
    unknown.type = static_cast<cudaGraphNodeType>(99);
    FAILS(cudaErrorInvalidValue, cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &unknown));
    CUDA(cudaFree(device));
    CUDA(cudaGraphDestroy(graph));
}

int main() {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    own_memory(stream);
    captured(stream);
    streams_gone(stream);
    moved(stream);
    updated(stream);
    outside(stream);
    refusals();
    std::printf("graph memory: ok\n");
}
