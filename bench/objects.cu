// SPDX-License-Identifier: MIT
// What allocations cost, by their number and size.
//
//   objects pairs MEMORY BYTES          microseconds of an allocation and its free, which the CPU never touches
//   objects many MEMORY BYTES COUNT     of COUNT allocations: microseconds each for the CPU's first write to all of it,
//                                       milliseconds of a launch that uses all, microseconds each for the CPU's reading
//                                       a word of it, milliseconds of each of 20 launches after that
//   objects touch MEMORY GIB            seconds of one thread's first write to every byte
//   MEMORY  device (needs libhpe but for `pairs`) | stream (the same in stream order) | managed
//
// Prints one figure a line. Exits 1 on an error, or if a byte is wrong.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

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

void pairs(std::size_t bytes) {
    for (int round = 0; round < 5; ++round) {
        constexpr int kCount = 1000;
        const auto begin = Clock::now();
        for (int i = 0; i < kCount; ++i) release(allocate(bytes));
        if (round > 0) std::printf("%.3f\n", microseconds_since(begin) / kCount);
        CHECK(cudaDeviceSynchronize());
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
    else if (work == "touch")
        touch(number);
    else
        return 2;
    release(kept);
    return right ? 0 : 1;
}
