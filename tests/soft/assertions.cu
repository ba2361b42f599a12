// SPDX-License-Identifier: MIT
// Every thread whose assertion fails says so on stderr with its block and thread, as on a GPU.
#include <unistd.h>

#include <cassert>
#include <cstring>
#include <string>

#include "check.h"

__global__ void check_below(unsigned limit) {
    assert(threadIdx.x + blockIdx.x * blockDim.x < limit);
}

// What is written to stderr meanwhile.
template <class Work>
static std::string stderr_of(Work&& work) {
    FILE* file = std::tmpfile();
    EXPECT(file != nullptr);
    const int kept = dup(STDERR_FILENO);
    EXPECT(kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    work();
    EXPECT(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
    std::string text(1 << 16, '\0');
    std::rewind(file);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

int main() {
    CUDA(cudaFree(nullptr));
    check_below<<<2, 32>>>(64);
    CUDA(cudaDeviceSynchronize());
    cudaError_t result = cudaSuccess;
    const std::string text = stderr_of([&] {
        check_below<<<2, 32>>>(60);
        result = cudaDeviceSynchronize();
    });
    EXPECT(result == cudaErrorAssert);
    for (unsigned thread = 0; thread < 32; ++thread) {
        const std::string wanted = "block: [1,0,0], thread: [" + std::to_string(thread) +
                                   ",0,0] Assertion `threadIdx.x + blockIdx.x * blockDim.x < limit` failed.\n";
        const auto at = text.find(wanted);
        EXPECT((at != std::string::npos) == (thread >= 28));
        if (at != std::string::npos) EXPECT(text.find(wanted, at + 1) == std::string::npos);
    }
    EXPECT(text.find("assertions.cu:") != std::string::npos && text.find("check_below") != std::string::npos);
    std::printf("assertions: ok\n");
    std::fflush(stdout);
    _exit(0);  // the device's error stays, and ends nothing here
}
