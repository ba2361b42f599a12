// SPDX-License-Identifier: MIT
// What the report's call stacks cost: accesses that trap, launches and copies from 20 calls deep.
//
//   stacks faults [ROUNDS]      nanoseconds an access: one word of each of 256 blocks of 64 KiB, after a kernel each
//   round stacks launches [ROUNDS]    nanoseconds a launch of an empty kernel: 1000 a round, then a wait stacks copies
//   [ROUNDS]      nanoseconds a copy of 4 KiB, and of 16 MiB, of pageable memory to the device
// For `faults` set HPE_BLOCK_SIZE=64K and HPE_READ_AHEAD=off.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "check.h"

__global__ void empty() {}
__global__ void touch(unsigned* words) { words[0] += 1; }

constexpr int kDepth = 20, kBlocks = 256, kLaunches = 1000;
constexpr std::size_t kBlockWords = (64 << 10) / sizeof(unsigned);

template <class Work>
__attribute__((noinline)) double deep(int depth, const Work& work) {
    volatile int here = depth;
    const double result = here == 0 ? work() : deep(depth - 1, work);
    asm volatile("" : : "r"(&here) : "memory");  // a call for each level
    return result;
}
template <class Work>
double nanoseconds(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

static double faults(unsigned* words) {
    touch<<<1, 1>>>(words);
    CHECK(cudaDeviceSynchronize());
    unsigned sum = 0;
    // Block after block, but in no order that is fetched ahead.
    const double took = nanoseconds([&] {
        for (unsigned i = 0; i < kBlocks; ++i) {
            sum += static_cast<volatile unsigned*>(words)[(i * 97) % kBlocks * kBlockWords];
        }
    });
    return sum == 0xffffffffu ? 0 : took / kBlocks;
}
static double launches() {
    const double took = nanoseconds([] {
        for (int i = 0; i < kLaunches; ++i) empty<<<1, 1>>>();
    });
    CHECK(cudaDeviceSynchronize());
    return took / kLaunches;
}

int main(int argc, char** argv) {
    const char* const what = argc > 1 ? argv[1] : "faults";
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 40;
    unsigned* words = nullptr;
    CHECK(cudaMalloc(&words, kBlocks * kBlockWords * sizeof(unsigned)));
    std::vector<unsigned> host(kBlocks * kBlockWords);
    for (int round = -3; round < rounds; ++round) {
        double took = 0;
        host[0] = static_cast<unsigned>(round);
        const auto copy = [&](std::size_t bytes) {
            return deep(kDepth, [&] {
                return nanoseconds([&] { CHECK(cudaMemcpy(words, host.data(), bytes, cudaMemcpyHostToDevice)); });
            });
        };
        if (std::strcmp(what, "faults") == 0) took = deep(kDepth, [&] { return faults(words); });
        if (std::strcmp(what, "launches") == 0) took = deep(kDepth, [] { return launches(); });
        const bool copies = std::strcmp(what, "copies") == 0;
        if (copies) took = copy(4096);
        const double large = copies ? copy(16 << 20) : 0;
        if (round < 0) continue;
        std::printf(copies ? "%.1f %.1f\n" : "%.1f\n", took, large);
    }
    return 0;
}
