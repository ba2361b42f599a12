// SPDX-License-Identifier: MIT
// vector_add.cu as CUDA wants it: a buffer on each side and explicit copies. Prints the same.
#include <cstdio>
#include <vector>

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 4 << 20;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n);
    float *gpu_a, *gpu_b, *gpu_c;
    cudaMalloc(&gpu_a, bytes);
    cudaMalloc(&gpu_b, bytes);
    cudaMalloc(&gpu_c, bytes);

    for (int i = 0; i < n; ++i) {
        a[i] = static_cast<float>(i % 1000);
        b[i] = 0.5f;
    }
    cudaMemcpy(gpu_a, a.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(gpu_b, b.data(), bytes, cudaMemcpyHostToDevice);
    add<<<(n + 255) / 256, 256>>>(gpu_a, gpu_b, gpu_c, n);
    cudaMemcpy(c.data(), gpu_c, bytes, cudaMemcpyDeviceToHost);

    double sum = 0;
    for (int i = 0; i < n; ++i) sum += c[i];
    std::printf("sum of %d elements: %.1f\n", n, sum);

    cudaFree(gpu_a);
    cudaFree(gpu_b);
    cudaFree(gpu_c);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
