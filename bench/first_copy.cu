// SPDX-License-Identifier: MIT
// A program that copies once each way and ends: what its first copies cost. It tells when the first begins; whoever
// started it knows when it ends (compare.py: from_first_copy).
//
//   first_copy MIB   prints what CLOCK_MONOTONIC and CLOCK_PROCESS_CPUTIME_ID say before the first copy, and
//                    CLOCK_MONOTONIC after both copies, in nanoseconds
//
// Exits 1 if the bytes are wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "check.h"

static long long now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    const std::size_t bytes = std::strtoull(argv[1], nullptr, 10) << 20;
    auto* const from = static_cast<unsigned char*>(std::malloc(bytes));
    auto* const to = static_cast<unsigned char*>(std::malloc(bytes));
    std::memset(from, 1, bytes);  // the pages of both are there
    std::memset(to, 0, bytes);
    void* device = nullptr;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaDeviceSynchronize());
    std::printf("%lld %lld\n", now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID));
    std::fflush(stdout);  // a mark for strace, too
    CHECK(cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost));
    std::printf("%lld\n", now(CLOCK_MONOTONIC));
    return std::memcmp(from, to, bytes) == 0 ? 0 : 1;
}
