// SPDX-License-Identifier: MIT
// Copies and memsets over what the CPU wrote. One that the driver refuses must leave the CPU's data alone, all of them.
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

static int wrong = 0;

// Fills the object on the CPU, makes the call over it, and looks at every byte.
template <class Call>
static void try_over(const char* name, unsigned char* object, std::size_t bytes, unsigned char mine,
                     unsigned char theirs, Call&& call) {
    volatile unsigned char* const by_cpu = object;  // and not by memset
    for (std::size_t i = 0; i < bytes; ++i) by_cpu[i] = mine;
    const cudaError_t error = call();
    cudaDeviceSynchronize();
    const unsigned char wanted = error == cudaSuccess ? theirs : mine;
    std::size_t bad = 0;
    for (std::size_t i = 0; i < bytes; ++i) bad += object[i] != wanted;
    if (bad != 0) ++wrong;
    std::printf("%s: %s, %zu bytes WRONG\n", name, cudaGetErrorName(error), bad);
}

int main() {
    const std::size_t bytes = 300000;
    unsigned char *object = nullptr, *other = nullptr;
    if (cudaMalloc(&object, bytes) != cudaSuccess || cudaMalloc(&other, bytes) != cudaSuccess) return 2;
    std::vector<unsigned char> host(bytes, 9);
    if (cudaMemset(other, 8, bytes) != cudaSuccess) return 2;
    try_over("copy", object, bytes, 1, 9,
             [&] { return cudaMemcpy(object, host.data(), bytes, cudaMemcpyHostToDevice); });
    try_over("asynchronous copy", object, bytes, 2, 9,
             [&] { return cudaMemcpyAsync(object, host.data(), bytes, cudaMemcpyHostToDevice); });
    try_over("copy on the device", object, bytes, 3, 8,
             [&] { return cudaMemcpy(object, other, bytes, cudaMemcpyDeviceToDevice); });
    try_over("memset", object, bytes, 4, 7, [&] { return cudaMemset(object, 7, bytes); });
    try_over("2D copy", object, bytes, 5, 9,
             [&] { return cudaMemcpy2D(object, 1000, host.data(), 1000, 1000, bytes / 1000, cudaMemcpyHostToDevice); });
    return wrong != 0;
}
