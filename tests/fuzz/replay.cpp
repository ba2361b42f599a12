// SPDX-License-Identifier: MIT
// usage: TARGET FOLDER...
// Gives every file of the folders to a fuzz target: what fuzzing found stays a test where there is no libFuzzer.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
    // No input may take much memory, whatever lengths it claims. Sanitizers reserve address space of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const rlimit memory{1u << 30, 1u << 30};
    if (setrlimit(RLIMIT_AS, &memory) != 0) stop("setrlimit failed");
#endif
    unsigned files = 0;
    for (int n = 1; n < argc; ++n)
        for (const auto& entry : std::filesystem::directory_iterator(argv[n])) {
            std::ifstream in(entry.path(), std::ios::binary);
            const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
            // A copy of exactly this size, so that a tool sees reads past its end. A hang ends by the signal.
            std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
            alarm(20);
            std::fprintf(stderr, "%s\n", entry.path().filename().c_str());
            LLVMFuzzerTestOneInput(input.data(), input.size());
            ++files;
        }
    std::printf("%u inputs\n", files);
    return files == 0;
}
