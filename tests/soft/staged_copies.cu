// SPDX-License-Identifier: MIT
// Asynchronous copies from pageable memory while their stream stands: up to 2 MiB return, with rows counted a little
// longer than they are; what is larger waits (H200. CUDA says only that such copies may be staged first).
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
    CUDA(cudaDeviceSynchronize());  // it is set to 0 in another stream
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
    copy(false, 5 << 19, 1, 5 << 19);
    for (const std::size_t apart : {0, 1000}) {
        copy(true, 1000, 1572, 1000 + apart);
        copy(false, 1000, 2097, 1000 + apart);
        copy(true, 1024, 2048, 1024 + apart);
        copy(false, 1024, 3072, 1024 + apart);
    }
    std::puts("staged copies: ok");
    return 0;
}
