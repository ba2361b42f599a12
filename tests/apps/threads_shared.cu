// SPDX-License-Identifier: MIT
// Eight host threads on one object: element i belongs to thread i mod 8, so that all threads write to every page at the
// same time. Between rounds a kernel changes the whole object.
#include <pthread.h>

#include <thread>
#include <vector>

#include "app.h"

constexpr unsigned thread_count = 8;

__global__ void mix(unsigned* data, std::size_t n, unsigned round) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = data[i] * 22695477u + round;
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 16384 + 5);
    constexpr unsigned rounds = 6;
    Object<unsigned> data = allocate<unsigned>(n);
    unsigned long long sums[thread_count] = {};
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, thread_count);

    const auto work = [&](unsigned me) {
        for (std::size_t i = me; i < n; i += thread_count) data[i] = me + static_cast<unsigned>(i);
        for (unsigned round = 0; round < rounds; ++round) {
            pthread_barrier_wait(&barrier);
            if (me == round % thread_count) {  // the kernel is launched by another thread each time
                to_gpu(data);
                mix<<<blocks_for(n, 128), 128>>>(data.gpu, n, round);
                CHECK(cudaGetLastError());
                CHECK(cudaDeviceSynchronize());
                to_cpu(data);
            }
            pthread_barrier_wait(&barrier);
            for (std::size_t i = me; i < n; i += thread_count) {
                sums[me] += data[i];
                if (i % 3 == round % 3) data[i] ^= me;
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < thread_count; ++t) threads.emplace_back(work, t);
    for (std::thread& t : threads) t.join();
    pthread_barrier_destroy(&barrier);

    Checksum checksum;
    checksum.add(sums, sizeof sums);
    checksum.add(data.cpu, n * sizeof(unsigned));
    std::printf("threads_shared threads=%u n=%zu rounds=%u\n", thread_count, n, rounds);
    checksum.print();
    release(data);
    return 0;
}
