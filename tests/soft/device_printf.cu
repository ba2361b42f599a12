// SPDX-License-Identifier: MIT
// printf in kernels returns the number of its arguments, as CUDA's manual says, not of characters.
#include "check.h"

__global__ void say(int* results) {
    results[0] = printf("no argument\n");
    results[1] = printf("%d %s %.2f %c\n", 42, "forty-two", 42.25, 'x');
    results[2] = printf("%5d|%-5d|%lld|%%\n", 7, 7, 1ll << 40);
}

int main() {
    Buffer<int> results(3);
    say<<<1, 1>>>(results.p);
    int got[3];
    results.get(got);
    std::printf("%d %d %d\n", got[0], got[1], got[2]);
}
