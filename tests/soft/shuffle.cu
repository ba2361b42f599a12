// SPDX-License-Identifier: MIT
// Shuffles whose source lane does not take part, because it is elsewhere or has never existed, give 0: PTX leaves the
// value open, an H200 gives this one, and reductions over a few lanes of a warp add it.
#include "check.h"

__global__ void sums(unsigned* out, unsigned members) {
    const unsigned t = threadIdx.x;
    unsigned sum = t + 1;
    if ((members >> t & 1) != 0)
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(members, sum, distance);
    out[t] = sum;
}

__global__ void others(unsigned* out) {
    const unsigned t = threadIdx.x;
    out[t] =
        __shfl_sync(0xffu, t + 1, 20) * 1000 + __shfl_xor_sync(0xffu, t + 1, 8) * 10 + __shfl_up_sync(0xffu, t + 1, 1);
}

int main() {
    Buffer<unsigned> out(32);
    unsigned got[32];
    for (const unsigned count : {1u, 4u, 32u}) {
        sums<<<1, 32>>>(out.p, count == 32 ? ~0u : (1u << count) - 1);
        out.get(got);
        EXPECT(got[0] == count * (count + 1) / 2);
        for (unsigned t = count; t < 32; t++) EXPECT(got[t] == t + 1);
    }
    others<<<1, 8>>>(out.p);
    out.get(got);
    for (unsigned t = 0; t < 8; t++) EXPECT(got[t] == (t == 0 ? 1 : t));
    std::printf("shuffle: ok\n");
}
