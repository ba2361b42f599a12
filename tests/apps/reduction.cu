// SPDX-License-Identifier: MIT
// A tree reduction in shared memory: each block leaves one partial result, the CPU adds those.
#include "app.h"

__global__ void reduce(const int* data, std::size_t n, long long* sums, int* largest) {
    __shared__ long long sum[128];
    extern __shared__ int most[];
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) * 2 + threadIdx.x;
    const std::size_t j = i + blockDim.x;
    const int first = i < n ? data[i] : 0, second = j < n ? data[j] : 0;
    sum[threadIdx.x] = static_cast<long long>(first) + second;
    most[threadIdx.x] = first > second ? first : second;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        sum[threadIdx.x] += sum[threadIdx.x + half];
        most[threadIdx.x] = max(most[threadIdx.x], most[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum[0];
        largest[blockIdx.x] = most[0];
    }
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 70001);
    constexpr unsigned block = 128;
    const unsigned blocks = blocks_for(n, 2 * block);
    Object<int> data = allocate<int>(n), largest = allocate<int>(blocks);
    Object<long long> sums = allocate<long long>(blocks);
    Random random(7);
    long long expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
        data[i] = static_cast<int>(random.below(1000000));
        expected += data[i];
    }
    to_gpu(data);

    reduce<<<blocks, block, block * sizeof(int)>>>(data.gpu, n, sums.gpu, largest.gpu);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    to_cpu(sums);
    to_cpu(largest);

    long long sum = 0;
    int most = 0;
    for (unsigned b = 0; b < blocks; ++b) {
        sum += sums[b];
        if (largest[b] > most) most = largest[b];
    }
    Checksum checksum;
    checksum.add(sums.cpu, blocks * sizeof(long long));
    checksum.add(largest.cpu, blocks * sizeof(int));
    std::printf("reduction n=%zu sum=%lld largest=%d right=%d\n", n, sum, most, sum == expected);
    checksum.print();
    release(data);
    release(sums);
    release(largest);
    return sum != expected;
}
