// SPDX-License-Identifier: MIT
// A file that is read into the middle of an array: bytes that were on their way from the device must not come later.
#include "tried.h"

int main(int argc, char** argv) {
    arguments(argc, argv);
    constexpr std::size_t kWords = 1u << 18, kPart = kWords / 2, kOffset = 2048;
    Array a("a", kWords), b("b", kWords);
    if (!a.allocate() || !b.allocate()) return verdict();
    std::FILE* const file = std::tmpfile();
    std::vector<Word> there(kPart);
    for (std::size_t i = 0; i < kPart; ++i) there[i] = static_cast<Word>(i * 40503 + 7);
    if (file == nullptr || std::fwrite(there.data(), sizeof(Word), kPart, file) != kPart) return 2;
    for (Word round = 1; round < 3; ++round) {
        launched(a, b, round);
        std::rewind(file);
        if (!touching) continue;
        const auto came = std::fread(a.data + kOffset, sizeof(Word), kPart, file);
        for (std::size_t i = 0; i < came; ++i) a.model[kOffset + i] = there[i];
        if (came != kPart) {
            std::clearerr(file);
            ++failed_calls, ++lost_calls;
            std::printf("fread: %zu words\n", came);
            return verdict();
        }
        launched(b, a, round + 7);
    }
    std::fclose(file);
    a.finish();
    b.finish();
    a.release();
    b.release();
    return verdict();
}
