// SPDX-License-Identifier: MIT
// Calls of memcpy, memset and read that are large enough for the device: what it does not do the CPU must.
#include "tried.h"

#include <unistd.h>

#include <cstring>

namespace {

constexpr std::size_t kWords = 100000, kOffset = 1234, kPart = 80000;

void copy(Word* to, Word* to_model, const Word* from, const Word* from_model) {
    if (!touching) return;
    std::memcpy(to, from, kPart * sizeof *to);
    std::memcpy(to_model, from_model, kPart * sizeof *to);
}

// Before any launch or copy: the read goes to the device, with another object valid on the host.
void read_first() {
    constexpr std::size_t kBytes = std::size_t{8} << 20;
    std::vector<unsigned char> words(kBytes, 7), back(kBytes);
    std::FILE* const file = std::tmpfile();
    if (!touching || file == nullptr || pwrite(fileno(file), words.data(), kBytes, 0) != kBytes) return;
    unsigned char *touched = nullptr, *untouched = nullptr;
    if (TRIED(cudaMalloc(&touched, kBytes)) && TRIED(cudaMalloc(&untouched, kBytes))) {
        touched[1] = 1;
        const bool all = pread(fileno(file), untouched, kBytes, 0) == kBytes;
        const bool copied = TRIED(cudaMemcpy(back.data(), untouched, kBytes, cudaMemcpyDeviceToHost));
        if (all && copied && back != words) {
            ++wrong_arrays;
            std::printf("WRONG file\n");
        }
    }
    TRIED(cudaFree(untouched));
    TRIED(cudaFree(touched));
    std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    read_first();
    Array a("a", kWords), b("b", kWords);
    if (!a.allocate() || !b.allocate()) return verdict();
    std::vector<Word> memory(kWords), model(kWords);
    for (Word round = 1; round < 4; ++round) {
        for (std::size_t i = 0; i < kWords; ++i) memory[i] = model[i] = static_cast<Word>(i * 40503 + round);
        copy(a.data + kOffset, &a.model[kOffset], &memory[round], &model[round]);
        launched(b, a, round);
        copy(a.data, a.model.data(), b.data + kOffset, &b.model[kOffset]);
        launched(b, a, round + 7);
        if (touching) {
            std::memset(b.data + round, static_cast<int>(round), kPart * sizeof(Word));
            std::memset(&b.model[round], static_cast<int>(round), kPart * sizeof(Word));
        }
        launched(a, b, round + 9);
        copy(memory.data(), model.data(), a.data + round, &a.model[round]);
        if (memory != model) {
            ++wrong_arrays;
            std::printf("WRONG memory\n");
        }
    }
    a.finish();
    b.finish();
    a.release();
    b.release();
    return verdict();
}
