// SPDX-License-Identifier: MIT
// huge_pages CASE [without]: the CPU uses an object of 16 MiB in a certain way. Prints how many elements were wrong,
// how many MiB of the object the CPU has in huge pages, and whether this process can have such pages at all; `without`
// asks the kernel for none (prctl(2), PR_SET_THP_DISABLE).
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cinttypes>
#include <cstdint>

#include "../../doors/programs/swept.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static bool to_be_had() {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    auto* reserved = static_cast<char*>(mmap(nullptr, 2 * kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char* const aligned = reserved + (kHuge - reinterpret_cast<std::uintptr_t>(reserved) % kHuge) % kHuge;
    if (mmap(aligned, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != aligned)
        return false;
    aligned[0] = 1;
    return madvise(aligned, kHuge, MADV_COLLAPSE) == 0;
}

static unsigned long huge_mib(const Swept& object) {
    const auto first = reinterpret_cast<std::uintptr_t>(object.data), last = first + object.size() * sizeof(Word);
    std::FILE* file = std::fopen("/proc/self/smaps", "r");
    unsigned long kib = 0, of_line = 0;
    bool inside = false;
    for (char line[512]; std::fgets(line, sizeof line, file) != nullptr;) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) inside = begin >= first && end <= last;
        if (inside && std::sscanf(line, "ShmemPmdMapped: %lu kB", &of_line) == 1) kib += of_line;
    }
    std::fclose(file);
    return kib >> 10;
}

int main(int argc, char** argv) {
    used_before = false;
    const bool without = argc > 2 && std::strcmp(argv[2], "without") == 0;
    if (without) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
    Swept object(16 * kMiB);
    for (Word round = 0; round < 4; ++round) {
        object.kernel(round);
        if (is("read")) object.read(0, object.size());
        if (is("write")) object.write(0, object.size(), round);
        if (is("backwards")) {
            for (std::size_t i = object.size(); i-- > 0;) object.write(i, round + static_cast<Word>(i));
        }
        for (std::size_t i = 0; is("sparse") && i < object.size(); i += kMiB * 3) object.write(i, round);
    }
    const auto huge = huge_mib(object);
    object.read(0, object.size());
    std::printf("%lu wrong, %lu MiB, %d\n", wrong.load(), huge, to_be_had());
    return 0;
}
