// SPDX-License-Identifier: MIT
// The same work with the memory that its user may choose: vector add (the CPU writes two inputs, the GPU adds, the CPU reads
// the result), the same with arrays that live for one round, sparse touches (the CPU writes an element every 16 MiB, the GPU
// adds, the CPU reads one every MiB) and scattered ones (10,000 elements anywhere in the first input).
//
//   memory WORK MEMORY [ELEMENTS [ROUNDS | asked]]
//   WORK    vector_add | short_lived | sparse | scattered
//   MEMORY  pageable | pinned | managed | prefetched | one_pointer (needs libhpe)
//
// Prints milliseconds of each round, one a line, after a round to warm up; allocations are outside, but for arrays that are
// short-lived. `asked`: a round for each character of the standard input, so that several processes can take turns. Exits 1
// if the result is wrong.
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

// Loops that do nothing but touch the memory: what else the CPU did would hide what the memory costs. (A division for
// each element, to know what it must be, once took two thirds of the time.)
static void fill(float* to, std::size_t n, float value) {
    for (std::size_t i = 0; i < n; ++i) to[i] = value;
}
static std::size_t equal(const float* from, std::size_t n, float value) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) count += from[i] == value;
    return count;
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

static void release(const std::string& memory, const Array& x) {
    CHECK(cudaFree(x.gpu));
    if (memory == "pageable") std::free(x.cpu);
    if (memory == "pinned") CHECK(cudaFreeHost(x.cpu));
}

struct Work {
    std::string memory;
    std::size_t n;
    std::size_t write_step = 1, read_step = 1;
    std::size_t scattered = 0;  // elements written anywhere instead
    Array a{}, b{}, c{};

    std::size_t bytes() const { return n * sizeof(float); }
    void allocate() {
        for (Array* x : {&a, &b, &c}) *x = ::allocate(memory, bytes());
    }
    void release() {
        for (Array* x : {&a, &b, &c}) ::release(memory, *x);
    }
    // False if the result is wrong.
    bool round(float value, bool write_b) {
        const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
        const bool copies = memory == "pageable" || memory == "pinned";
        unsigned long long where = 88172645463325252ull + static_cast<unsigned long long>(value);
        const auto anywhere = [&] {
            where ^= where << 13, where ^= where >> 7, where ^= where << 17;
            return where % n;
        };
        const auto start = where;
        for (std::size_t i = 0; i < scattered; ++i) a.cpu[anywhere()] = value;
        if (write_step == 1 && scattered == 0) fill(a.cpu, n, value);
        for (std::size_t i = 0; write_step != 1 && i < n; i += write_step) a.cpu[i] = value;
        if (write_b) fill(b.cpu, n, 2.0f);
        if (copies) {
            CHECK(cudaMemcpy(a.gpu, a.cpu, bytes(), cudaMemcpyHostToDevice));
            CHECK(cudaMemcpy(b.gpu, b.cpu, bytes(), cudaMemcpyHostToDevice));
        }
        if (memory == "prefetched") {
            for (const Array& x : {a, b, c}) CHECK(cudaMemPrefetchAsync(x.gpu, bytes(), device, 0, 0));
        }
        add<<<static_cast<unsigned>((n + 255) / 256), 256>>>(c.gpu, a.gpu, b.gpu, n);
        CHECK(cudaGetLastError());
        if (memory == "prefetched" && scattered == 0) CHECK(cudaMemPrefetchAsync(c.gpu, bytes(), host, 0, 0));
        if (copies && scattered == 0) CHECK(cudaMemcpy(c.cpu, c.gpu, bytes(), cudaMemcpyDeviceToHost));
        CHECK(cudaDeviceSynchronize());
        std::size_t right = 0, read = scattered == 0 ? (n + read_step - 1) / read_step : 0;
        if (read == n && write_step == 1) {
            right = equal(c.cpu, n, value + 2.0f);
        } else {
            for (std::size_t i = 0; i < read * read_step; i += read_step) {
                right += c.cpu[i] == (i % write_step == 0 ? value + 2.0f : 3.0f);
            }
        }
        // A few of them: their number is not what this is about.
        where = start;
        for (std::size_t i = 0; i < scattered / 100; ++i, ++read) {
            float got = 0;
            CHECK(cudaMemcpy(&got, c.gpu + anywhere(), sizeof got, cudaMemcpyDeviceToHost));
            right += got == value + 2.0f;
        }
        if (right != read) std::fprintf(stderr, "%zu of %zu elements are wrong\n", read - right, read);
        return right == read;
    }
};

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string kind = argv[1];
    const bool short_lived = kind == "short_lived";
    Work work;
    work.memory = argv[2];
    const std::size_t usual = short_lived ? 8 : kind == "scattered" ? 256 : 64;
    work.n = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : usual << 20;
    const bool asked = argc > 4 && std::strcmp(argv[4], "asked") == 0;
    const int rounds = argc > 4 && !asked ? std::atoi(argv[4]) : short_lived ? 20 : 5;
    if (kind == "sparse") {
        work.write_step = std::size_t{4} << 20;
        work.read_step = std::size_t{256} << 10;
    }
    if (kind == "scattered") work.scattered = 10000;
    const bool whole = kind == "vector_add" || short_lived;
    if (!short_lived) {
        work.allocate();
        for (std::size_t i = 0; i < work.n; ++i) {
            work.a.cpu[i] = 1.0f;
            work.b.cpu[i] = 2.0f;
        }
    }
    for (int round = 0; asked || round <= rounds; ++round) {
        if (asked && round > 0 && std::getchar() == EOF) break;
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        if (short_lived) work.allocate();
        if (!work.round(static_cast<float>(round + 1), whole)) return 1;
        if (short_lived) work.release();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        if (round > 0) std::printf("%.3f\n", took.count());
        std::fflush(stdout);
    }
    return 0;
}
