// SPDX-License-Identifier: MIT
// More objects of 100 bytes than a process may have mappings (vm.max_map_count), in a process that has used some up
// itself. The CPU writes all, a kernel changes all, the CPU reads all, every second one is freed, and the rest goes on.
//
// Prints how many words are wrong. Arguments: objects, mappings that the program takes for itself, "pool" for memory in
// stream order, whose objects have pages of their own.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tried.h"

namespace {

__global__ void add(Word* const* objects, std::size_t n, Word by) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) objects[i][1] = objects[i][0] + by;
}

// Pages of alternating protection. False: the kernel has no more.
bool take_mappings(std::size_t count) {
    if (count == 0) return true;
    auto* const pages =
        static_cast<char*>(mmap(nullptr, count * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (pages == MAP_FAILED) return false;
    for (std::size_t i = 1; i < count; i += 2) {
        if (mprotect(pages + i * 4096, 4096, PROT_READ) != 0) return false;
    }
    return true;
}

std::size_t round(std::vector<Word*>& objects, Word** list, Word by) {
    for (std::size_t i = 0; i < objects.size(); ++i) {
        list[i] = objects[i];
        objects[i][0] = static_cast<Word>(i) * by;
    }
    add<<<static_cast<unsigned>((objects.size() + 127) / 128), 128>>>(list, objects.size(), by);
    TRIED(cudaGetLastError());
    std::size_t wrong = 0;
    // A copy out of the middle of what lies side by side.
    for (std::size_t i = 1; i < objects.size(); i += objects.size() / 16) {
        Word copy[2] = {};
        TRIED(cudaMemcpy(copy, objects[i], sizeof copy, cudaMemcpyDeviceToHost));
        wrong += copy[0] != static_cast<Word>(i) * by || copy[1] != copy[0] + by;
    }
    for (std::size_t i = 0; i < objects.size(); ++i) {
        wrong += objects[i][0] != static_cast<Word>(i) * by || objects[i][1] != static_cast<Word>(i + 1) * by;
    }
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<Word*> objects(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000);
    if (!take_mappings(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0)) return 4;
    const bool pool = argc > 3 && std::strcmp(argv[3], "pool") == 0;
    for (Word*& object : objects) {
        if (!TRIED(pool ? cudaMallocAsync(&object, 100, nullptr) : cudaMalloc(&object, 100))) return 3;
    }
    Word** list = nullptr;
    if (!TRIED(cudaMalloc(&list, objects.size() * sizeof *list))) return 3;
    std::printf("all: %zu words wrong\n", round(objects, list, 3));
    std::vector<Word*> rest;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        if (i % 2 == 0) {
            TRIED(pool ? cudaFreeAsync(objects[i], nullptr) : cudaFree(objects[i]));
        } else {
            rest.push_back(objects[i]);
        }
    }
    std::printf("every second: %zu words wrong\n", round(rest, list, 5));
    for (Word* object : rest) TRIED(pool ? cudaFreeAsync(object, nullptr) : cudaFree(object));
    TRIED(cudaFree(list));
    return failed_calls != 0 ? 3 : 0;
}
