// SPDX-License-Identifier: MIT
// A kernel that writes where nothing is: its context is lost, every later call says so, and after a reset the process
// can use the device no more.
// With the argument `touch` the CPU then looks at an array that only the lost context had.
#include <cstring>

#include "tried.h"

namespace {

__global__ void stray(Word* where) { *where = 1; }

constexpr std::size_t kWords = 5000;

}  // namespace

int main(int argc, char** argv) {
    const bool touch = argc > 1 && std::strcmp(argv[1], "touch") == 0;
    if (!touch) arguments(argc, argv);
    Array a("a", kWords), b("b", kWords), valid("valid", kWords);
    a.allocate();
    b.allocate();
    valid.allocate();
    a.write(0, kWords, 3);
    launched(b, a, 5);
    valid.write(0, kWords, 9);
    b.check("before", 0, kWords);
    launched(b, a, 7);
    TRIED(cudaDeviceSynchronize());
    stray<<<1, 1>>>(nullptr);
    TRIED(cudaGetLastError());
    TRIED(cudaDeviceSynchronize());
    launched(a, b, 5);
    TRIED(cudaMemcpy(a.data, b.data, b.bytes(), cudaMemcpyDeviceToDevice));
    TRIED(cudaMemset(a.data, 1, a.bytes()));
    TRIED(cudaFree(b.data));
    Word* more = nullptr;
    TRIED(cudaMalloc(&more, 100));
    std::fflush(stdout);
    if (touch) std::printf("read %u\n", a.data[17]);
    TRIED(cudaDeviceReset());
    TRIED(cudaMalloc(&more, 100));
    TRIED(cudaDeviceSynchronize());
    return verdict();
}
