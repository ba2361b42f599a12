// SPDX-License-Identifier: MIT
// Many small arrays side by side, which the CPU uses one after the other: libhpe opens and sends several at once.
#include "tried.h"

int main(int argc, char** argv) {
    arguments(argc, argv);
    constexpr std::size_t kWords = 1500, kArrays = 150;
    std::vector<Array> crowd;
    for (std::size_t i = 0; i < kArrays; ++i) {
        crowd.emplace_back("one of a crowd", kWords);
        crowd.back().allocate();
    }
    for (Word round = 0; round < 3; ++round) {
        for (auto& array : crowd) array.write(0, kWords, round);
        for (std::size_t i = 0; i < kArrays; i += 3) launched(crowd[i], crowd[kArrays - 1 - i], 3 + round);
        for (const auto& array : crowd) array.check("in order", 0, kWords);
        // The last ones first.
        for (std::size_t i = 0; i < kArrays; i += 4) launched(crowd[i], crowd[i + 1], 5);
        for (std::size_t i = kArrays; i-- > 0;) crowd[i].check("backwards", 0, kWords, 7);
    }
    for (std::size_t i = 1; i < kArrays; i += 2) crowd[i].release();
    launched(crowd[0], crowd[2], 7);
    for (std::size_t i = 0; i < kArrays; i += 2) crowd[i].check("with gaps between", 0, kWords);
    reset_or_finish(kWords, {&crowd[0], &crowd[2]});
    return verdict();
}
