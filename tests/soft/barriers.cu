// SPDX-License-Identifier: MIT
// Split barriers and asynchronous copies in shared memory, as ordinary C++ asks for them: mbarrier with arrivals,
// drops and waits by phase and by parity, copies that report to one (cp.async, and bulk copies from sm_90 on).
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/barrier>
#include <cuda/pipeline>
#include <utility>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int threads = 128, rounds = 5;

#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void phases(int* out) {
    __shared__ Barrier barrier;
    __shared__ int values[threads];
    const int t = threadIdx.x;
    if (t == 0) init(&barrier, threads);
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < rounds; i++) {
        values[t] = t * (i + 1);
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
        sum += values[(t + 33) % threads];
        barrier.arrive_and_wait();
    }
    // The upper half leaves; the lower half goes on without it, waiting by parity.
    if (t >= threads / 2) {
        barrier.arrive_and_drop();
    } else {
        barrier.arrive_and_wait();
        values[t] = sum;
        (void)barrier.arrive();
        barrier.wait_parity(true);  // the even phases are over, this is an odd one
        sum += values[(t + 1) % (threads / 2)];
    }
    out[t] = sum;
}

__global__ void copies(const int4* in, int4* out) {
    __shared__ Barrier barrier;
    __shared__ alignas(16) int4 staged[threads];
    const int t = threadIdx.x;
    if (t == 0) init(&barrier, threads);
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        // Each its own, then one thread all of them.
        if (i % 2 == 0)
            cuda::memcpy_async(&staged[t], &in[i * threads + t], cuda::aligned_size_t<16>(16), barrier);
        else if (t == 0)
            cuda::memcpy_async(staged, in + i * threads, cuda::aligned_size_t<16>(sizeof staged), barrier);
        barrier.arrive_and_wait();
        out[i * threads + t] = staged[threads - 1 - t];
        barrier.arrive_and_wait();
    }
}

__global__ void pipeline(const int* in, int* out) {
    extern __shared__ int staged[];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int t = threadIdx.x;
    for (int ahead = 0, i = 0; i < rounds; i++) {
        for (; ahead < rounds && ahead < i + 2; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, staged + ahead % 2 * threads, in + ahead * threads, sizeof(int) * threads, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[i * threads + t] = staged[i % 2 * threads + (t ^ 1)] + i;
        pipe.consumer_release();
    }
}

__global__ void group_copy(const int* in, int* out, int n) {
    extern __shared__ int staged[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, staged, in, sizeof(int) * n);
    cg::wait(block);
    for (int i = threadIdx.x; i < n; i += threads) out[i] = staged[n - 1 - i];
}

int main() {
    std::vector<int> got(threads);
    Buffer<int> sums(threads);
    phases<<<1, threads>>>(sums.p);
    sums.get(got.data());
    std::vector<int> sum(threads);
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < rounds; i++) sum[t] += (t + 33) % threads * (i + 1);
    for (int t = 0; t < threads; t++) EXPECT(got[t] == sum[t] + (t < threads / 2 ? sum[(t + 1) % (threads / 2)] : 0));

    constexpr int n = threads * rounds;
    std::vector<int4> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = {i, i * 2, i * 3, i * 5};
    Buffer<int4> device_in(n), device_out(n);
    device_in.put(in.data());
    copies<<<1, threads>>>(device_in.p, device_out.p);
    device_out.get(out.data());
    for (int i = 0; i < n; i++) {
        const int4 &a = out[i], &b = in[i / threads * threads + threads - 1 - i % threads];
        EXPECT(a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w);
    }

    std::vector<int> numbers(n), moved(n);
    for (int i = 0; i < n; i++) numbers[i] = i * 7;
    Buffer<int> from(n), to(n);
    from.put(numbers.data());
    pipeline<<<1, threads, 2 * threads * sizeof(int)>>>(from.p, to.p);
    to.get(moved.data());
    for (int i = 0; i < n; i++) EXPECT(moved[i] == (i ^ 1) * 7 + i / threads);
    group_copy<<<1, threads, n * sizeof(int)>>>(from.p, to.p, n);
    to.get(moved.data());
    for (int i = 0; i < n; i++) EXPECT(moved[i] == (n - 1 - i) * 7);
    std::printf("barriers: ok\n");
}
