// SPDX-License-Identifier: MIT
// Kernels with and without races in shared memory, run one at a time by name: races.py knows which must be reported.
// The lines that race are marked for it with the name of the kernel and a letter.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <cuda/barrier>
#include <cuda/pipeline>
#include <cstring>
#include <utility>

#include "check.h"

namespace cg = cooperative_groups;
constexpr int threads = 128;
#pragma nv_diag_suppress static_var_with_dynamic_init

// ---- races ----

__global__ void read_after_write(int* out) {
    __shared__ int s[threads];
    s[threadIdx.x] = threadIdx.x + 1;              // read_after_write a
    out[threadIdx.x] = s[threads - 1 - threadIdx.x];  // read_after_write b
}

__global__ void write_after_read(int* out) {
    __shared__ int s[threads];
    s[threadIdx.x] = threadIdx.x + 1;
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        const int v = s[(threadIdx.x + 64) % threads] + i;  // write_after_read b
        s[threadIdx.x] = v + 1;                             // write_after_read a
        __syncthreads();
    }
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void write_after_write(int* out) {
    __shared__ int s;
    if (threadIdx.x % 32 == 0) s = threadIdx.x + 5;  // write_after_write a
    __syncthreads();
    out[threadIdx.x] = s;
}

// Lanes of one warp, with no __syncwarp: what was right before independent thread scheduling.
__global__ void lanes_of_a_warp(int* out) {
    __shared__ int s[32];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = threadIdx.x + 1;                      // lanes_of_a_warp a
        out[threadIdx.x] = s[threadIdx.x ^ 1] + threadIdx.x;   // lanes_of_a_warp b
    }
}

__global__ void bytes_overlap(int* out) {
    __shared__ alignas(4) unsigned char s[threads * 2];
    s[threadIdx.x + 1] = threadIdx.x + 1;  // bytes_overlap a
    __syncwarp();
    if (threadIdx.x == 32) out[0] = *(unsigned short*)&s[32];  // bytes_overlap b
}

__global__ void plain_and_atomic(int* out) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 7;             // plain_and_atomic b
    atomicAdd(&s, 1);                        // plain_and_atomic a
    __syncthreads();
    out[threadIdx.x] = s;
}

__global__ void wrong_named_barrier(int* out) {
    __shared__ int s[threads];
    s[threadIdx.x] = threadIdx.x + 1;  // wrong_named_barrier a
    // Each half waits for itself and reads the other half.
    if (threadIdx.x < 64)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
    out[threadIdx.x] = s[(threadIdx.x + 64) % threads];  // wrong_named_barrier b
}

__global__ void warp_barrier_only(int* out) {
    __shared__ int s[threads];
    s[threadIdx.x] = threadIdx.x + 1;  // warp_barrier_only a
    __syncwarp();
    out[threadIdx.x] = s[(threadIdx.x + 32) % threads];  // warp_barrier_only b
}

__global__ void dynamic_generic(int* out) {
    extern __shared__ int dynamic[];
    int* volatile keep = dynamic;
    int* p = keep;
    p[threadIdx.x] = threadIdx.x + 1;                     // dynamic_generic a
    out[threadIdx.x] = p[(threadIdx.x + 32) % threads];  // dynamic_generic b
}

__global__ void copy_without_barrier(const int* in, int* out) {
    __shared__ alignas(16) int s[threads];
    __pipeline_memcpy_async(&s[threadIdx.x], &in[threadIdx.x], 4);  // copy_without_barrier a
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[threadIdx.x] = s[(threadIdx.x + 32) % threads];  // copy_without_barrier b
}

// ---- barriers that not all threads come to together ----

__global__ void two_barriers(int* out) {
    if (threadIdx.x < 64) {
        __syncthreads();  // two_barriers a
        out[threadIdx.x] = 1;
    } else {
        __syncthreads();  // two_barriers b
        out[threadIdx.x] = 2;
    }
}

__global__ void half_a_warp(int* out) {
    if (threadIdx.x % 32 < 16) {
        __syncthreads();  // half_a_warp a
        out[threadIdx.x] = 1;
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();  // half_a_warp b
        out[threadIdx.x] += 2;
    }
}

// ---- right ----

__global__ void right_tiles(int* out) {
    __shared__ int s[2][threads];
    int v = threadIdx.x;
    for (int i = 0; i < 6; i++) {
        s[i % 2][threadIdx.x] = v;
        __syncthreads();
        v += s[i % 2][(threadIdx.x + 17) % threads];
    }
    out[threadIdx.x] = v;
}

__global__ void right_reduction(int* out) {
    __shared__ int s[threads];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int n = threads / 2; n >= 32; n /= 2) {
        if (threadIdx.x < n) s[threadIdx.x] += s[threadIdx.x + n];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        for (int n = 16; n > 0; n /= 2) {
            const int other = s[threadIdx.x + n];
            __syncwarp();
            s[threadIdx.x] += other;
            __syncwarp();
        }
    }
    if (threadIdx.x == 0) out[0] = s[0];
}

__global__ void right_early_exit(int* out) {
    __shared__ int s[threads];
    if (threadIdx.x >= 100) return;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[99 - threadIdx.x];
}

