// SPDX-License-Identifier: MIT
// Asynchronous copies from pageable memory while their stream stands: up to 2 MiB return, rows up to 1 MiB; what is
// larger waits (an H200's driver 580; CUDA says only that such copies may be staged first).
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

__global__ void stand(const volatile int* go) {
    while (*go == 0) {
    }
}

static volatile int* go;
static cudaStream_t stream;

// Whether it has returned a while later, and what it brought.
static void copy(bool returns, std::size_t width, std::size_t rows, std::size_t pitch) {
    std::vector<unsigned char> host(width * rows), got(width * rows);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 31 + i / 977);
    const auto expected = host;
    Buffer<unsigned char> device(pitch * rows);
    std::atomic<bool> begun{false}, returned{false};
    *go = 0;
    stand<<<1, 1, 0, stream>>>(const_cast<const int*>(go));
    CUDA(cudaGetLastError());
    std::thread other([&] {
        begun = true;
        CUDA(rows == 1
                 ? cudaMemcpyAsync(device.p, host.data(), width, cudaMemcpyHostToDevice, stream)
                 : cudaMemcpy2DAsync(device.p, pitch, host.data(), width, width, rows, cudaMemcpyHostToDevice, stream));
        returned = true;
        std::fill(host.begin(), host.end(), 0xee);
    });
    if (returns) {
        while (!returned) std::this_thread::yield();
    } else {
        while (!begun) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT(!returned);
    }
    *go = 1;
    other.join();
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy2D(got.data(), width, device.p, pitch, width, rows, cudaMemcpyDeviceToHost));
    EXPECT(got == expected);
}

int main() {
    void* memory;
    CUDA(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped));
    go = static_cast<int*>(memory);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    copy(true, 1 << 16, 1, 1 << 16);
    copy(true, 2 << 20, 1, 2 << 20);
    copy(false, 4 << 20, 1, 4 << 20);
    copy(true, 1 << 10, 100, 2 << 10);
    copy(true, 1 << 10, 1 << 10, 2 << 10);
    copy(false, 1 << 10, 2 << 10, 2 << 10);
    std::puts("staged copies: ok");
    return 0;
}
