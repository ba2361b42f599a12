// SPDX-License-Identifier: MIT
// Kernels that the soft device is timed on; bench/softgpu.py counts the instructions.
//
//   softgpu WORK [LAUNCHES]
//   WORK   vector_add | matmul | reduction | stencil | nbody | histogram | empty
//
// Prints the seconds that the launches took, after one that warms up. Exits 1 if a result is wrong.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

constexpr int kTile = 16;

__global__ void empty() {}

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[kTile][kTile], tb[kTile][kTile];
    const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += kTile) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < kTile; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void reduction(const float* in, float* out, int n) {
    __shared__ float part[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__global__ void stencil(const float* in, float* out, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= n - 1 || y >= n - 1) return;
    for (int z = 1; z < n - 1; ++z) {
        const int i = (z * n + y) * n + x;
        out[i] = 0.4f * in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n]);
    }
}

__global__ void nbody(const float4* bodies, float4* forces, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 me = bodies[i];
    float4 force = {0, 0, 0, 0};
    for (int j = 0; j < n; ++j) {
        const float4 other = bodies[j];
        const float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
        const float inverse = rsqrtf(x * x + y * y + z * z + 0.01f);
        const float pull = other.w * inverse * inverse * inverse;
        force.x += x * pull;
        force.y += y * pull;
        force.z += z * pull;
    }
    forces[i] = force;
}

__global__ void histogram(const unsigned* in, unsigned* bins, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[in[i] & 255], 1u);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

template <class T>
static T* on_device(const std::vector<T>& host) {
    T* device = nullptr;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <class T>
static std::vector<T> on_host(const T* device, std::size_t count) {
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

template <class Launch>
static void time_launches(int launches, Launch&& launch) {
    launch();
    CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) launch();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f\n", took.count());
}

static void want(bool right) {
    if (right) return;
    std::fprintf(stderr, "wrong result\n");
    std::exit(1);
}

int main(int argc, char** argv) {
    const std::string work = argc > 1 ? argv[1] : "";
    const int launches = argc > 2 ? std::atoi(argv[2]) : 3;
    if (work == "empty") {
        time_launches(launches, [] { empty<<<1, 1>>>(); });
    } else if (work == "vector_add") {
        const int n = 4 << 20;
        const float *a = on_device(std::vector<float>(n, 1.5f)), *b = on_device(std::vector<float>(n, 2.0f));
        float* c = on_device(std::vector<float>(n));
        time_launches(launches, [&] { vector_add<<<n / 256, 256>>>(a, b, c, n); });
        for (float x : on_host(c, n)) want(x == 3.5f);
    } else if (work == "matmul") {
        const int n = 256;
        const float *a = on_device(std::vector<float>(n * n, 0.5f)), *b = on_device(std::vector<float>(n * n, 2.0f));
        float* c = on_device(std::vector<float>(n * n));
        time_launches(launches, [&] { matmul<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(a, b, c, n); });
        for (float x : on_host(c, n * n)) want(x == static_cast<float>(n));
    } else if (work == "reduction") {
        const int n = 4 << 20, blocks = 256;
        const float* in = on_device(std::vector<float>(n, 1.0f));
        float* out = on_device(std::vector<float>(blocks));
        time_launches(launches, [&] { reduction<<<blocks, 256>>>(in, out, n); });
        for (float x : on_host(out, blocks)) want(x == static_cast<float>(n / blocks));
    } else if (work == "stencil") {
        const int n = 128;
        const float* in = on_device(std::vector<float>(n * n * n, 1.0f));
        float* out = on_device(std::vector<float>(n * n * n));
        time_launches(launches, [&] { stencil<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(in, out, n); });
        want(std::fabs(on_host(out, n * n * n)[(64 * n + 64) * n + 64] - 1.0f) < 1e-5f);
    } else if (work == "nbody") {
        const int n = 2048;
        std::vector<float4> bodies(n, float4{1, 2, 3, 1});
        bodies[0] = {1, 2, 4, 1};
        const float4* in = on_device(bodies);
        float4* out = on_device(std::vector<float4>(n));
        time_launches(launches, [&] { nbody<<<n / 128, 128>>>(in, out, n); });
        want(std::fabs(on_host(out, n)[5].z - 0.98518533f) < 1e-4f);
    } else if (work == "histogram") {
        const int n = 1 << 20, blocks = 64;
        std::vector<unsigned> values(n);
        for (int i = 0; i < n; ++i) values[i] = static_cast<unsigned>(i) * 2654435761u >> 24;
        const unsigned* in = on_device(values);
        unsigned* bins = on_device(std::vector<unsigned>(256));
        time_launches(launches, [&] { histogram<<<blocks, 256>>>(in, bins, n); });
        unsigned long long sum = 0;
        for (unsigned x : on_host(bins, 256)) sum += x;
        want(sum == static_cast<unsigned long long>(n) * (launches + 1));
    } else {
        std::fprintf(stderr, "unknown work '%s'\n", work.c_str());
        return 2;
    }
    return 0;
}
