// SPDX-License-Identifier: MIT
// The CPU reads a kernel's result as soon as the launch has returned, and writes into what the kernel still reads,
// without a word of synchronisation: with one pointer an access means the value that the program's order gives it.
// The explicit form has to synchronise, as every CUDA program does today.
#include "app.h"

__global__ void slow(const unsigned* from, unsigned* to, std::size_t n, unsigned turns) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    unsigned value = from[i];
    for (unsigned t = 0; t < turns; ++t) value = value * 1664525u + 1013904223u;
    to[i] = value;
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 3000);
    constexpr unsigned turns = 100;
    Object<unsigned> a = allocate<unsigned>(n), b = allocate<unsigned>(n);
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<unsigned>(i);
    to_gpu(a);

    Checksum checksum;
    for (unsigned round = 0; round < 6; ++round) {
        slow<<<blocks_for(n, 64), 64>>>(a.gpu, b.gpu, n, turns);
        slow<<<blocks_for(n, 64), 64>>>(b.gpu, a.gpu, n, turns);
        CHECK(cudaGetLastError());
        if (explicit_copies) CHECK(cudaDeviceSynchronize());

        if (round % 2 == 0) {
            to_cpu(a);
            checksum.add(a[n - 1]);
            checksum.add(a.cpu, n * sizeof(unsigned));
        }
        b[round] = round;  // nobody reads b before it is written again, except here:
        checksum.add(b[round]);
        if (explicit_copies) to_gpu(b, round, 1);
        to_cpu(a, round, 1);
        a[round] += 5;
        to_gpu(a, round, 1);
    }
    to_cpu(a);
    checksum.add(a.cpu, n * sizeof(unsigned));
    std::printf("early_reader n=%zu turns=%u\n", n, turns);
    checksum.print();
    release(a);
    release(b);
    return 0;
}
