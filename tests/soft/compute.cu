// SPDX-License-Identifier: MIT
// What compute capability the device has, which of the program's PTX versions it runs, and limits that go with it.
#include "check.h"

#ifdef __CUDA_ARCH_SPECIFIC__
#define SPECIFIC 1
#else
#define SPECIFIC 0
#endif

__global__ void version(int* out) {
#ifdef __CUDA_ARCH__
    out[0] = __CUDA_ARCH__;
    out[1] = SPECIFIC;
#endif
}

int main() {
    cudaDeviceProp p;
    CUDA(cudaGetDeviceProperties(&p, 0));
    int optin = 0, got[2] = {};
    CUDA(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    std::printf("device %d.%d: %d threads, %d blocks, %d KiB of %d KiB\n", p.major, p.minor,
                p.maxThreadsPerMultiProcessor, p.maxBlocksPerMultiProcessor, optin >> 10,
                int(p.sharedMemPerMultiprocessor >> 10));
    Buffer<int> out(2);
    version<<<1, 1>>>(out.p);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorName(error));
        return 0;
    }
    out.get(got);
    std::printf("runs %d%s\n", got[0] / 10, got[1] ? " specific" : "");
}
