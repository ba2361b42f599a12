// SPDX-License-Identifier: MIT
// The same work with the memory that its user may choose: vector add (the CPU writes two inputs, the GPU adds, the CPU reads
// the result) and sparse touches (the CPU writes an element every 16 MiB, the GPU adds, the CPU reads one every MiB).
//
//   memory WORK MEMORY [ELEMENTS [ROUNDS]]
//   WORK    vector_add | sparse
//   MEMORY  pageable | pinned | managed | prefetched | one_pointer (needs libhpe)
//
// Prints milliseconds of each round, one a line, after a round to warm up; allocations are outside. Exits 1 if the result
// is wrong.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.h"

__global__ void add(float* c, const float* a, const float* b, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

struct Array {
    float* cpu;
    float* gpu;
};

static Array allocate(const std::string& memory, std::size_t bytes) {
    Array x{};
    if (memory == "managed" || memory == "prefetched") {
        CHECK(cudaMallocManaged(&x.gpu, bytes));
        x.cpu = x.gpu;
        return x;
    }
    CHECK(cudaMalloc(&x.gpu, bytes));
    if (memory == "one_pointer") x.cpu = x.gpu;
    if (memory == "pageable") x.cpu = static_cast<float*>(std::malloc(bytes));
    if (memory == "pinned") CHECK(cudaMallocHost(&x.cpu, bytes));
    if (x.cpu == nullptr) {
        std::fprintf(stderr, "unknown memory %s\n", memory.c_str());
        std::exit(2);
    }
    return x;
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string work = argv[1], memory = argv[2];
    const std::size_t n = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::size_t{64} << 20;
    const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
    const std::size_t bytes = n * sizeof(float);
    const bool copies = memory == "pageable" || memory == "pinned";
    const bool sparse = work == "sparse";
    const std::size_t write_step = sparse ? std::size_t{4} << 20 : 1, read_step = sparse ? std::size_t{256} << 10 : 1;
    const Array a = allocate(memory, bytes), b = allocate(memory, bytes), c = allocate(memory, bytes);
    const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};

    for (std::size_t i = 0; i < n; ++i) {
        a.cpu[i] = 1.0f;
        b.cpu[i] = 2.0f;
    }
    for (int round = 0; round <= rounds; ++round) {
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        const float value = static_cast<float>(round + 1);
        for (std::size_t i = 0; i < n; i += write_step) a.cpu[i] = value;
        if (!sparse) {
            for (std::size_t i = 0; i < n; ++i) b.cpu[i] = 2.0f;
        }
        if (copies) {
            CHECK(cudaMemcpy(a.gpu, a.cpu, bytes, cudaMemcpyHostToDevice));
            CHECK(cudaMemcpy(b.gpu, b.cpu, bytes, cudaMemcpyHostToDevice));
        }
        if (memory == "prefetched") {
            CHECK(cudaMemPrefetchAsync(a.gpu, bytes, device, 0, 0));
            CHECK(cudaMemPrefetchAsync(b.gpu, bytes, device, 0, 0));
            CHECK(cudaMemPrefetchAsync(c.gpu, bytes, device, 0, 0));
        }
        add<<<static_cast<unsigned>((n + 255) / 256), 256>>>(c.gpu, a.gpu, b.gpu, n);
        CHECK(cudaGetLastError());
        if (memory == "prefetched") CHECK(cudaMemPrefetchAsync(c.gpu, bytes, host, 0, 0));
        if (copies) CHECK(cudaMemcpy(c.cpu, c.gpu, bytes, cudaMemcpyDeviceToHost));
        CHECK(cudaDeviceSynchronize());
        // Integers: a sum of doubles would be bound by its own latency, and hide what the memory costs.
        std::size_t right = 0, read = 0;
        for (std::size_t i = 0; i < n; i += read_step, ++read) {
            const bool written = i % write_step == 0;
            right += c.cpu[i] == (written ? value + 2.0f : 3.0f);
        }
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        if (right != read) {
            std::fprintf(stderr, "round %d: %zu of %zu elements are wrong\n", round, read - right, read);
            return 1;
        }
        if (round > 0) std::printf("%.3f\n", took.count());
    }
    return 0;
}
