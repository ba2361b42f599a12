// SPDX-License-Identifier: MIT
// Bulk memory calls on device memory that a kernel wrote last, in GB/s of bytes copied or set: from the call until a
// kernel that is given the memory could run.
//
//   bulk WORK WAY MIB
//   WORK  in       host memory to the device        between  one allocation of the device to another
//         out      the device to host memory        set      one byte everywhere
//   WAY   usual    cudaMemcpy, cudaMemset
//         direct   memcpy, memset on the device pointers, under libhpe
//
// Prints one figure a round. Exits 1 if a byte is wrong.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.h"

namespace {

constexpr int kRounds = 6;

__global__ void fill(unsigned* data, std::size_t n, unsigned key) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        data[i] = static_cast<unsigned>(i) * 7 + key;
    }
}
__global__ void given(const unsigned*, const unsigned*) {}

struct Bench {
    std::string work, way;
    std::size_t bytes;
    char *host, *from, *to;

    bool usual() const { return way == "usual"; }

    void call(int round) const {
        if (work == "set") {
            if (usual())
                CHECK(cudaMemset(to, round + 1, bytes));
            else
                std::memset(to, round + 1, bytes);
            return;
        }
        const bool in = work == "in", out = work == "out";
        char *const target = out ? host : to, *const source = in ? host : from;
        if (!usual())
            std::memcpy(target, source, bytes);
        else
            CHECK(cudaMemcpy(target, source, bytes,
                             in    ? cudaMemcpyHostToDevice
                             : out ? cudaMemcpyDeviceToHost
                                   : cudaMemcpyDeviceToDevice));
    }

    double round(int number) const {
        const unsigned key = static_cast<unsigned>(number) * 1000003;
        const std::size_t words = bytes / sizeof(unsigned);
        for (std::size_t i = 0; i < words && work == "in"; ++i)
            reinterpret_cast<unsigned*>(host)[i] = static_cast<unsigned>(i) * 7 + key;
        fill<<<264, 512>>>(reinterpret_cast<unsigned*>(from), words, key);
        fill<<<264, 512>>>(reinterpret_cast<unsigned*>(to), words, 1);
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        call(number);
        given<<<1, 1>>>(reinterpret_cast<unsigned*>(from), reinterpret_cast<unsigned*>(to));
        CHECK(cudaDeviceSynchronize());
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        verify(number, key);
        return static_cast<double>(bytes) / seconds / 1e9;
    }

    void verify(int number, unsigned key) const {
        if (work != "out") CHECK(cudaMemcpy(host, to, bytes, cudaMemcpyDeviceToHost));
        const auto* const got = reinterpret_cast<unsigned*>(host);
        const unsigned set = static_cast<unsigned>(number + 1) * 0x01010101u;
        for (std::size_t i = 0; i < bytes / sizeof *got; ++i) {
            if (got[i] != (work == "set" ? set : static_cast<unsigned>(i) * 7 + key)) {
                std::fprintf(stderr, "word %zu is wrong\n", i);
                std::exit(1);
            }
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    Bench b{argv[1], argv[2], std::strtoull(argv[3], nullptr, 10) << 20, nullptr, nullptr, nullptr};
    b.host = static_cast<char*>(std::malloc(b.bytes));
    std::memset(b.host, 1, b.bytes);
    CHECK(cudaMalloc(&b.from, b.bytes));
    CHECK(cudaMalloc(&b.to, b.bytes));
    for (int round = 0; round < kRounds; ++round) {
        const double rate = b.round(round);
        if (round != 0) std::printf("%.3f\n", rate);  // the first makes what is recycled afterwards
    }
    return 0;
}
