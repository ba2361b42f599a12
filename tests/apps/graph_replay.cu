// SPDX-License-Identifier: MIT
// A graph captured once, with a fork and a join, and launched many times; the CPU reads and writes its objects between
// launches. Then a graph built node by node, whose kernel gets other arguments while it is being used.
#include "app.h"

__global__ void advance(const unsigned* from, unsigned* to, std::size_t n, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) to[i] = from[i] * 134775813u + key;
}

__global__ void join(const unsigned* a, const unsigned* b, const unsigned char* c, unsigned* to, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) to[i] = a[i] ^ (b[n - 1 - i] + c[i]);
}

int main(int argc, char** argv) {
    std::size_t n = size_argument(argc, argv, 4001);
    const std::size_t bytes = n * sizeof(unsigned);
    Object<unsigned> in = allocate<unsigned>(n), left = allocate<unsigned>(n), right = allocate<unsigned>(n);
    Object<unsigned> saved = allocate<unsigned>(n);
    Object<unsigned char> filled = allocate<unsigned char>(n);
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned>(3 * i + 1);
    to_gpu(in);
    const unsigned blocks = blocks_for(n, 128);

    cudaStream_t stream, other;
    cudaEvent_t fork, joined;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&joined));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(other, fork, 0));
    advance<<<blocks, 128, 0, stream>>>(in.gpu, left.gpu, n, 11);
    advance<<<blocks, 128, 0, other>>>(in.gpu, right.gpu, n, 12);
    CHECK(cudaMemsetAsync(filled.gpu, 0x5a, n, other));
    CHECK(cudaEventRecord(joined, other));
    CHECK(cudaStreamWaitEvent(stream, joined, 0));
    CHECK(cudaMemcpyAsync(saved.gpu, in.gpu, bytes, cudaMemcpyDeviceToDevice, stream));
    join<<<blocks, 128, 0, stream>>>(left.gpu, right.gpu, filled.gpu, in.gpu, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));

    Checksum checksum;
    constexpr int launches = 20;
    for (int k = 0; k < launches; ++k) {
        CHECK(cudaGraphLaunch(exec, stream));
        if (k % 4 == 1) continue;  // two launches in a row
        CHECK(cudaStreamSynchronize(stream));
        const std::size_t at = static_cast<std::size_t>(k) * 191 % (n - 1);
        to_cpu(in, at, 1);
        to_cpu(saved, at, 1);
        checksum.add(in[at]);
        checksum.add(saved[at]);
        in[at] = static_cast<unsigned>(k);
        to_gpu(in, at, 1);
    }

    // The same by hand: a kernel node between two copies.
    cudaGraph_t built;
    cudaGraphNode_t copy_in, kernel, copy_out;
    CHECK(cudaGraphCreate(&built, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&copy_in, built, nullptr, 0, left.gpu, in.gpu, bytes, cudaMemcpyDeviceToDevice));
    unsigned key = 21;
    void* arguments[] = {&left.gpu, &right.gpu, &n, &key};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(advance);
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, built, &copy_in, 1, &params));
    CHECK(cudaGraphAddMemcpyNode1D(&copy_out, built, &kernel, 1, in.gpu, right.gpu, bytes, cudaMemcpyDeviceToDevice));
    cudaGraphExec_t built_exec;
    CHECK(cudaGraphInstantiate(&built_exec, built, 0));
    for (key = 22; key < 26; ++key) {
        CHECK(cudaGraphLaunch(built_exec, stream));
        CHECK(cudaGraphExecKernelNodeSetParams(built_exec, kernel, &params));
    }
    CHECK(cudaStreamSynchronize(stream));
    to_cpu(in);
    checksum.add(in.cpu, bytes);
    to_cpu(filled);
    checksum.add(filled.cpu, n);

    std::printf("graph_replay n=%zu nodes=%zu launches=%d\n", n, nodes, launches);
    checksum.print();
    CHECK(cudaGraphExecDestroy(built_exec));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(built));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    release(in);
    release(left);
    release(right);
    release(saved);
    release(filled);
    return 0;
}
