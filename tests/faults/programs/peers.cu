// SPDX-License-Identifier: MIT
// Copies between two devices, large enough for libhpe to make them direct. The program never enables peer access.
#include "tried.h"

constexpr std::size_t kWords = (std::size_t{1} << 18) + 1001;

static void copy(Array& to, int to_device, const Array& from, int from_device) {
    if (to.data == nullptr || from.data == nullptr) return;
    if (TRIED(cudaMemcpyPeer(to.data, to_device, from.data, from_device, from.bytes()))) to.model = from.model;
}

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array here("here", kWords), there("there", kWords), back("back", kWords);
    for (Array* array : {&here, &back, &there}) {
        if (!TRIED(cudaSetDevice(array == &there ? 1 : 0))) return verdict();
        array->allocate();
        array->write(0, kWords, static_cast<Word>(array->name[0]), 7);
    }
    for (Word round = 0; round < 2; ++round) {
        copy(there, 1, here, 0);
        copy(back, 0, there, 1);
        back.check("after there and back", 0, kWords, 61);
        launched(there, there, round + 3);  // on the second device, which is current
        if (!TRIED(cudaDeviceSynchronize())) return verdict();
        copy(here, 0, there, 1);
        here.write(round * 1000, 50, round);
    }
    for (Array* array : {&here, &there, &back}) {
        array->finish();
        array->release();
    }
    return verdict();
}
