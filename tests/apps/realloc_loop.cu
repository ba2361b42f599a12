// SPDX-License-Identifier: MIT
// Objects that are freed and allocated again in a loop, so that addresses are used again: by objects of other sizes,
// that the CPU has touched or not, with kernels still running when an object is freed.
#include "app.h"

__global__ void scramble(unsigned* data, std::size_t n, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = (data[i] ^ key) * 2654435761u + static_cast<unsigned>(i);
}

__global__ void fill(unsigned* data, std::size_t n, unsigned value) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = value + static_cast<unsigned>(i);
}

int main(int argc, char** argv) {
    const unsigned rounds = static_cast<unsigned>(size_argument(argc, argv, 60));
    Random random(13);
    Checksum checksum;
    std::size_t elements = 0;
    for (unsigned r = 0; r < rounds; ++r) {
        const std::size_t n = 1 + random.below(r % 4 == 0 ? 5000 : 700);
        elements += n;
        Object<unsigned> a = allocate<unsigned>(n), b = allocate<unsigned>(n / 2 + 1), unused = allocate<unsigned>(33);

        if (r % 2 == 0) {  // the CPU initialises
            for (std::size_t i = 0; i < n; ++i) a[i] = r * 1000 + static_cast<unsigned>(i);
            to_gpu(a);
        } else {
            fill<<<blocks_for(n, 128), 128>>>(a.gpu, n, r);
        }
        scramble<<<blocks_for(n, 128), 128>>>(a.gpu, n, r);
        fill<<<blocks_for(b.count, 128), 128>>>(b.gpu, b.count, 7 * r);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        to_cpu(a);
        checksum.add(a.cpu, n * sizeof(unsigned));
        if (r % 3 == 0) {
            to_cpu(b, b.count - 1, 1);
            checksum.add(b[b.count - 1]);
            b[0] = r;  // written by the CPU and freed without any use
        }
        scramble<<<blocks_for(b.count, 128), 128>>>(b.gpu, b.count, r);  // may still run when b is freed
        release(r % 2 == 0 ? a : b);
        release(unused);
        release(r % 2 == 0 ? b : a);
    }
    std::printf("realloc_loop rounds=%u elements=%zu\n", rounds, elements);
    checksum.print();
    return 0;
}
