// SPDX-License-Identifier: MIT
// Kernel arguments that live in an object: the values, and the array of pointers to them. A launch reads them on the
// CPU, at the very moment at which every object is given to the device.
#include "app.h"

struct Weights {
    float scale, shift;
};

__global__ void apply(float* data, unsigned n, Weights w) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * w.scale + w.shift;
}

// Takes its time.
__global__ void decide(Weights* w) {
    volatile unsigned turns = 0;
    while (turns < 300000) turns = turns + 1;
    *w = {2.0f, static_cast<float>(turns)};
}

struct Call {
    void* pointers[3];
    float* data;
    unsigned n;
    Weights weights;
};

int main() {
    constexpr unsigned n = 5000;
    Object<float> data = allocate<float>(n);
    Object<Call> call = allocate<Call>(1);
    for (unsigned i = 0; i < n; ++i) data[i] = static_cast<float>(i);
    to_gpu(data);
    Call& c = call[0];
    c.data = data.gpu;
    c.n = n;
    c.pointers[0] = &c.data;
    c.pointers[1] = &c.n;
    c.pointers[2] = &c.weights;
    for (int round = 0; round < 5; ++round) {
        c.weights = {1.25f, static_cast<float>(round)};
        CHECK(cudaLaunchKernel(apply, dim3(blocks_for(n, 128)), dim3(128), c.pointers, 0, nullptr));
    }
    CHECK(cudaDeviceSynchronize());
    to_cpu(data);
    double sum = 0;
    for (unsigned i = 0; i < n; ++i) sum += data[i];
    std::printf("arguments n=%u sum=%.1f\n", n, sum);
    Checksum checksum;
    checksum.add(data.cpu, n * sizeof(float));
    checksum.print();
    // What a kernel that still runs will write.
    const float before = data[7];
    decide<<<1, 1>>>(&call.gpu->weights);
    CHECK(cudaGetLastError());
    to_cpu(call);
    unsigned count = n;
    void* pointers[] = {&data.gpu, &count, &c.weights};
    CHECK(cudaLaunchKernel(apply, dim3(blocks_for(n, 128)), dim3(128), pointers, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    to_cpu(data);
    if (data[7] != before * 2.0f + 300000.0f) {
        std::printf("WRONG %f\n", data[7]);
        return 1;
    }
    release(data);
    release(call);
    return 0;
}
