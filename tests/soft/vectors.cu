// SPDX-License-Identifier: MIT
// A vector in memory is written and read as a whole, which scans over many blocks depend on: a block publishes its sum
// and the mark that it is there by one store, and another block, on another processor, reads both by one load.
#include "check.h"

constexpr unsigned rounds = 2000000;

template <class Store, class Load>
__device__ void both_sides(Store&& store, Load&& load, unsigned* torn) {
    if (blockIdx.x == 0) {
        for (unsigned i = 1; i <= rounds; i++) store(i);
        return;
    }
    for (unsigned last = 0; last < rounds;) {
        bool whole = true;
        last = load(whole);
        if (!whole) atomicAdd(torn, 1u);
    }
}

__global__ void pairs(uint2* at, unsigned* torn) {
    both_sides(
        [&](unsigned i) { asm volatile("st.relaxed.gpu.v2.u32 [%0], {%1, %1};" ::"l"(at), "r"(i)
                                       : "memory"); },
        [&](bool& whole) {
            uint2 got;
            asm volatile("ld.relaxed.gpu.v2.u32 {%0, %1}, [%2];" : "=r"(got.x), "=r"(got.y) : "l"(at) : "memory");
            whole = got.x == got.y;
            return got.x;
        },
        torn);
}

__global__ void fours(uint4* at, unsigned* torn) {
    both_sides(
        [&](unsigned i) { asm volatile("st.relaxed.gpu.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(i)
                                       : "memory"); },
        [&](bool& whole) {
            uint4 got;
            asm volatile("ld.relaxed.gpu.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                         : "l"(at)
                         : "memory");
            whole = got.x == got.y && got.x == got.z && got.x == got.w;
            return got.x;
        },
        torn);
}

int main() {
    Buffer<uint4> at(1);
    Buffer<unsigned> torn(1);
    unsigned got = 1;
    const auto clear = [&] {
        cudaMemset(at.p, 0, sizeof(uint4));
        cudaMemset(torn.p, 0, sizeof(unsigned));
    };
    clear();
    pairs<<<2, 1>>>(reinterpret_cast<uint2*>(at.p), torn.p);
    torn.get(&got);
    EXPECT(got == 0);
    clear();
    fours<<<2, 1>>>(at.p, torn.p);
    torn.get(&got);
    EXPECT(got == 0);
    std::printf("vectors: ok\n");
}
