// SPDX-License-Identifier: MIT
// What the programs share that copy between the program's own memory and the device: one case a run; without arguments
// the names of the cases. Every case checks its bytes and prints what is the same wherever it runs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        const cudaError_t check_error = (call);                                                       \
        if (check_error != cudaSuccess) {                                                             \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error)); \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)
#define WANT(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            std::printf("WRONG %s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                     \
        }                                                                     \
    } while (0)

// With `default` behind the case the driver is to find out by the addresses.
static cudaMemcpyKind to_device = cudaMemcpyHostToDevice, to_host = cudaMemcpyDeviceToHost;

using Bytes = std::vector<unsigned char>;
constexpr std::size_t kMiB = 1 << 20;

static unsigned char pattern(std::size_t i, unsigned seed) {
    return static_cast<unsigned char>((i * 2654435761u + seed * 40503u) >> 13);
}
static void fill(unsigned char* p, std::size_t n, unsigned seed) {
    for (std::size_t i = 0; i < n; ++i) p[i] = pattern(i, seed);
}
static bool is(const unsigned char* p, std::size_t n, unsigned seed) {
    for (std::size_t i = 0; i < n; ++i) {
        if (p[i] != pattern(i, seed)) return false;
    }
    return true;
}

__global__ void add_one(unsigned char* p, std::size_t n) {
    for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
        ++p[i];
}
static void add_one_to(unsigned char* p, std::size_t n, cudaStream_t stream = nullptr) {
    add_one<<<64, 128, 0, stream>>>(p, n);
    CHECK(cudaGetLastError());
}

struct Device {
    unsigned char* p = nullptr;
    explicit Device(std::size_t n) { CHECK(cudaMalloc(&p, n)); }
    ~Device() { cudaFree(p); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
};

struct Case {
    const char* name;
    void (*run)();
};
template <std::size_t count>
static int run_case(const Case (&cases)[count], int argc, char** argv) {
    if (argc > 2 && std::strcmp(argv[2], "default") == 0) to_device = to_host = cudaMemcpyDefault;
    for (const Case& c : cases) {
        if (argc < 2)
            std::printf("%s\n", c.name);
        else if (std::strcmp(argv[1], c.name) == 0) {
            c.run();
            std::printf("%s ends\n", c.name);
        }
    }
    return 0;
}
