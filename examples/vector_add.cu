// SPDX-License-Identifier: MIT
// An ordinary CUDA program that a beginner would write: one pointer for CPU and GPU. CUDA does not allow that: the first
// line that touches `a` on the CPU dies. Under LD_PRELOAD=libhpe.so it is right.
#include <cstdio>

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 4 << 20;
    float *a, *b, *c;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    cudaMalloc(&c, n * sizeof(float));

    for (int i = 0; i < n; ++i) {
        a[i] = static_cast<float>(i % 1000);
        b[i] = 0.5f;
    }
    add<<<(n + 255) / 256, 256>>>(a, b, c, n);

    double sum = 0;
    for (int i = 0; i < n; ++i) sum += c[i];
    std::printf("sum of %d elements: %.1f\n", n, sum);

    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
