// SPDX-License-Identifier: MIT
// What libhpe adds to calls of libc that concern no object: memcpy and memset of 1 B to 4 KiB, system calls, streams.
// Each through the function that programs are given and through libc's own, in turn within one process: from one
// process to the next the same call differs by more than libhpe adds. Without libhpe both are one function: the
// control.
//
//   doors none|objects    `objects`: the process has device memory that its CPU has used
//
// Prints per call, in the order of gpu-check's list: nanoseconds of libc's own, nanoseconds as given, each the least of
// many measures. Exits 1 on an error.
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"

namespace {

constexpr int kMeasures = 600;  // short ones: most are not disturbed

template <class Function, class... Arguments>
double time_calls(Function function, int calls, Arguments... arguments) {
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < calls; ++k) function(arguments...);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / calls;
}

template <class Function, class... Arguments>
void report(int calls, const char* name, Function given, Arguments... arguments) {
    static void* const libc = dlopen("libc.so.6", RTLD_NOW);
    const auto own = reinterpret_cast<Function>(dlsym(libc, name));
    if (own == nullptr) std::exit(1);
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 2 * kMeasures; ++i) {
        const bool is_given = i % 2 != 0;
        best[is_given] = std::min(best[is_given], time_calls(is_given ? given : own, calls, arguments...));
    }
    std::printf("%.2f\n%.2f\n", best[0], best[1]);
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
    void* const target = to;
    const void* const source = from;
    for (const std::size_t size : {1, 64, 4096}) {
        report(4000, "memcpy", static_cast<decltype(&memcpy)>(memcpy), target, source, size);
        report(4000, "memset", static_cast<decltype(&memset)>(memset), target, 1, size);
    }
    // Of no file: the kernel refuses at once, and the rest is the door's.
    FILE* const stream = std::fopen("/dev/zero", "r");
    FILE* const sink = std::fopen("/dev/null", "w");
    if (stream == nullptr || sink == nullptr) return 1;
    const std::size_t bytes = 8, one = 1;
    report(1000, "read", &read, -1, target, bytes);
    report(1000, "write", &write, -1, target, bytes);
    report(1000, "send", &send, -1, target, bytes, 0);
    report(1000, "recv", &recv, -1, target, bytes, 0);
    report(2000, "fread", &fread, target, bytes, one, stream);
    report(2000, "fwrite", &fwrite, target, bytes, one, sink);
    return 0;
}
