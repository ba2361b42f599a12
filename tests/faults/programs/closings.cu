// SPDX-License-Identifier: MIT
// closings ROUNDS: after each kernel the CPU reads an element of every fourth of 64 blocks of 64 KiB, one of them twice
// as far away; and of another object, all. Prints how many were wrong.
#include "../../doors/programs/swept.h"

int main(int, char** argv) {
    constexpr std::size_t kBlock = (64 << 10) / sizeof(Word);
    Swept sparse(64 * kBlock), dense(16 * kBlock);
    for (Word round = 0; round < static_cast<Word>(std::atoi(argv[1])); ++round) {
        sparse.kernel(round);
        dense.kernel(round);
        for (std::size_t block = 0; block < 64; block += block == 28 ? 8 : 4) sparse.read(block * kBlock + round);
        sparse.write(10 * kBlock + round, round);
        dense.read(0, dense.size());
    }
    std::printf("%lu wrong\n", wrong.load());
    return 0;
}
