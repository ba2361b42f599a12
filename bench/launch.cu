// SPDX-License-Identifier: MIT
// What libhpe adds to a launch: LAUNCHES launches of an empty kernel, back to back and without waiting, through the
// function that programs are given and through the driver's own, in turn (own.h).
//
//   launch [LAUNCHES [BATCH]]   prints, for every BATCH launches: nanoseconds a launch given, nanoseconds a launch true
//   launch startup              initialises CUDA and ends
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda.h>
#include <cuda_runtime.h>

#include "own.h"

__global__ void empty() {}

using Launch = decltype(&cuLaunchKernel);

static double time_launches(Launch launch, CUfunction kernel, int count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / count;
}

int main(int argc, char** argv) {
    if (cudaFree(nullptr) != cudaSuccess) return 1;
    if (argc > 1 && std::strcmp(argv[1], "startup") == 0) return 0;
    const int launches = argc > 1 ? std::atoi(argv[1]) : 100000, batch = argc > 2 ? std::atoi(argv[2]) : 250;
    void* object = nullptr;  // one that the CPU never touches
    cudaFunction_t function = nullptr;
    if (cudaMalloc(&object, 1 << 20) != cudaSuccess ||
        cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(empty)) != cudaSuccess)
        return 1;
    const auto launch = find_twice<Launch>("cuLaunchKernel");
    const auto kernel = static_cast<CUfunction>(function);
    for (int done = -10 * batch, turn = 0; done < launches; done += batch, ++turn) {
        double took[2];
        for (int k = 0; k < 2; ++k) {
            const bool first = (k == 0) == (turn % 2 == 0);
            took[first ? 0 : 1] = time_launches(first ? launch.given : launch.own, kernel, batch);
            if (cudaDeviceSynchronize() != cudaSuccess) return 1;
        }
        if (done >= 0) std::printf("%.1f %.1f\n", took[0], took[1]);
    }
    return 0;
}
