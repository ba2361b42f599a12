// SPDX-License-Identifier: MIT
// Copies between two GPUs, there and back again.
//
//   peer ACCESS [MIB [ROUNDS]]     ACCESS never (the program does not ask for peer access) | enabled
//
// Prints GB/s of each copy, one a line, after a round to warm up. Exits 1 if what arrived is wrong.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"

static unsigned char* memory[2];

static void wait_for_both() {
    for (int device = 0; device < 2; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

// The first and the last byte must be `value`.
static void check(int device, std::size_t bytes, int value) {
    for (const std::size_t at : {std::size_t{0}, bytes - 1}) {
        unsigned char byte = 0;
        CHECK(cudaMemcpy(&byte, memory[device] + at, 1, cudaMemcpyDeviceToHost));
        if (byte == value) continue;
        std::fprintf(stderr, "byte %zu on device %d is %d, not %d\n", at, device, byte, value);
        std::exit(1);
    }
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    const bool enabled = std::strcmp(argv[1], "enabled") == 0;
    if (!enabled && std::strcmp(argv[1], "never") != 0) return 2;
    const std::size_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256) << 20;
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 10;
    if (bytes == 0) return 2;
    for (int device = 0; device < 2; ++device) {
        CHECK(cudaSetDevice(device));
        if (enabled) CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
        CHECK(cudaMalloc(&memory[device], bytes));
    }
    for (int round = 0; round <= rounds; ++round) {
        for (int from = 0; from < 2; ++from) {
            const int to = 1 - from, value = (round * 2 + from) % 251 + 1;
            CHECK(cudaSetDevice(from));
            CHECK(cudaMemset(memory[from], value, bytes));
            wait_for_both();
            const auto begin = std::chrono::steady_clock::now();
            CHECK(cudaMemcpyPeer(memory[to], to, memory[from], from, bytes));
            wait_for_both();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            check(to, bytes, value);
            if (round > 0) std::printf("%.1f\n", static_cast<double>(bytes) / 1e9 / took.count());
        }
    }
    return 0;
}
