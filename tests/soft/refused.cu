// SPDX-License-Identifier: MIT
// A kernel that the soft device cannot run is refused when it is first needed, with CUDA's own error and one line that
// names kernel, line and instruction; the process, its context and the module's other kernels go on.
#include <unistd.h>

#include <cstring>
#include <string>

#include "check.h"

__global__ void tensor(unsigned* out) {
    unsigned d0, d1;
    // A product of two 8x8 matrices of single bits, for tensor cores.
    asm volatile("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0, %1}, {%2}, {%3}, {%4, %5};"
                 : "=r"(d0), "=r"(d1)
                 : "r"(1), "r"(2), "r"(0), "r"(0));
    out[threadIdx.x] = d0 + d1;
}

__global__ void plain(unsigned* out) { out[threadIdx.x] = threadIdx.x * 3; }

int main() {
    Buffer<unsigned> out(32);
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const int terminal = dup(2);
    dup2(ends[1], 2);
    tensor<<<1, 32>>>(out.p);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t after = cudaDeviceSynchronize();
    cudaFuncAttributes attributes;
    const cudaError_t asked = cudaFuncGetAttributes(&attributes, tensor);
    dup2(terminal, 2);
    close(ends[1]);
    char text[4096] = {};
    EXPECT(read(ends[0], text, sizeof text - 1) > 0);
    EXPECT(launched == cudaErrorNotSupported && after == cudaSuccess && asked == cudaErrorNotSupported);
    for (const char* word : {"hpe-soft: ", "tensor", "line ", "mma.sync.aligned.m8n8k128"})
        EXPECT(std::strstr(text, word) != nullptr);
    EXPECT(std::strchr(text, '\n') == text + std::strlen(text) - 1);  // said once
    cudaGetLastError();

    plain<<<1, 32>>>(out.p);
    unsigned got[32];
    out.get(got);
    for (unsigned t = 0; t < 32; t++) EXPECT(got[t] == t * 3);
    std::printf("refused: ok\n");
}
