// SPDX-License-Identifier: MIT
// The second file of separate.cu: variables that the others use, and functions and kernels of its own.
#include "separate.h"

static __device__ int hidden = 3;
static __constant__ int hidden_constant = 300;
static __device__ __noinline__ int twin(int x) { return x + hidden + hidden_constant; }
static __global__ void same_name(int* out) { *out = twin(0); }

extern __device__ int doubled(int x);

__device__ int table[4] = {1, 2, 3, 4};
__device__ int plane[2][3] = {{1, 2, 3}, {4, 5, 6}};
__constant__ int weights[4] = {1, 2, 3, 4};
__managed__ int shared_with_host = 50;
__device__ int scaled(int x) { return 10 * x; }
extern __device__ int increased(int x);
__device__ Function* functions[3] = {doubled, scaled, increased};

extern __shared__ __align__(16) int dynamic[];
__device__ int from_dynamic_shared(int at) { return dynamic[at]; }

__global__ void results_of_part(int* out) {
    out[1] = weights[3];
    out[2] = next_number();
    out[3] = Counter<int>::add(3);
    printf("from %s\n", "the second");
}

void part(int* results) {
    Buffer<int> out(6), filled(32);
    same_name<<<1, 1>>>(out.p);
    results_of_part<<<1, 1>>>(out.p);
    fill<<<1, 32>>>(filled.p, 7);
    CUDA(cudaDeviceSynchronize());
    out.get(results);
    int got[32];
    filled.get(got);
    results[4] = got[0];
    results[5] = got[31];
}
