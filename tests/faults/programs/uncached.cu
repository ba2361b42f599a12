// SPDX-License-Identifier: MIT
// Arrays that were exported to another process, which the CPU then reads and writes word by word, between launches.
// Short, so that each call can be made to fail.
#include "tried.h"

int main(int argc, char** argv) {
    arguments(argc, argv);
    constexpr std::size_t kWords = 150;
    Array a("a", kWords), b("b", kWords);
    if (!a.allocate() || !b.allocate()) return verdict();
    a.write(0, kWords, 5);
    b.write(0, kWords, 6);
    for (Array* array : {&a, &b}) {
        cudaIpcMemHandle_t handle;
        TRIED(cudaIpcGetMemHandle(&handle, array->data));
    }
    for (unsigned round = 0; round < 2; ++round) {
        launched(a, b, 3 + round);
        a.write(round, kWords, 7 + round, 11);
        launched(b, a, 5);
        b.check("between launches", 0, kWords, 13);
    }
    for (Array* array : {&a, &b}) {
        array->finish();
        array->release();
    }
    return verdict();
}
