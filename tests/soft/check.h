// SPDX-License-Identifier: MIT
// What the programs of this folder share: a CUDA call that must succeed or fail in one way, a value that must be the
// expected one, work in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                                                        \
    do {                                                                                                  \
        const cudaError_t error_ = (call);                                                                \
        if (error_ != cudaSuccess) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_)); \
            std::exit(1);                                                                                 \
        }                                                                                                 \
    } while (0)

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

// A call that fails, and leaves its error behind.
#define FAILS(error, call) EXPECT((call) == (error) && cudaGetLastError() == (error))

// After some errors a process can do no more: each gets its own, before anything has used CUDA.
template <class Work>
void alone(Work work) {
    const pid_t child = fork();
    if (child == 0) {
        work();
        std::exit(0);
    }
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Device memory that the programs fill and read by explicit copies.
template <class T>
struct Buffer {
    T* p = nullptr;
    std::size_t n;
    explicit Buffer(std::size_t count) : n(count) {
        CUDA(cudaMalloc(&p, n * sizeof(T)));
        CUDA(cudaMemset(p, 0, n * sizeof(T)));
    }
    ~Buffer() { cudaFree(p); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void put(const T* from) { CUDA(cudaMemcpy(p, from, n * sizeof(T), cudaMemcpyHostToDevice)); }
    void get(T* to) const { CUDA(cudaMemcpy(to, p, n * sizeof(T), cudaMemcpyDeviceToHost)); }
};
