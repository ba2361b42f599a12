// SPDX-License-Identifier: MIT
// A peer copy without a stream is in order with the work of both devices, whichever is current: it sees what the source's
// kernels wrote before, and the target's kernels afterwards see what it wrote. Nothing is waited for in between.
#include <vector>

#include "check.h"

constexpr int count = 16 << 20;

__global__ void fill(int* p, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) p[i] = value;
}
__global__ void last(const int* p, int* out) { *out = p[count - 1]; }

int main() {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        int *from, *to, *out;
        CUDA(cudaSetDevice(1));
        CUDA(cudaMalloc(&from, count * sizeof(int)));
        CUDA(cudaSetDevice(0));
        CUDA(cudaMalloc(&to, count * sizeof(int)));
        CUDA(cudaMalloc(&out, sizeof(int)));
        for (int round = 1; round <= 6; round++) {
            CUDA(cudaSetDevice(1));
            fill<<<64, 128>>>(from, round);
            CUDA(cudaSetDevice(round % 2));
            if (round < 4) {
                CUDA(cudaMemcpyPeer(to, 0, from, 1, count * sizeof(int)));
            } else {
                cudaMemcpy3DPeerParms p = {};
                p.srcDevice = 1;
                p.srcPtr = make_cudaPitchedPtr(from, count, count, 1);
                p.dstDevice = 0;
                p.dstPtr = make_cudaPitchedPtr(to, count, count, 1);
                p.extent = make_cudaExtent(count, 1, sizeof(int));
                CUDA(cudaMemcpy3DPeer(&p));
            }
            CUDA(cudaSetDevice(1));
            fill<<<64, 128>>>(from, -1);  // after the copy
            CUDA(cudaSetDevice(0));
            last<<<1, 1>>>(to, out);
            int got = 0;
            CUDA(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
            EXPECT(got == round);
        }
    }
    std::printf("peer order: ok\n");
}
