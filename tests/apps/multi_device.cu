// SPDX-License-Identifier: MIT
// A ring of four parts, spread over all devices up to four. In each step every part takes in its left neighbour: by a
// kernel that reads the neighbour's memory where peer access allows it, after a copy between the devices otherwise.
// The output is the same for any number of devices.
#include "app.h"

constexpr int parts = 4;

__global__ void combine(const unsigned* mine, const unsigned* left, unsigned* result, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) result[i] = mine[i] * 69069u + left[n - 1 - i];
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 5003);
    constexpr int steps = 5;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices > parts) devices = parts;
    const auto device_of = [&](int part) { return part % devices; };

    Object<unsigned> now[parts], next[parts], visitor[parts];
    bool direct[parts];
    for (int p = 0; p < parts; ++p) {
        const int here = device_of(p), there = device_of((p + parts - 1) % parts);
        CHECK(cudaSetDevice(here));
        int can = here == there;
        if (!can) {
            CHECK(cudaDeviceCanAccessPeer(&can, here, there));
            if (can) {
                const cudaError_t e = cudaDeviceEnablePeerAccess(there, 0);
                if (e != cudaErrorPeerAccessAlreadyEnabled) CHECK(e);
                cudaGetLastError();
            }
        }
        direct[p] = can;
        now[p] = allocate<unsigned>(n);
        next[p] = allocate<unsigned>(n);
        visitor[p] = allocate<unsigned>(n);
        for (std::size_t i = 0; i < n; ++i) now[p][i] = static_cast<unsigned>(p * 1000003 + static_cast<int>(i));
        to_gpu(now[p]);
    }

    Checksum checksum;
    for (int s = 0; s < steps; ++s) {
        for (int p = 0; p < parts; ++p) {
            const int left = (p + parts - 1) % parts;
            CHECK(cudaSetDevice(device_of(p)));
            const unsigned* neighbour = now[left].gpu;
            if (!direct[p]) {
                CHECK(cudaMemcpyPeer(visitor[p].gpu, device_of(p), neighbour, device_of(left), n * sizeof(unsigned)));
                neighbour = visitor[p].gpu;
            }
            combine<<<blocks_for(n, 128), 128>>>(now[p].gpu, neighbour, next[p].gpu, n);
            CHECK(cudaGetLastError());
        }
        for (int p = 0; p < devices; ++p) {
            CHECK(cudaSetDevice(p));
            CHECK(cudaDeviceSynchronize());
        }
        for (int p = 0; p < parts; ++p) {
            const Object<unsigned> swapped = now[p];
            now[p] = next[p];
            next[p] = swapped;
            // The CPU reads one element and changes another, from whichever device is current.
            const std::size_t at = static_cast<std::size_t>(s * 911 + p * 37) % (n - 1);
            to_cpu(now[p], at, 2);
            checksum.add(now[p][at]);
            now[p][at + 1] ^= static_cast<unsigned>(s);
            to_gpu(now[p], at + 1, 1);
        }
    }
    // Once around by copies, so that they are used even where kernels reach everywhere.
    for (int p = 0; p < parts; ++p) {
        const int to = (p + 1) % parts;
        CHECK(cudaMemcpyPeer(visitor[to].gpu, device_of(to), now[p].gpu, device_of(p), n * sizeof(unsigned)));
    }
    for (int p = 0; p < parts; ++p) {
        to_cpu(visitor[p]);
        checksum.add(visitor[p].cpu, n * sizeof(unsigned));
        release(now[p]);
        release(next[p]);
        release(visitor[p]);
    }
    std::printf("multi_device parts=%d n=%zu steps=%d\n", parts, n, steps);
    checksum.print();
    return 0;
}