__global__ void right_same_value(int* out, int n) {
    __shared__ int all, found;
    all = n;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (threadIdx.x % 3 == 0) found = 1;
    __syncthreads();
    out[threadIdx.x] = all + found;
}

__global__ void right_histogram(int* out) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x % 16], 1);
    atomicMax(&bins[threadIdx.x % 5], 3);
    __syncthreads();
    out[threadIdx.x] = bins[threadIdx.x % 16];
}

__global__ void right_bytes(int* out) {
    __shared__ alignas(4) unsigned char s[threads];
    __shared__ alignas(4) unsigned short t[threads];
    s[threadIdx.x] = threadIdx.x;
    t[threadIdx.x] = threadIdx.x;
    s[threadIdx.x]++;
    __syncthreads();
    out[threadIdx.x] = ((int*)s)[threadIdx.x % 32] + ((int*)t)[threadIdx.x % 64];
}

__global__ void right_named(int* out) {
    __shared__ int s[2][64];
    // The first half produces, the second consumes, in two buffers.
    for (int i = 0; i < 6; i++) {
        const int b = i % 2;
        if (threadIdx.x < 64) {
            if (i >= 2) asm volatile("barrier.sync %0, 128;" ::"r"(3 + b) : "memory");
            s[b][threadIdx.x] = threadIdx.x * i;
            asm volatile("barrier.arrive %0, 128;" ::"r"(1 + b) : "memory");
        } else {
            asm volatile("barrier.sync %0, 128;" ::"r"(1 + b) : "memory");
            out[threadIdx.x] = s[b][127 - threadIdx.x];
            if (i < 4) asm volatile("barrier.arrive %0, 128;" ::"r"(3 + b) : "memory");
        }
    }
}

__global__ void right_mbarrier(int* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int s[threads];
    if (threadIdx.x == 0) init(&barrier, threads);
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        s[threadIdx.x] = threadIdx.x + i;
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
        out[threadIdx.x] = s[(threadIdx.x + 33) % threads];
        barrier.arrive_and_wait();
    }
}

__global__ void right_copies(const int* in, int* out) {
    __shared__ alignas(16) int s[2][threads];
    for (int i = 0; i < 4; i++) {
        __pipeline_memcpy_async(&s[i % 2][threadIdx.x], &in[threadIdx.x], 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        out[threadIdx.x] = s[i % 2][threads - 1 - threadIdx.x];
    }
}

__global__ void right_pipeline(const int* in, int* out) {
    extern __shared__ int dynamic[];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int ahead = 0, i = 0; i < 5; i++) {
        for (; ahead < 5 && ahead < i + 2; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, dynamic + ahead % 2 * threads, in, sizeof(int) * threads, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[threadIdx.x] = dynamic[i % 2 * threads + (threadIdx.x ^ 1)] + i;
        pipe.consumer_release();
    }
}

__global__ void right_lock(int* out) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence_block();
            sum += threadIdx.x;
            __threadfence_block();
            atomicExch(&lock, 0);
            done = true;
        }
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}

__global__ void right_global_lock(int* out, int* lock) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            sum += threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}

__global__ void right_flag(int* out) {
    __shared__ volatile int flag;
    __shared__ int value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        value = 41;
        __threadfence_block();
        flag = 1;
    } else if (threadIdx.x == 32) {
        while (flag == 0) {
        }
        __threadfence_block();
        out[0] = value;
    }
}

__global__ void right_groups(int* out) {
    __shared__ int s[threads];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[threadIdx.x] = threadIdx.x;
    tile.sync();
    int v = s[threadIdx.x ^ 7];
    tile.sync();
    s[threadIdx.x] = v;
    cg::this_thread_block().sync();
    out[threadIdx.x] = s[threads - 1 - threadIdx.x] + tile.shfl(v, 3);
}

int main(int argc, char** argv) {
    Buffer<int> in(threads), out(threads), lock(1);
    const auto is = [&](const char* name) { return argc > 1 && std::strcmp(argv[1], name) == 0; };
    bool known = false;
#define RUN(name, ...) \
    if (is(#name)) name<<<2, threads, 2 * threads * sizeof(int)>>>(__VA_ARGS__), known = true
    RUN(read_after_write, out.p);
    RUN(write_after_read, out.p);
    RUN(write_after_write, out.p);
    RUN(lanes_of_a_warp, out.p);
    RUN(bytes_overlap, out.p);
    RUN(plain_and_atomic, out.p);
    RUN(wrong_named_barrier, out.p);
    RUN(warp_barrier_only, out.p);
    RUN(dynamic_generic, out.p);
    RUN(copy_without_barrier, in.p, out.p);
    RUN(two_barriers, out.p);
    RUN(half_a_warp, out.p);
    RUN(right_tiles, out.p);
    RUN(right_reduction, out.p);
    RUN(right_early_exit, out.p);
    RUN(right_same_value, out.p, 3);
    RUN(right_histogram, out.p);
    RUN(right_bytes, out.p);
    RUN(right_named, out.p);
    RUN(right_mbarrier, out.p);
    RUN(right_copies, in.p, out.p);
    RUN(right_pipeline, in.p, out.p);
    RUN(right_lock, out.p);
    RUN(right_global_lock, out.p, lock.p);
    RUN(right_flag, out.p);
    RUN(right_groups, out.p);
    EXPECT(known);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    std::printf("races: ok\n");
}
