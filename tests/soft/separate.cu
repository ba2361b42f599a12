// SPDX-License-Identifier: MIT
// A program compiled in parts: this file, separate_part.cu and separate_library.cu know each other's functions, variables
// and types by declarations, and each has things of its own under the same names.
#include <cooperative_groups.h>

#include <cassert>

#include "separate.h"

namespace groups = cooperative_groups;

static __device__ int hidden = 1;
static __constant__ int hidden_constant = 10;
static __device__ __noinline__ int twin(int x) { return x + hidden + hidden_constant; }
static __global__ void same_name(int* out) { *out = twin(0); }
namespace {
__device__ int nameless = 1000;
}

__device__ int doubled(int x) { return 2 * x; }  // separate_part.cu has its address
extern __shared__ int dynamic[];

__global__ void everything(int* out, void* room) {
    int n = 0;
    out[n++] = scaled(7);                     // 70
    out[n++] = table[2];                      // 33
    out[n++] = plane[1][2];                   // 6
    out[n++] = weights[3];                    // 4
    out[n++] = shared_with_host;              // 50, then what the host wrote
    out[n++] = twin(0);                       // 11
    out[n++] = own(0);                        // 33
    out[n++] = functions[0](8);               // 16
    out[n++] = functions[1](8);               // 80
    out[n++] = functions[2](8);               // 9
    out[n++] = helped(5);                     // 56
    out[n++] = make(room, 6)->area();         // 36
    out[n++] = nameless;                      // 1000
    dynamic[3] = 21;
    out[n++] = from_dynamic_shared(3);        // 21
    int* const p = allocated(77);
    out[n++] = *p;                            // 77
    free(p);
    shared_with_host = 51;
    printf("from %s\n", "the first file");
}

// Each block adds to what the block before it wrote before the barrier.
__global__ void across_blocks(int* out) {
    const auto grid = groups::this_grid();
    if (threadIdx.x == 0) out[blockIdx.x] = scaled(static_cast<int>(blockIdx.x));
    grid.sync();
    int sum = 0;
    if (threadIdx.x == 0)
        for (unsigned b = 0; b < gridDim.x; b++) sum += out[b];
    grid.sync();
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void numbers(int* out) {
    out[0] = next_number();
    out[1] = Counter<int>::add(3);
}

__global__ void fails(int limit) { assert(helped(5) < limit); }

int main() {
    Buffer<int> out(32);
    Buffer<char> room(64);
    int got[32];

    const int table_here[4] = {11, 22, 33, 44};
    CUDA(cudaMemcpyToSymbol(table, table_here, sizeof table_here));
    EXPECT(shared_with_host == 50);
    everything<<<1, 1, 16>>>(out.p, room.p);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    out.get(got);
    const int wanted[] = {70, 33, 6, 4, 50, 11, 33, 16, 80, 9, 56, 36, 1000, 21, 77};
    for (unsigned n = 0; n < sizeof wanted / sizeof *wanted; n++)
        if (got[n] != wanted[n]) {
            std::fprintf(stderr, "everything: %u is %d, not %d\n", n, got[n], wanted[n]);
            return 1;
        }
    EXPECT(shared_with_host == 51);

    // A variable has one address for all files; one that is static has one for each.
    int* address = nullptr;
    CUDA(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), weights));
    const int weights_here[4] = {5, 6, 7, 8};
    CUDA(cudaMemcpy(address, weights_here, sizeof weights_here, cudaMemcpyHostToDevice));
    const int changed = 2, changed_constant = 20;
    CUDA(cudaMemcpyToSymbol(hidden, &changed, sizeof changed));
    CUDA(cudaMemcpyToSymbol(hidden_constant, &changed_constant, sizeof changed_constant));
    same_name<<<1, 1>>>(out.p);
    int results[6] = {};
    part(results);
    out.get(got);
    EXPECT(got[0] == 22);
    EXPECT(results[0] == 303);       // its own functions and variables of these names
    EXPECT(results[1] == 8);         // weights[3], as written here
    EXPECT(results[2] == 100 && results[3] == 5);
    EXPECT(results[4] == 7 + 31 && results[5] == 7);  // fill<int>
    numbers<<<1, 1>>>(out.p);
    out.get(got);
    EXPECT(got[0] == 101 && got[1] == 8);  // counted on from separate_part.cu's
    fill<<<1, 32>>>(out.p, 40);
    out.get(got);
    for (int t = 0; t < 32; t++) EXPECT(got[t] == 40 + 31 - t);

    int* blocks = out.p;
    void* arguments[] = {&blocks};
    CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(across_blocks), dim3(6), dim3(64), arguments));
    CUDA(cudaDeviceSynchronize());
    out.get(got);
    for (int b = 0; b < 6; b++) EXPECT(got[b] == 10 * (0 + 1 + 2 + 3 + 4 + 5));

    fails<<<1, 1>>>(57);
    CUDA(cudaDeviceSynchronize());
    fails<<<1, 1>>>(56);
    EXPECT(cudaDeviceSynchronize() == cudaErrorAssert);
    std::printf("separate: ok\n");
}
