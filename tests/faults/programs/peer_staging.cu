// SPDX-License-Identifier: MIT
// Copies of several MiB between two devices, in streams and without one. For devices that cannot reach each other's
// memory.
#include "tried.h"

constexpr std::size_t kWords = (std::size_t{1} << 20) + 1001;

// What a copy that failed left behind is undefined.
static void after(bool copied, Array& to, const Array& from, Word seed) {
    if (to.data == nullptr || from.data == nullptr) return;
    if (copied) {
        to.model = from.model;
    } else if (TRIED(cudaMemset(to.data, static_cast<int>(seed), to.bytes()))) {
        for (Word& m : to.model) m = seed * 0x01010101u;
    }
}

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array here("here", kWords), there("there", kWords), back("back", kWords);
    cudaStream_t stream = nullptr;
    for (Array* array : {&here, &back, &there}) {
        if (!TRIED(cudaSetDevice(array == &there ? 1 : 0))) return verdict();
        array->allocate();
        array->write(0, kWords, static_cast<Word>(array->name[0]), 7);
    }
    if (!TRIED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) return verdict();
    const bool all = here.data != nullptr && there.data != nullptr && back.data != nullptr;
    for (Word round = 0; all && round < 2; ++round) {
        if (!TRIED(cudaDeviceSynchronize())) return verdict();
        after(TRIED(cudaMemcpyPeerAsync(there.data, 1, here.data, 0, here.bytes(), stream)), there, here, round);
        after(TRIED(cudaMemcpyPeerAsync(back.data, 0, there.data, 1, there.bytes(), stream)), back, there, round);
        launched(there, there, round + 3, stream);  // on the second device, which is current
        if (!TRIED(cudaStreamSynchronize(stream))) return verdict();
        back.check("after there and back", 0, kWords, 61);
        after(TRIED(cudaMemcpyPeer(here.data, 0, there.data, 1, there.bytes())), here, there, round);
        if (!TRIED(cudaDeviceSynchronize())) return verdict();
        here.write(round * 1000, 50, round);
    }
    for (Array* array : {&here, &there, &back}) {
        array->finish();
        array->release();
    }
    return verdict();
}
