// SPDX-License-Identifier: MIT
// What the soft device finds in graphs where hardware need not: memory that is used while it is not there, a handle of a
// conditional node outside of its graph; and a launch that needs more memory than the device has, of which nothing is
// left behind.
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "check.h"

constexpr std::size_t bytes = 4 << 20;
constexpr int count = bytes / sizeof(int);

__global__ void fill(int* p, int n, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = value + i;
}
__global__ void set(cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, 1); }

static cudaMemAllocNodeParams wanted(std::size_t size = bytes) {
    cudaMemAllocNodeParams p = {};
    p.poolProps.allocType = cudaMemAllocationTypePinned;
    p.poolProps.location.type = cudaMemLocationTypeDevice;
    p.bytesize = size;
    return p;
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

// More than the device has is an error of the launch, and nothing is left behind.
static void too_much() {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    std::size_t free_bytes, total;
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node;
    for (int i = 0; i < 2; i++) {
        auto p = wanted(total / 4 * 3);
        CUDA(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    }
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    FAILS(cudaErrorMemoryAllocation, cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaDeviceGraphMemTrim(0));
    std::size_t now;
    CUDA(cudaMemGetInfo(&now, &total));
    EXPECT(now == free_bytes);
}

// A kernel that comes before the allocation, or after the free, touches memory that is not there.
static void not_there(bool before) {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    auto p = wanted();
    cudaGraphNode_t first, allocation, release;
    CUDA(cudaGraphAddEmptyNode(&first, graph, nullptr, 0));
    CUDA(cudaGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &p));
    CUDA(cudaGraphAddMemFreeNode(&release, graph, &allocation, 1, p.dptr));
    const cudaGraphNode_t filled = fill_node(graph, {before ? first : release}, static_cast<int*>(p.dptr), 1);
    if (before) CUDA(cudaGraphAddDependencies(graph, &filled, &allocation, nullptr, 1));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
}

static void nobodys_handle() {
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    set<<<1, 1>>>(handle);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

int main() {
    alone(too_much);
    alone([] { not_there(true); });
    alone([] { not_there(false); });
    alone(nobodys_handle);
    std::printf("graph faults: ok\n");
}
