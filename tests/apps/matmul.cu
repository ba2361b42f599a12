// SPDX-License-Identifier: MIT
// A tiled matrix product, C = A B, then A = C scaled by the CPU, and once more.
#include "app.h"

constexpr int tile = 16;

__global__ void multiply(const float* a, const float* b, float* c, int n) {
    __shared__ float of_a[tile][tile], of_b[tile][tile];
    const int row = static_cast<int>(blockIdx.y) * tile + static_cast<int>(threadIdx.y);
    const int column = static_cast<int>(blockIdx.x) * tile + static_cast<int>(threadIdx.x);
    float sum = 0.0f;
    for (int t = 0; t < n; t += tile) {
        const int x = t + static_cast<int>(threadIdx.x), y = t + static_cast<int>(threadIdx.y);
        of_a[threadIdx.y][threadIdx.x] = row < n && x < n ? a[row * n + x] : 0.0f;
        of_b[threadIdx.y][threadIdx.x] = y < n && column < n ? b[y * n + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < tile; ++k) sum += of_a[threadIdx.y][k] * of_b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}

int main(int argc, char** argv) {
    const int n = static_cast<int>(size_argument(argc, argv, 72));
    const std::size_t cells = static_cast<std::size_t>(n) * n;
    Object<float> a = allocate<float>(cells), b = allocate<float>(cells), c = allocate<float>(cells);
    Random random(11);
    for (std::size_t i = 0; i < cells; ++i) {
        a[i] = static_cast<float>(random.below(64)) / 8.0f - 4.0f;
        b[i] = static_cast<float>(random.below(64)) / 16.0f - 2.0f;
    }
    to_gpu(b);

    const dim3 block(tile, tile), grid(blocks_for(n, tile), blocks_for(n, tile));
    Checksum checksum;
    double trace = 0;
    for (int round = 0; round < 2; ++round) {
        to_gpu(a);
        multiply<<<grid, block>>>(a.gpu, b.gpu, c.gpu, n);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        to_cpu(c);
        checksum.add(c.cpu, cells * sizeof(float));
        for (int i = 0; i < n; ++i) trace += c[static_cast<std::size_t>(i) * n + i];
        for (std::size_t i = 0; i < cells; ++i) a[i] = c[i] / 1024.0f;
    }
    std::printf("matmul n=%d trace=%.4f\n", n, trace);
    checksum.print();
    release(a);
    release(b);
    release(c);
    return 0;
}
