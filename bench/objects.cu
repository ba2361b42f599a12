// SPDX-License-Identifier: MIT
// What allocations cost, by their number and size.
//
//   objects pairs MEMORY BYTES          microseconds of an allocation and its free, which the CPU never touches: by the
//                                       functions given to the program, and by the driver's own (own.h), in turn: the
//                                       medians of 250 pairs each, in runs of 25, since the driver's own calls vary by
//                                       more than libhpe adds
//   objects many MEMORY BYTES COUNT     of COUNT allocations: microseconds each for the CPU's first write to all of it,
//                                       milliseconds of a launch that uses all, microseconds each for the CPU's reading
//                                       a byte of it, milliseconds of each of 20 launches after that
//   objects taken MEMORY BYTES COUNT [touched]
//                                       what COUNT allocations take: MiB of the card; and bytes each of the process's
//                                       ordinary memory, after the CPU's write to each if they are to be touched
//   objects touch MEMORY GIB            seconds of one thread's first write to every byte
//   MEMORY  device (needs libhpe but for `pairs`) | stream (the same in stream order) | managed (not for `pairs`)
//
// Prints one figure a line. Exits 1 on an error, or if a byte is wrong.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <cuda.h>

#include "check.h"
#include "own.h"

namespace {

using Clock = std::chrono::steady_clock;
double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::string memory;

unsigned char* allocate(std::size_t bytes) {
    unsigned char* made = nullptr;
    if (memory == "managed")
        CHECK(cudaMallocManaged(&made, bytes));
    else if (memory == "stream")
        CHECK(cudaMallocAsync(&made, bytes, nullptr));
    else
        CHECK(cudaMalloc(&made, bytes));
    return made;
}
void release(unsigned char* made) {
    if (memory == "stream")
        CHECK(cudaFreeAsync(made, nullptr));
    else
        CHECK(cudaFree(made));
}

__global__ void add_one(unsigned char* const* objects, std::size_t bytes) {
    unsigned char* const object = objects[blockIdx.x];
    for (std::size_t i = threadIdx.x; i < bytes; i += blockDim.x) object[i] += 1;
}

double median(std::vector<double>& of) {
    std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
    return of[of.size() / 2];
}

template <class Allocate, class Free, class... Stream>
void pairs(const char* allocate, const char* free, std::size_t bytes, Stream... stream) {
    const auto allocates = find_twice<Allocate>(allocate);
    const auto frees = find_twice<Free>(free);
    const auto pair = [&](Allocate allocate, Free free) {
        CUdeviceptr made = 0;
        return allocate(&made, bytes, stream...) == CUDA_SUCCESS && free(made, stream...) == CUDA_SUCCESS;
    };
    // So that a small pair is no chunk of its own, which the driver maps and unmaps. A whole page: what a pool places
    // behind it then begins at one, as behind all that libhpe asks for.
    CUdeviceptr neighbour = 0;
    if (allocates.own(&neighbour, 4096, stream...) != CUDA_SUCCESS) std::exit(1);
    for (int turn = 0; turn < 24; ++turn) {
        std::vector<double> took[2];
        for (int i = 0; i < 500; ++i) {
            const bool given = i / 25 % 2 == 0;
            const auto begin = Clock::now();
            if (!(given ? pair(allocates.given, frees.given) : pair(allocates.own, frees.own))) std::exit(1);
            took[given ? 0 : 1].push_back(microseconds_since(begin));
        }
        CHECK(cudaDeviceSynchronize());
        if (turn >= 4) std::printf("%.3f %.3f\n", median(took[0]), median(took[1]));
    }
    frees.own(neighbour, stream...);
}
void pairs(std::size_t bytes) {
    CHECK(cudaFree(nullptr));
    if (memory == "stream") {
        pairs<decltype(&cuMemAllocAsync), decltype(&cuMemFreeAsync)>("cuMemAllocAsync", "cuMemFreeAsync", bytes,
                                                                     CUstream{});
    } else {
        pairs<decltype(&cuMemAlloc), decltype(&cuMemFree)>("cuMemAlloc_v2", "cuMemFree_v2", bytes);
    }
}

bool many(std::size_t bytes, unsigned count) {
    std::vector<unsigned char*> objects(count);
    for (auto& object : objects) object = allocate(bytes);
    unsigned char** list = nullptr;
    CHECK(cudaMallocHost(&list, count * sizeof *list));
    std::memcpy(list, objects.data(), count * sizeof *list);
    CHECK(cudaDeviceSynchronize());

    auto begin = Clock::now();
    for (unsigned i = 0; i < count; ++i) std::memset(objects[i], static_cast<int>(i % 199), bytes);
    std::printf("%.3f\n", microseconds_since(begin) / count);

    const auto launch = [&] {
        add_one<<<count, 128>>>(list, bytes);
        CHECK(cudaDeviceSynchronize());
    };
    begin = Clock::now();
    launch();
    std::printf("%.3f\n", microseconds_since(begin) / 1e3);

    bool right = true;
    begin = Clock::now();
    for (unsigned i = 0; i < count; ++i) right = right && objects[i][bytes / 2] == i % 199 + 1;
    std::printf("%.3f\n", microseconds_since(begin) / count);

    begin = Clock::now();
    for (int i = 0; i < 20; ++i) launch();
    std::printf("%.3f\n", microseconds_since(begin) / 20e3);
    for (unsigned i = 0; i < count; i += 97) right = right && objects[i][bytes - 1] == i % 199 + 21;
    return right;
}

// Without what is shared with anybody, or could be: the host copies of objects.
double ordinary_memory() {
    std::ifstream status("/proc/self/status");
    double kibibytes = 0;
    for (std::string word; status >> word;) {
        if (word == "RssAnon:") status >> kibibytes;
    }
    return kibibytes * 1024;
}
void taken(std::size_t bytes, unsigned count, bool touched) {
    std::vector<unsigned char*> objects(count);
    std::size_t before = 0, after = 0, total = 0;
    CHECK(cudaMemGetInfo(&before, &total));
    const auto ordinary = ordinary_memory();
    for (auto& object : objects) object = allocate(bytes);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemGetInfo(&after, &total));
    if (touched) {
        for (auto* object : objects) object[0] = 1;
    }
    std::printf("%.3f\n%.1f\n", static_cast<double>(before - after) / (1 << 20),
                (ordinary_memory() - ordinary) / count);
}

void touch(std::size_t gibibytes) {
    const std::size_t bytes = gibibytes << 30;
    unsigned char* const object = allocate(bytes);
    CHECK(cudaDeviceSynchronize());
    const auto begin = Clock::now();
    auto* const words = reinterpret_cast<unsigned long long*>(object);
    for (std::size_t i = 0; i < bytes / sizeof *words; ++i) words[i] = i;
    std::printf("%.3f\n", microseconds_since(begin) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const std::string work = argv[1];
    memory = argv[2];
    const auto number = static_cast<std::size_t>(std::atoll(argv[3]));
    CHECK(cudaFree(nullptr));
    unsigned char* const kept = allocate(4096);  // so that the driver keeps its chunk
    bool right = true;
    if (work == "pairs")
        pairs(number);
    else if (work == "many" && argc > 4)
        right = many(number, static_cast<unsigned>(std::atoi(argv[4])));
    else if (work == "taken" && argc > 4)
        taken(number, static_cast<unsigned>(std::atoi(argv[4])), argc > 5);
    else if (work == "touch")
        touch(number);
    else
        return 2;
    release(kept);
    return right ? 0 : 1;
}
