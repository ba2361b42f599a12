// SPDX-License-Identifier: MIT
// The first CUDA program of everybody: the CPU fills two vectors, the GPU adds them, the CPU reads the sum.
#include "app.h"

__global__ void add(const float* a, const float* b, float* c, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 20011);
    Object<float> a = allocate<float>(n), b = allocate<float>(n), c = allocate<float>(n);
    for (std::size_t i = 0; i < n; ++i) {
        a[i] = static_cast<float>(i % 1021) * 0.5f;
        b[i] = static_cast<float>(i % 509) * 0.25f;
    }
    to_gpu(a);
    to_gpu(b);
    add<<<blocks_for(n, 256), 256>>>(a.gpu, b.gpu, c.gpu, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    to_cpu(c);

    double sum = 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
        sum += c[i];
        wrong += c[i] != a[i] + b[i];
    }
    Checksum checksum;
    checksum.add(c.cpu, n * sizeof(float));
    std::printf("vector_add n=%zu sum=%.2f wrong=%zu\n", n, sum, wrong);
    checksum.print();
    release(a);
    release(b);
    release(c);
    return wrong != 0;
}
