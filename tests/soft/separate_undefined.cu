// SPDX-License-Identifier: MIT
// A function that no part of the program defines: the driver, which links the program, says so when it is first needed.
#include <unistd.h>

#include <cstring>

#include "check.h"

extern __device__ int nowhere(int x);
extern __device__ int lost;

__global__ void uses(int* out) { *out = nowhere(*out) + lost; }
__global__ void plain(int* out) { *out = 1; }

int main() {
    int* out = nullptr;
    CUDA(cudaMalloc(&out, sizeof *out));
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const int terminal = dup(2);
    dup2(ends[1], 2);
    plain<<<1, 1>>>(out);
    const cudaError_t launched = cudaGetLastError();
    uses<<<1, 1>>>(out);
    const cudaError_t again = cudaGetLastError();
    dup2(terminal, 2);
    close(ends[1]);
    char text[4096] = {};
    EXPECT(read(ends[0], text, sizeof text - 1) > 0);
    EXPECT(launched == cudaErrorInvalidPtx && again == cudaErrorInvalidPtx);
    for (const char* word : {"hpe-soft: ", "undefined reference to '_Z7nowherei'", "undefined reference to 'lost'"})
        EXPECT(std::strstr(text, word) != nullptr);
    EXPECT(std::strchr(text, '\n') == text + std::strlen(text) - 1);
    CUDA(cudaMemset(out, 0, sizeof *out));  // nothing of this is sticky
    std::printf("separate undefined: ok\n");
}
