// SPDX-License-Identifier: MIT
// The attributes of a kernel say what it was compiled for: template libraries choose their kernels by ptxVersion, and
// find none for a device that claims to hold code that the program does not have.
#include "check.h"

constexpr int listed[] = {__CUDA_ARCH_LIST__};

__global__ void __launch_bounds__(192) shared_floats(float* out) {
    __shared__ float values[100];
    values[threadIdx.x % 100] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[99 - threadIdx.x % 100];
}

int main() {
    cudaFuncAttributes a;
    CUDA(cudaFuncGetAttributes(&a, shared_floats));
    int major = 0, minor = 0;
    CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    EXPECT(a.ptxVersion == listed[0] / 10);
    EXPECT(a.binaryVersion == major * 10 + minor);
    EXPECT(a.sharedSizeBytes == 400 && a.maxThreadsPerBlock == 192);
    std::printf("attributes: ok\n");
}
