// SPDX-License-Identifier: MIT
// Batches of copies between pointers, in one and in three dimensions, of every order of access to the source; batches
// that discard managed memory; what is refused, captures among it, and then not done in part either.
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

constexpr int count = 1000;
constexpr std::size_t bytes = count * sizeof(int);

__global__ void fill_on_device(int* p, int n, int value) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = value + i;
}

static void fill(int* p, int value) {
    for (int i = 0; i < count; i++) p[i] = value + i;
}
static void check(const int* p, int value) {
    for (int i = 0; i < count; i++) EXPECT(p[i] == value + i);
}

static cudaMemcpyAttributes order(cudaMemcpySrcAccessOrder which) {
    cudaMemcpyAttributes a = {};
    a.srcAccessOrder = which;
    return a;
}

static void lines(cudaStream_t stream) {
    Buffer<int> a(count), b(count), c(count);
    int* pinned;
    CUDA(cudaMallocHost(&pinned, bytes));
    std::vector<int> ephemeral(count), out(count), back(count);
    fill(ephemeral.data(), 5);
    fill(pinned, 7);
    // The second source is written by a function of the stream before the batch.
    std::vector<int> later(count);
    fill_on_device<<<1, 32, 0, stream>>>(a.p, count, 100);
    const auto write_late = [](void* p) {
        usleep(50000);
        fill(static_cast<int*>(p), 300);
    };
    CUDA(cudaLaunchHostFunc(stream, write_late, later.data()));
    void* to[] = {b.p, c.p, out.data()};
    const void* from[] = {ephemeral.data(), later.data(), a.p};
    std::size_t sizes[] = {bytes, bytes, bytes}, first[] = {0, 1};
    cudaMemcpyAttributes attributes[] = {order(cudaMemcpySrcAccessOrderDuringApiCall),
                                         order(cudaMemcpySrcAccessOrderStream)};
    CUDA(cudaMemcpyBatchAsync(to, from, sizes, 3, attributes, first, 2, stream));
    std::memset(ephemeral.data(), 0, bytes);
    CUDA(cudaStreamSynchronize(stream));
    check(out.data(), 100);
    b.get(back.data());
    check(back.data(), 5);
    c.get(back.data());
    check(back.data(), 300);
    // Pinned memory, too, is free again when the call returns.
    CUDA(cudaLaunchHostFunc(stream, [](void*) { usleep(50000); }, nullptr));
    void* one_to[] = {b.p};
    const void* one_from[] = {pinned};
    CUDA(cudaMemcpyBatchAsync(one_to, one_from, sizes, 1, attributes, first, 1, stream));
    std::memset(pinned, 0, bytes);
    CUDA(cudaStreamSynchronize(stream));
    b.get(back.data());
    check(back.data(), 7);

    // No node of a graph is a batch.
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    FAILS(cudaErrorStreamCaptureUnsupported, cudaMemcpyBatchAsync(one_to, one_from, sizes, 1, attributes, first, 1, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT(graph != nullptr);
    CUDA(cudaGraphDestroy(graph));
    b.get(back.data());
    check(back.data(), 7);

    // What comes ahead of a copy that cannot be is done.
    CUDA(cudaMemset(b.p, 0, bytes));
    void* bad_to[] = {b.p, c.p};
    const void* bad_from[] = {a.p, a.p};
    std::size_t bad_sizes[] = {bytes, bytes + (1ull << 36)};
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(bad_to, bad_from, bad_sizes, 2, attributes, first, 1, stream));
    CUDA(cudaStreamSynchronize(stream));
    b.get(back.data());
    EXPECT(back[count - 1] != 0);
    std::size_t empty[] = {bytes, 0};
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(bad_to, bad_from, empty, 2, attributes, first, 1, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 0, attributes, first, 1, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 1, attributes, first, 2, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 1, nullptr, first, 1, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 1, attributes, first, 1, nullptr));
    std::size_t wrong[] = {1, 1};
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 3, attributes, wrong, 2, stream));
    cudaMemcpyAttributes none = {};
    FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 1, &none, first, 1, stream));
    CUDA(cudaFreeHost(pinned));
}

static void boxes(cudaStream_t stream) {
    // 5 x 4 x 3 bytes from rows of 16 and layers of 6 rows to rows of 8 and layers of 4.
    constexpr int width = 5, height = 4, depth = 3;
    std::vector<unsigned char> from(16 * 6 * depth), to(8 * 4 * depth, 0xee);
    for (std::size_t i = 0; i < from.size(); i++) from[i] = static_cast<unsigned char>(i);
    Buffer<unsigned char> device(from.size());
    cudaMemcpy3DBatchOp list[2] = {};
    const auto describe = [&](cudaMemcpy3DOperand& operand, void* p, std::size_t row, std::size_t layer) {
        operand.type = cudaMemcpyOperandTypePointer;
        operand.op.ptr.ptr = p;
        operand.op.ptr.rowLength = row;
        operand.op.ptr.layerHeight = layer;
    };
    for (auto& op : list) {
        op.extent = make_cudaExtent(width, height, depth);
        op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    }
    describe(list[0].src, from.data(), 16, 6);
    describe(list[0].dst, device.p, 16, 6);
    CUDA(cudaMemcpy3DBatchAsync(1, list, 0, stream));
    describe(list[1].src, device.p, 16, 6);
    describe(list[1].dst, to.data(), 8, 4);
    CUDA(cudaMemcpy3DBatchAsync(1, list + 1, 0, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int z = 0; z < depth; z++)
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 8; x++) {
                const int got = to[(z * 4 + y) * 8 + x];
                EXPECT(got == (x < width ? static_cast<unsigned char>((z * 6 + y) * 16 + x) : 0xee));
            }
    FAILS(cudaErrorInvalidValue, cudaMemcpy3DBatchAsync(2, list, 1, stream));
    list[1].extent.depth = 0;
    FAILS(cudaErrorInvalidValue, cudaMemcpy3DBatchAsync(2, list, 0, stream));
    list[1].extent.depth = depth;
    list[1].src.type = static_cast<cudaMemcpy3DOperandType>(9);
    FAILS(cudaErrorInvalidValue, cudaMemcpy3DBatchAsync(2, list, 0, stream));
}

static void discards(cudaStream_t stream) {
    int* managed;
    CUDA(cudaMallocManaged(&managed, bytes));
    Buffer<int> plain(count);
    void* pointers[] = {managed};
    std::size_t sizes[] = {bytes};
    CUDA(cudaMemDiscardBatchAsync(pointers, sizes, 1, 0, stream));
    CUDA(cudaStreamSynchronize(stream));
    fill_on_device<<<1, 32, 0, stream>>>(managed, count, 1);
    CUDA(cudaStreamSynchronize(stream));
    check(managed, 1);
    void* wrong[] = {plain.p};
    FAILS(cudaErrorInvalidValue, cudaMemDiscardBatchAsync(wrong, sizes, 1, 0, stream));
    FAILS(cudaErrorInvalidValue, cudaMemDiscardBatchAsync(pointers, sizes, 0, 0, stream));
    CUDA(cudaFree(managed));
}

int main() {
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    lines(stream);
    boxes(stream);
    discards(stream);
    std::printf("batch: ok\n");
}
