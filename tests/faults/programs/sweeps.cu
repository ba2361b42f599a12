// SPDX-License-Identifier: MIT
// CPU sweeps through arrays that kernels wrote, broken off by launches, copies and frees: what libhpe fetches ahead of
// them is a call of its own that may fail.
#include "tried.h"

namespace {

constexpr std::size_t kWords = 100000, kBlock = 2048;

void between(Array& a, Array& b, cudaStream_t stream) {
    // In part, so that more is on its way.
    launched(a, b, 3, stream);
    a.check("in part", 0, kWords / 2);
    launched(a, b, 5, stream);
    a.check("after a launch", 0, kWords);
    launched(a, b, 7, stream);
    a.check("in part", 0, kWords / 2);
    if (a.data != nullptr && TRIED(cudaMemset(a.data + kWords / 4, 0x22, kWords))) {
        for (std::size_t i = kWords / 4; i < kWords / 2; ++i) a.model[i] = 0x22222222;
    }
    a.check("after a memset", 0, kWords);
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    cudaStream_t stream = nullptr;
    Array a("a", kWords), b("b", kWords);
    a.allocate();
    b.allocate();
    a.write(0, kWords, 1);
    b.write(0, kWords, 2);
    for (Word round = 0; round < 3; ++round) {
        launched(a, b, round);
        a.check("swept", 0, kWords);
        launched(b, a, round);
        b.check("strided", 5 * kBlock, kWords, 3 * kBlock);
    }
    if (TRIED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) {
        // Only what the two streams share needs an order.
        TRIED(cudaDeviceSynchronize());
        between(a, b, stream);
        TRIED(cudaStreamDestroy(stream));
    }
    // Memory that goes while something is on its way to it.
    for (Word round = 0; round < 2; ++round) {
        launched(b, a, 11 + round);
        b.check("in part", 0, kWords / 2);
        if (!b.release() || !b.allocate()) continue;
        b.write(0, kWords, 5 + round);
        launched(b, a, 13);
        b.check("in its next life", 0, kWords);
    }
    a.check("in part", 0, kWords / 2);
    reset_or_finish(kWords, {&a, &b});
    return verdict();
}
