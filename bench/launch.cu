// SPDX-License-Identifier: MIT
// What a launch costs its thread: LAUNCHES launches of an empty kernel, back to back, without waiting.
// Prints nanoseconds a launch, for each of ROUNDS rounds. With "startup" instead: initialises CUDA and ends.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

__global__ void empty() {}

int main(int argc, char** argv) {
    if (cudaFree(nullptr) != cudaSuccess) return 1;
    if (argc > 1 && std::strcmp(argv[1], "startup") == 0) return 0;
    const int launches = argc > 1 ? std::atoi(argv[1]) : 100000, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
    void* object = nullptr;  // one that the CPU never touches
    if (cudaMalloc(&object, 1 << 20) != cudaSuccess) return 1;
    for (int round = 0; round <= rounds; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; ++i) empty<<<1, 1>>>();
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        if (cudaDeviceSynchronize() != cudaSuccess) return 1;
        if (round > 0) std::printf("%.1f\n", took.count() / launches);
    }
    return 0;
}
