// SPDX-License-Identifier: MIT
// Copies, allocations and waits of which a known part is wasted, each in a function of its own: for the test of the
// report's advice. There is no other form: the copies are the program's own.
#include "program.h"

#define NEVER_INLINED __attribute__((noinline, noclone))

constexpr unsigned kCount = 300000;  // 1.2 MB
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

static unsigned *device, *host, *pinned;

static void compute() {
    advance<><<<blocks_for(kCount, 128), 128>>>(device, kCount, 1);
    CHECK(cudaGetLastError());
}
// Two of six rounds have new bytes.
NEVER_INLINED static void send_again() {
    for (unsigned round = 0; round < 6; ++round) {
        host[kCount / 2] = round / 3;
        CHECK(cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice));  // the same again
        compute();
    }
}
// No kernel comes between: all bytes come back as they were sent.
NEVER_INLINED static void bring_back() {
    for (unsigned round = 0; round < 4; ++round) {
        host[0] = 1000 + round;
        CHECK(cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(host, device, kBytes, cudaMemcpyDeviceToHost));  // nothing new
    }
}
NEVER_INLINED static void allocate_again() {
    for (int round = 0; round < 5; ++round) {
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, 77777));  // four of five
        CHECK(cudaMemset(memory, 0, 77777));
        CHECK(cudaFree(memory));
    }
}
NEVER_INLINED static void copy_pinned() {
    for (unsigned round = 0; round < 3; ++round) {
        pinned[0] = round;
        CHECK(cudaMemcpy(device, pinned, kBytes, cudaMemcpyHostToDevice));
    }
}
// All waits but the last are followed by a launch.
NEVER_INLINED static void wait_too_often() {
    for (int round = 0; round < 8; ++round) {
        compute();
        CHECK(cudaDeviceSynchronize());
    }
}
// As a good program does it: new bytes each time, and changed bytes back.
NEVER_INLINED static void well() {
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < kCount; ++i) host[i] = i * round;
        CHECK(cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice));
        compute();
        CHECK(cudaMemcpy(host, device, kBytes, cudaMemcpyDeviceToHost));
    }
}
// Rows with gaps: those are no part of what is compared.
NEVER_INLINED static void send_rows_again() {
    for (unsigned round = 0; round < 3; ++round) {
        host[999] = round;
        CHECK(cudaMemcpy2D(device, 4000, host, 4000, 3000, 200, cudaMemcpyHostToDevice));
    }
}

// Copies of this size may be under way when they return: their bytes are not compared.
NEVER_INLINED static void bring_back_async() {
    for (unsigned round = 0; round < 3; ++round) {
        CHECK(cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost));
    }
    CHECK(cudaDeviceSynchronize());
}

static void all(int, char**) {
    host = static_cast<unsigned*>(std::calloc(kCount, sizeof(unsigned)));
    CHECK(cudaMalloc(&device, kBytes));
    CHECK(cudaMallocHost(&pinned, kBytes));
    std::memset(pinned, 7, kBytes);
    send_again();
    bring_back();
    allocate_again();
    copy_pinned();
    wait_too_often();
    well();
    send_rows_again();
    bring_back_async();
    unsigned sum = 0;
    for (unsigned i = 0; i < kCount; ++i) sum = sum * 31 + host[i];
    say("sum %u\n", sum);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"all", all}};
    return run_case(cases, argc, argv);
}
