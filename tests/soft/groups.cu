// SPDX-License-Identifier: MIT
// Cooperative groups whose tiles are several warps: they meet in shared memory that the system reserves behind the
// program's own, of which the program must lose nothing. 128-bit atomics and halves compared in pairs, as C++ has them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;
constexpr int threads = 256;

__global__ void tiles(int* out, const int* in) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[threads];
    const int t = threadIdx.x;
    fixed[t] = t * 3;
    dynamic[t] = t * 5;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<128>(block);
    auto pair = cg::tiled_partition<64>(block);
    block.sync();
    const int sum = cg::reduce(tile, in[t], cg::plus<int>());
    const int most = cg::reduce(pair, in[t], cg::greater<int>());
    fixed[t] += 1;
    tile.sync();
    const int other = fixed[(t & ~127) + 127 - (t & 127)];
    const int first = pair.shfl(in[t], 0);
    out[t] = sum + 1000 * most + 7 * other + dynamic[threads - 1 - t] + 11 * first + tile.any(in[t] == 200) +
             2 * pair.all(in[t] >= 0);
}

struct alignas(16) Wide {
    long long a, b;
};

__global__ void wide(Wide* p, int n) {
#if __CUDA_ARCH__ >= 900
    // Both halves change together or not at all.
    for (int i = 0; i < n; i++) {
        Wide seen = *p;
        for (;;) {
            const Wide next{seen.a + 1, seen.b + 2};
            const Wide old = atomicCAS(p, seen, next);
            if (old.a == seen.a && old.b == seen.b) break;
            seen = old;
        }
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) atomicExch(p + 1, Wide{5, 6});
#else
    atomicAdd((unsigned long long*)&p->a, n), atomicAdd((unsigned long long*)&p->b, 2 * n);
    p[1] = Wide{5, 6};
#endif
}

__global__ void halves(unsigned* out, const __half2* in) {
    const __half2 a = in[threadIdx.x], b = in[threadIdx.x + 1];
    const __half2 less = __hlt2(a, b);
    out[threadIdx.x] = __hlt2_mask(a, b) ^ __hequ2_mask(a, b);
    out[threadIdx.x] += (__hbge2(a, b) ? 1 : 0) + int(__low2float(less)) * 2 + int(__high2float(less)) * 4;
}

int main() {
    std::vector<int> in(threads), got(threads);
    for (int i = 0; i < threads; i++) in[i] = i * 37 % 256;
    Buffer<int> from(threads), to(threads);
    from.put(in.data());
    tiles<<<1, threads, threads * sizeof(int)>>>(to.p, from.p);
    to.get(got.data());
    for (int t = 0; t < threads; t++) {
        int sum = 0, most = 0, any = 0;
        for (int i = t / 128 * 128; i < t / 128 * 128 + 128; i++) sum += in[i], any |= in[i] == 200;
        for (int i = t / 64 * 64; i < t / 64 * 64 + 64; i++) most = in[i] > most ? in[i] : most;
        const int mirror = t / 128 * 128 + 127 - t % 128;
        EXPECT(got[t] == sum + 1000 * most + 7 * (mirror * 3 + 1) + 5 * (threads - 1 - t) + 11 * in[t / 64 * 64] + any + 2);
    }

    Buffer<Wide> both(2);
    wide<<<20, 64>>>(both.p, 3);
    Wide w[2];
    both.get(w);
    EXPECT(w[0].a == 20 * 64 * 3 && w[0].b == 2 * 20 * 64 * 3 && w[1].a == 5 && w[1].b == 6);

    // -1, 0, 1, 2 in the low half, 2, 2, 1, NaN in the high one.
    const unsigned pairs[] = {0x4000bc00, 0x40000000, 0x3c003c00, 0x7e004000};
    Buffer<unsigned> numbers(4), answers(3);
    numbers.put(pairs);
    halves<<<1, 3>>>(answers.p, (const __half2*)numbers.p);
    unsigned said[3];
    answers.get(said);
    // Low: less. High: equal, then greater, then unordered.
    EXPECT(said[0] == 0xffffffff + 2);
    EXPECT(said[1] == 0x0000ffff + 2);
    EXPECT(said[2] == 0xffffffff + 2);
    std::printf("groups: ok\n");
}
