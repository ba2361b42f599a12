// SPDX-License-Identifier: MIT
// alloca in kernels: in a loop, in a recursive function, with sizes that differ between the threads of a warp; and a
// recursion deep enough to need the stack that cudaLimitStackSize asks for.
#include <vector>

#include "check.h"

__device__ __noinline__ int sum_below(int n) {
    if (n <= 0) return 0;
    int* numbers = static_cast<int*>(alloca(n * sizeof(int)));
    for (int i = 0; i < n; i++) numbers[i] = i * n;
    const int deeper = sum_below(n - 3);
    int sum = 0;
    for (int i = n - 1; i >= 0; i--) sum += numbers[i];
    return sum + deeper;
}

__global__ void use_alloca(int* out, int rounds) {
    const int t = threadIdx.x;
    int* kept = nullptr;
    for (int i = 1; i <= rounds; i++) {
        int* more = static_cast<int*>(alloca((t % 7 + i) * sizeof(int)));
        more[t % 7 + i - 1] = t + i;
        more[0] = kept == nullptr ? 0 : kept[0] + 1;
        kept = more;
    }
    out[t] = sum_below(t) * 1000 + kept[0];
}

__device__ __noinline__ int deep(int n, int* path) {
    int local[64];
    for (int i = 0; i < 64; i++) local[i] = n ^ i;
    path[n % 4] += local[n % 64];
    return n == 0 ? 0 : deep(n - 1, path) + local[(n * 7) % 64];
}

__global__ void use_stack(int* out, int depth) {
    int path[4] = {};
    out[threadIdx.x] = deep(depth + threadIdx.x % 2, path) + path[0] + path[1] + path[2] + path[3];
}

static int sum_below_here(int n) {
    if (n <= 0) return 0;
    return n * (n - 1) / 2 * n + sum_below_here(n - 3);
}

int main() {
    CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 256 << 10));
    constexpr int threads = 64, rounds = 5, depth = 500;
    Buffer<int> out(threads);
    std::vector<int> got(threads);
    use_alloca<<<1, threads>>>(out.p, rounds);
    out.get(got.data());
    for (int t = 0; t < threads; t++) {
        // Where a block has one element, its first is its last: the count starts again there.
        int kept = 0;
        for (int i = 1; i <= rounds; i++) kept = i == 1 ? 0 : kept + 1;
        EXPECT(got[t] == sum_below_here(t) * 1000 + kept);
    }
    use_stack<<<1, threads>>>(out.p, depth);
    out.get(got.data());
    for (int t = 0; t < threads; t++) {
        int expected = 0;
        for (int n = depth + t % 2; n >= 0; n--) {
            expected += n ^ (n % 64);
            if (n > 0) expected += n ^ ((n * 7) % 64);
        }
        EXPECT(got[t] == expected);
    }
    std::printf("stack: ok\n");
}
