// SPDX-License-Identifier: MIT
// An object of one pointer for the CPU and the GPU, and a plain array beside it that says what it must hold. Programs
// that use it list their cases without arguments; with one they run it and print what they saw. With `first` behind it
// the device fills the objects, and the CPU has not used them before a case begins.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../apps/app.h"

using Word = unsigned;
constexpr std::size_t kWords = (std::size_t{6} << 20) / sizeof(Word);  // 96 blocks of 64 KiB
constexpr std::size_t kMiB = (1 << 20) / sizeof(Word);

inline std::atomic<unsigned long> wrong{0};
inline bool used_before = true;

static __global__ void fill(Word* data, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = static_cast<Word>(i * 2654435761u);
}
static __global__ void advance(Word* data, std::size_t n, Word key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = data[i] * 1664525u + key;
}

struct Swept {
    Word* data = nullptr;
    std::vector<Word> model;

    explicit Swept(std::size_t n = kWords) : model(n) {
        CHECK(cudaMalloc(&data, n * sizeof(Word)));
        if (used_before) {
            for (std::size_t i = 0; i < n; ++i) write(i, static_cast<Word>(i * 2654435761u));
            return;
        }
        fill<<<static_cast<unsigned>((n + 255) / 256), 256>>>(data, n);
        CHECK(cudaDeviceSynchronize());
        for (std::size_t i = 0; i < n; ++i) model[i] = static_cast<Word>(i * 2654435761u);
    }
    ~Swept() { CHECK(cudaFree(data)); }
    Swept(const Swept&) = delete;
    Swept& operator=(const Swept&) = delete;

    std::size_t size() const { return model.size(); }
    void kernel(Word key, cudaStream_t stream = nullptr) {
        advance<<<static_cast<unsigned>((size() + 255) / 256), 256, 0, stream>>>(data, size(), key);
        CHECK(cudaGetLastError());
        for (Word& m : model) m = m * 1664525u + key;
    }
    void read(std::size_t i) const { wrong += data[i] != model[i]; }
    void write(std::size_t i, Word value) { data[i] = model[i] = value; }
    void read(std::size_t first, std::size_t last) const {
        for (std::size_t i = first; i < last; ++i) read(i);
    }
    void write(std::size_t first, std::size_t last, Word key) {
        for (std::size_t i = first; i < last; ++i) write(i, static_cast<Word>(i) * 40503u + key);
    }
    // After two sweeps its host copy is pinned, and the third fetches ahead.
    void warm() {
        for (Word round = 0; used_before && round < 2; ++round) {
            kernel(round);
            read(0, size());
        }
        kernel(7);
    }
    // The first two thirds: more is on its way.
    void begin() {
        warm();
        read(0, size() * 2 / 3);
    }
};

struct Case {
    const char* name;
    void (*run)();
};
#define CASE(name) \
    { #name, name }

template <std::size_t kCount>
int run(const Case (&cases)[kCount], int argc, char** argv) {
    used_before = argc < 3 || std::strcmp(argv[2], "first") != 0;
    for (const auto& c : cases) {
        if (argc < 2) {
            std::puts(c.name);
        } else if (std::strcmp(argv[1], c.name) == 0) {
            c.run();
            std::printf("%lu wrong\n", wrong.load());
            return wrong != 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
