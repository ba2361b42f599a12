// SPDX-License-Identifier: MIT
// Managed variables, which CUDA itself shares between CPU and GPU, beside objects that only libhpe shares: the CPU
// finds its orders for the GPU, and the GPU its objects, in the same variable.
#include "app.h"

struct Order {
    unsigned* data;
    unsigned count;
    unsigned key;
};

__managed__ Order order;
__managed__ unsigned totals[4] = {1, 2, 3, 4};

__global__ void serve() {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= order.count) return;
    order.data[i] = order.data[i] * 40503u + order.key;
    atomicAdd(&totals[i % 4], order.data[i]);
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 5003);
    Object<unsigned> objects[2] = {allocate<unsigned>(n), allocate<unsigned>(n / 2)};
    for (const Object<unsigned>& o : objects) {
        for (std::size_t i = 0; i < o.count; ++i) o[i] = static_cast<unsigned>(i * o.count);
    }
    Checksum checksum;
    checksum.add(totals, sizeof totals);
    for (unsigned round = 0; round < 6; ++round) {
        const Object<unsigned>& o = objects[round % 2];
        order = Order{o.gpu, static_cast<unsigned>(o.count), totals[round % 4]};
        to_gpu(o);
        serve<<<blocks_for(o.count, 128), 128>>>();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        to_cpu(o);
        checksum.add(totals, sizeof totals);
        checksum.add(o.cpu, o.count * sizeof(unsigned));
        o[round] ^= totals[0];
        ++totals[1];
    }
    std::printf("managed_globals n=%zu totals=%u,%u,%u,%u\n", n, totals[0], totals[1], totals[2], totals[3]);
    checksum.print();
    for (Object<unsigned>& o : objects) release(o);
    return 0;
}
