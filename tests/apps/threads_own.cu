// SPDX-License-Identifier: MIT
// Eight host threads, each with its own objects and its own stream.
#include <thread>
#include <vector>

#include "app.h"

__global__ void advance(const unsigned* from, unsigned* to, std::size_t n, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) to[i] = from[i] * 1664525u + from[(i + 1) % n] + key;
}

static void work(unsigned thread, std::size_t n, Checksum& checksum) {
    Object<unsigned> a = allocate<unsigned>(n, HostMemory::Pinned), b = allocate<unsigned>(n, HostMemory::Pinned);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (std::size_t i = 0; i < n; ++i) a[i] = thread * 65536u + static_cast<unsigned>(i);
    for (unsigned round = 0; round < 10; ++round) {
        to_gpu(a, stream);
        advance<<<blocks_for(n, 64), 64, 0, stream>>>(a.gpu, b.gpu, n, round);
        advance<<<blocks_for(n, 64), 64, 0, stream>>>(b.gpu, a.gpu, n, thread);
        CHECK(cudaGetLastError());
        to_cpu(a, stream);
        CHECK(cudaStreamSynchronize(stream));
        for (std::size_t i = round; i < n; i += 97) {
            checksum.add(a[i]);
            a[i] += round;
        }
    }
    checksum.add(a.cpu, n * sizeof(unsigned));
    CHECK(cudaStreamDestroy(stream));
    release(a);
    release(b);
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 1500);
    constexpr unsigned thread_count = 8;
    Checksum checksums[thread_count];
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < thread_count; ++t) {
        threads.emplace_back([=, &checksums] { work(t, n + 13 * t, checksums[t]); });
    }
    for (std::thread& t : threads) t.join();

    Checksum checksum;
    for (const Checksum& c : checksums) checksum.add(c.value());
    std::printf("threads_own threads=%u n=%zu\n", thread_count, n);
    checksum.print();
    return 0;
}
