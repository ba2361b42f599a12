// SPDX-License-Identifier: MIT
// Iterated y = a x + y. Between two iterations the CPU reads a few elements, changes a few, and rewrites a block of x:
// the data that moves each time is much less than the objects.
#include "app.h"

__global__ void saxpy(float a, const float* x, float* y, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 20011);
    constexpr int iterations = 12;
    Object<float> x = allocate<float>(n), y = allocate<float>(n);
    for (std::size_t i = 0; i < n; ++i) {
        x[i] = static_cast<float>(i % 97) - 48.0f;
        y[i] = static_cast<float>(i % 31);
    }
    to_gpu(x);
    to_gpu(y);

    double seen = 0;
    for (int k = 0; k < iterations; ++k) {
        saxpy<<<blocks_for(n, 128), 128>>>(0.5f + 0.125f * static_cast<float>(k), x.gpu, y.gpu, n);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());

        const std::size_t at = (n / iterations) * static_cast<std::size_t>(k);
        to_cpu(y, at, 3);
        seen += y[at] + 2.0f * y[at + 1] + 3.0f * y[at + 2];
        y[at + 1] = static_cast<float>(k);
        to_gpu(y, at + 1, 1);
        for (std::size_t i = at; i < at + n / iterations; ++i) x[i] = -x[i];
        to_gpu(x, at, n / iterations);
    }
    to_cpu(y);

    Checksum checksum;
    checksum.add(x.cpu, n * sizeof(float));
    checksum.add(y.cpu, n * sizeof(float));
    std::printf("saxpy n=%zu iterations=%d seen=%.4f\n", n, iterations, seen);
    checksum.print();
    release(x);
    release(y);
    return 0;
}
