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
    release(data);
    release(call);
    return 0;
}
