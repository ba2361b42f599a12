// SPDX-License-Identifier: MIT
// A 7-point stencil over a volume, as in wave propagation: before each step the CPU introduces a source value into the
// volume, and every few steps it looks at one slice. All else stays on the GPU.
#include "app.h"

__device__ std::size_t index_of(int x, int y, int z, int n) { return (static_cast<std::size_t>(z) * n + y) * n + x; }

__global__ void step(const float* from, float* to, int n) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= n || y >= n) return;
    for (int z = 0; z < n; ++z) {
        const bool inside = x > 0 && y > 0 && z > 0 && x < n - 1 && y < n - 1 && z < n - 1;
        const std::size_t i = index_of(x, y, z, n);
        if (!inside) {
            to[i] = 0.0f;
            continue;
        }
        const float around = from[i - 1] + from[i + 1] + from[index_of(x, y - 1, z, n)] +
                             from[index_of(x, y + 1, z, n)] + from[index_of(x, y, z - 1, n)] +
                             from[index_of(x, y, z + 1, n)];
        to[i] = 0.4f * from[i] + 0.1f * around;
    }
}

int main(int argc, char** argv) {
    const int n = static_cast<int>(size_argument(argc, argv, 24));
    constexpr int steps = 12;
    const std::size_t cells = static_cast<std::size_t>(n) * n * n, slice = static_cast<std::size_t>(n) * n;
    const std::size_t source = (static_cast<std::size_t>(n / 2) * n + n / 2) * n + n / 2;
    Object<float> from = allocate<float>(cells), to = allocate<float>(cells);
    for (std::size_t i = 0; i < cells; ++i) from[i] = 0.0f;
    to_gpu(from);

    const dim3 block(16, 8), grid(blocks_for(n, block.x), blocks_for(n, block.y));
    Checksum slices;
    for (int s = 0; s < steps; ++s) {
        to_cpu(from, source, 1);
        from[source] += 1.0f / static_cast<float>(s + 1);
        to_gpu(from, source, 1);
        step<<<grid, block>>>(from.gpu, to.gpu, n);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        if (s % 4 == 3) {
            to_cpu(to, slice * (n / 2), slice);
            slices.add(to.cpu + slice * (n / 2), slice * sizeof(float));
        }
        const Object<float> swapped = from;
        from = to;
        to = swapped;
    }
    to_cpu(from);

    double energy = 0;
    for (std::size_t i = 0; i < cells; ++i) energy += static_cast<double>(from[i]) * from[i];
    Checksum checksum;
    checksum.add(from.cpu, cells * sizeof(float));
    std::printf("stencil3d n=%d steps=%d energy=%.9f\n", n, steps, energy);
    std::printf("slices %016llx\n", static_cast<unsigned long long>(slices.value()));
    checksum.print();
    release(from);
    release(to);
    return 0;
}
