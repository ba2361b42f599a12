// SPDX-License-Identifier: MIT
// What calls of libc that concern no object cost: memcpy and memset of 1 B to 4 KiB, system calls, streams.
//
//   doors none|objects    `objects`: the process has device memory that its CPU has used
//
// Prints nanoseconds a call in the order of kNames, each the least of many measures. Exits 1 on an error.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "check.h"

namespace {

constexpr int kMeasures = 60;

template <class Call>
void report(int calls, Call&& call) {
    double best = 1e9;
    for (int i = 0; i < kMeasures; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < calls; ++k) call();
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / calls);
    }
    std::printf("%.2f\n", best);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    for (int i = 0; i < 20 && std::strcmp(argv[1], "objects") == 0; ++i) {
        char* object = nullptr;
        CHECK(cudaMalloc(&object, 1 << 20));
        CHECK(cudaMemset(object, 0, 1 << 20));
        // Without libhpe the CPU cannot use it.
        if (std::getenv("LD_PRELOAD") != nullptr) object[i] = 1;
    }
    static char from[4096], to[4096];
    for (const std::size_t size : {1, 64, 4096}) {
        volatile std::size_t bytes = size;  // the compiler knows small sizes better
        report(20000, [&] { std::memcpy(to, from, bytes); });
        report(20000, [&] { std::memset(to, 1, bytes); });
    }
    // Of no file: the kernel refuses at once, and the rest is the door's.
    FILE* const stream = std::fopen("/dev/zero", "r");
    FILE* const sink = std::fopen("/dev/null", "w");
    if (stream == nullptr || sink == nullptr) return 1;
    bool right = true;
    report(5000, [&] { right = right && read(-1, to, 8) == -1; });
    report(5000, [&] { right = right && write(-1, to, 8) == -1; });
    report(5000, [&] { right = right && send(-1, to, 8, 0) == -1; });
    report(5000, [&] { right = right && recv(-1, to, 8, 0) == -1; });
    report(10000, [&] { right = right && std::fread(to, 8, 1, stream) == 1; });
    report(10000, [&] { right = right && std::fwrite(to, 8, 1, sink) == 1; });
    return right ? 0 : 1;
}
