// SPDX-License-Identifier: MIT
// More pages in alternating states than a process may have mappings (vm.max_map_count, 65530 by default): one array, of
// which the CPU touches every other page, then many arrays of a page each, of which it touches every other one.
//
// Prints how many words are wrong. Arguments: pages of the array, number of small arrays.
#include <cstdlib>

#include "tried.h"

namespace {

constexpr std::size_t kPageWords = 4096 / sizeof(Word);

__global__ void fill(Word* data, std::size_t n, Word seed) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i * 1024] = seed + static_cast<Word>(i);
}
__global__ void add(Word* const* arrays, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) arrays[i][1] = arrays[i][0] + 5;
}

unsigned blocks_of(std::size_t n) { return static_cast<unsigned>((n + 127) / 128); }

// One word of every page is looked at.
std::size_t one_array(std::size_t pages) {
    Word* data = nullptr;
    if (!TRIED(cudaMalloc(&data, pages * 4096))) return 0;
    fill<<<blocks_of(pages), 128>>>(data, pages, 7);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < pages; i += 2) {
        wrong += data[i * kPageWords] != 7 + i;
        data[i * kPageWords + 1] = static_cast<Word>(i * 3);
    }
    // A copy that wants a single page of it.
    Word copy[2] = {};
    TRIED(cudaMemcpy(copy, data + 100 * kPageWords, sizeof copy, cudaMemcpyDeviceToHost));
    wrong += copy[0] != 107 || copy[1] != 300;
    fill<<<blocks_of(pages), 128>>>(data, pages, 11);
    for (std::size_t i = 0; i < pages; ++i) {
        wrong += data[i * kPageWords] != 11 + i;
        if (i % 2 == 0) wrong += data[i * kPageWords + 1] != static_cast<Word>(i * 3);
    }
    TRIED(cudaFree(data));
    return wrong;
}

std::size_t small_arrays(std::size_t count) {
    std::vector<Word*> arrays(count);
    for (Word*& array : arrays) {
        if (!TRIED(cudaMalloc(&array, 4096))) return 0;
    }
    Word** list = nullptr;
    if (!TRIED(cudaMalloc(&list, count * sizeof(Word*)))) return 0;
    for (std::size_t i = 0; i < count; ++i) list[i] = arrays[i];
    for (std::size_t i = 0; i < count; i += 2) arrays[i][0] = static_cast<Word>(i + 1);
    add<<<blocks_of(count), 128>>>(list, count);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; i += 2) wrong += arrays[i][1] != i + 6 || arrays[i][0] != i + 1;
    for (Word* array : arrays) TRIED(cudaFree(array));
    TRIED(cudaFree(list));
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t pages = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 70000;
    const std::size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 70000;
    std::printf("one array: %zu words wrong\n", one_array(pages));
    std::fflush(stdout);
    std::printf("small arrays: %zu words wrong\n", small_arrays(count));
    return lost_calls != 0 ? 3 : 0;
}
