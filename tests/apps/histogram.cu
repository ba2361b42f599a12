// SPDX-License-Identifier: MIT
// A histogram with atomics in shared and in global memory, of bytes whose number is no multiple of anything. The CPU
// clears the bins before each pass and changes some of the data between passes.
#include "app.h"

constexpr int bins = 256;

__global__ void count(const unsigned char* data, std::size_t n, unsigned* histogram) {
    __shared__ unsigned local[bins];
    for (unsigned b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n; i += stride) {
        atomicAdd(&local[data[i]], 1u);
    }
    __syncthreads();
    for (unsigned b = threadIdx.x; b < bins; b += blockDim.x) {
        if (local[b] != 0) atomicAdd(&histogram[b], local[b]);
    }
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 60013);
    Object<unsigned char> data = allocate<unsigned char>(n);
    Object<unsigned> histogram = allocate<unsigned>(bins);
    Random random(3);
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned char>(random.below(16) * random.below(16));
    to_gpu(data);

    Checksum checksum;
    for (int pass = 0; pass < 3; ++pass) {
        for (int b = 0; b < bins; ++b) histogram[b] = 0;
        to_gpu(histogram);
        count<<<20, 128>>>(data.gpu, n, histogram.gpu);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        to_cpu(histogram);

        std::size_t total = 0;
        int fullest = 0;
        for (int b = 0; b < bins; ++b) {
            total += histogram[b];
            if (histogram[b] > histogram[fullest]) fullest = b;
        }
        std::printf("histogram pass=%d total=%zu fullest=%d count=%u\n", pass, total, fullest, histogram[fullest]);
        checksum.add(histogram.cpu, bins * sizeof(unsigned));
        if (total != n) return 1;
        for (std::size_t i = 0; i < n; i += 7) data[i] = static_cast<unsigned char>(data[i] + pass + 1);
        to_gpu(data);
    }
    checksum.print();
    release(data);
    release(histogram);
    return 0;
}
