// SPDX-License-Identifier: MIT
// Arrays of 32-bit words that the CPU and the GPU use, for the language runtimes of languages.py: they call this library
// and touch the words themselves, too. With OBJECTS=copy the words are plain memory that is copied explicitly around
// device work, which needs no libhpe; otherwise they are what cudaMalloc returned. Both forms do the same. Nothing here
// knows of libhpe.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorName(result));
    std::_Exit(99);
}
#define CHECK(call) check(call, #call)

const bool copied = [] {
    const char* form = std::getenv("OBJECTS");
    return form != nullptr && std::strcmp(form, "copy") == 0;
}();

// In front of the words in plain memory.
struct alignas(64) Twin {
    std::uint32_t* gpu;
    std::size_t bytes;
};
Twin& twin(std::uint32_t* words) { return reinterpret_cast<Twin*>(words)[-1]; }

std::uint32_t* to_gpu(std::uint32_t* words) {
    if (!copied) return words;
    CHECK(cudaMemcpy(twin(words).gpu, words, twin(words).bytes, cudaMemcpyHostToDevice));
    return twin(words).gpu;
}
void from_gpu(std::uint32_t* words) {
    if (copied) CHECK(cudaMemcpy(words, twin(words).gpu, twin(words).bytes, cudaMemcpyDeviceToHost));
}

__global__ void add_kernel(std::uint32_t* words, std::uint32_t count, std::uint32_t value) {
    const auto i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] += value;
}

}  // namespace

extern "C" {

std::uint32_t* objects_new(std::uint32_t count) {
    std::uint32_t* gpu = nullptr;
    const auto bytes = std::size_t{count} * sizeof *gpu;
    CHECK(cudaMalloc(&gpu, bytes));
    if (!copied) return gpu;
    auto* const at = static_cast<Twin*>(std::aligned_alloc(alignof(Twin), (sizeof(Twin) + bytes + 63) / 64 * 64));
    *at = {gpu, bytes};
    return reinterpret_cast<std::uint32_t*>(at + 1);
}

void objects_free(std::uint32_t* words) {
    if (!copied) return CHECK(cudaFree(words));
    CHECK(cudaFree(twin(words).gpu));
    std::free(&twin(words));
}

// On the device, not waited for: words[i] += value.
void objects_add(std::uint32_t* words, std::uint32_t count, std::uint32_t value) {
    auto* const gpu = to_gpu(words);
    add_kernel<<<(count + 255) / 256, 256>>>(gpu, count, value);
    CHECK(cudaGetLastError());
    from_gpu(words);
}

// On the device, not waited for: `count` words from `first` on get `byte` in each of their bytes.
void objects_fill(std::uint32_t* words, std::uint32_t first, std::uint32_t count, int byte) {
    CHECK(cudaMemsetAsync(to_gpu(words) + first, byte, std::size_t{count} * 4));
    from_gpu(words);
}

// By this library's code on the CPU.
void objects_write(std::uint32_t* words, std::uint32_t count, std::uint32_t seed) {
    for (std::uint32_t i = 0; i < count; ++i) words[i] = i * seed;
}
std::uint32_t objects_get(const std::uint32_t* words, std::uint32_t i) { return words[i]; }
void objects_set(std::uint32_t* words, std::uint32_t i, std::uint32_t value) { words[i] = value; }

// How many words are not i * seed + value.
std::uint32_t objects_wrong(const std::uint32_t* words, std::uint32_t count, std::uint32_t seed, std::uint32_t value) {
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < count; ++i) wrong += words[i] != i * seed + value;
    return wrong;
}

// Everything from this library: patterns of accesses with device work between them. Returns what is wrong.
std::uint32_t objects_round(std::uint32_t* words, std::uint32_t count, std::uint32_t seed) {
    objects_write(words, count, seed);
    objects_add(words, count, 7);
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < count; i += 4099) {
        wrong += words[i] != i * seed + 7;
        words[i] = i * seed + 8;
    }
    objects_add(words, count, 1);
    for (std::uint32_t i = count; i-- > 0;) wrong += words[i] != i * seed + 8 + (i % 4099 == 0);
    objects_fill(words, count / 4, count / 4, 0x11);
    for (std::uint32_t i = count / 8; i < count / 2; i += 13) {
        wrong += words[i] != (i < count / 4 || i >= count / 4 * 2 ? i * seed + 8 + (i % 4099 == 0) : 0x11111111);
    }
    return wrong;
}

void objects_crash() { *reinterpret_cast<volatile std::uint32_t*>(16) = 1; }

}  // extern "C"
