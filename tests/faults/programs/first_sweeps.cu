// SPDX-License-Identifier: MIT
// CPU sweeps through arrays that only kernels have used before, large enough that libhpe parks what it fetches ahead of
// them: in memory, and by copies, whose calls may fail.
#include "tried.h"

int main(int argc, char** argv) {
    arguments(argc, argv);
    constexpr std::size_t kWords = (std::size_t{9} << 17) + 12345, kStride = std::size_t{3} << 14;
    Array a("a", kWords), b("b", kWords), c("c", kWords);
    a.allocate();
    b.allocate();
    launched(a, b, 3);
    a.check("swept for the first time", 0, kWords);
    launched(b, a, 5);
    b.check("in part", 0, kWords / 2);
    launched(b, a, 7);
    b.check("after a launch", 0, kWords);
    for (Word round = 0; round < 2; ++round) {
        c.allocate();
        launched(c, a, 11 + round);
        c.check("strided", 5, kWords, kStride);
        // With something on its way to it, once or twice.
        c.check("in part", kWords / 3, kWords / 3);
        c.release();
    }
    reset_or_finish(kWords, {&a, &b});
    return verdict();
}
