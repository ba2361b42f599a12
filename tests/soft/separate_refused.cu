// SPDX-License-Identifier: MIT
// A kernel that launches kernels is refused when it is first needed, with CUDA's own error and one line that names the
// kernel and the function of the device runtime; the program's other kernels run.
#include <unistd.h>

#include <cstring>

#include "check.h"

__global__ void child(unsigned* out) { out[threadIdx.x] = threadIdx.x * 3; }
__global__ void parent(unsigned* out) { child<<<1, 32>>>(out); }
// Not every function of the runtime launches.
__global__ void asks(int* out) { *out = cudaGetDevice(out); }

template <class... Parameters, class... Arguments>
static void expect_refused(void (*kernel)(Parameters...), const char* name, const char* function, Arguments... arguments) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const int terminal = dup(2);
    dup2(ends[1], 2);
    kernel<<<1, 1>>>(arguments...);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t after = cudaDeviceSynchronize();
    cudaFuncAttributes attributes;
    const cudaError_t asked = cudaFuncGetAttributes(&attributes, kernel);
    dup2(terminal, 2);
    close(terminal);
    close(ends[1]);
    char text[4096] = {};
    EXPECT(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    EXPECT(launched == cudaErrorNotSupported && after == cudaSuccess && asked == cudaErrorNotSupported);
    for (const char* word : {"hpe-soft: ", name, "line ", function}) EXPECT(std::strstr(text, word) != nullptr);
    EXPECT(std::strchr(text, '\n') == text + std::strlen(text) - 1);  // said once
    cudaGetLastError();
}

int main() {
    Buffer<unsigned> out(32);
    expect_refused(parent, "parent", "GetParameterBufferV2", out.p);
    expect_refused(asks, "asks", "GetDevice", reinterpret_cast<int*>(out.p));
    child<<<1, 32>>>(out.p);
    unsigned got[32];
    out.get(got);
    for (unsigned t = 0; t < 32; t++) EXPECT(got[t] == t * 3);
    std::printf("separate refused: ok\n");
}
