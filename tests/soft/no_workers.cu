// SPDX-License-Identifier: MIT
// Asynchronous work that no thread can be had for is refused, and nobody waits for it; with threads it is done again.
#include <grp.h>
#include <sys/resource.h>

#include "check.h"

__global__ void add(unsigned* data) { data[threadIdx.x] += 3; }

// Of this user's, beyond the one that there is. Root's number has no limit.
static void allow_threads(bool allowed) {
    if (getuid() == 0) EXPECT(setgroups(0, nullptr) == 0 && setuid(54321) == 0);
    rlimit limit;
    EXPECT(getrlimit(RLIMIT_NPROC, &limit) == 0);
    limit.rlim_cur = allowed ? limit.rlim_max : 1;
    EXPECT(setrlimit(RLIMIT_NPROC, &limit) == 0);
}

int main() {
    constexpr unsigned n = 32;
    unsigned *host, *device;
    cudaStream_t stream;
    cudaEvent_t event;
    CUDA(cudaMallocHost(&host, n * sizeof *host));
    CUDA(cudaMalloc(&device, n * sizeof *device));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaEventCreate(&event));
    for (unsigned i = 0; i < n; ++i) host[i] = i;
    const auto copy = [&](void* to, void* from) {
        return cudaMemcpyAsync(to, from, n * sizeof *host, cudaMemcpyDefault, stream);
    };

    allow_threads(false);
    FAILS(cudaErrorMemoryAllocation, copy(device, host));
    add<<<1, n, 0, stream>>>(device);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    CUDA(cudaEventRecord(event, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaEventSynchronize(event));
    CUDA(cudaDeviceSynchronize());

    allow_threads(true);
    CUDA(copy(device, host));
    add<<<1, n, 0, stream>>>(device);
    CUDA(cudaGetLastError());
    CUDA(copy(host, device));
    CUDA(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < n; ++i) EXPECT(host[i] == i + 3);
    std::printf("no workers: ok\n");
}
