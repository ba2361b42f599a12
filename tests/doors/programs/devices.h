// SPDX-License-Identifier: MIT
// Arrays on several devices and every way to copy one to another. For programs that are linked with libcuda as well as
// with the CUDA runtime.
#pragma once

#include <cuda.h>

#include <atomic>
#include <vector>

#include "program.h"

constexpr unsigned kRows = 700, kWords = 512, kCount = kRows * kWords;  // 1.4 MB
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

inline unsigned value(unsigned seed, unsigned i) { return seed * 2654435761u + i; }

// An array on a device.
struct Array {
    unsigned* gpu = nullptr;
    unsigned count = kCount;

    explicit Array(int device, unsigned n = kCount) : count(n) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc(&gpu, n * sizeof(unsigned)));
    }
    void fill(unsigned seed) {
        std::vector<unsigned> copy(plain ? 0 : count);
        unsigned* words = plain ? gpu : copy.data();
        for (unsigned i = 0; i < count; ++i) words[i] = value(seed, i);
        if (!plain) CHECK(cudaMemcpy(gpu, words, count * sizeof(unsigned), cudaMemcpyHostToDevice));
    }
    bool right_at(unsigned i, unsigned seed) const {
        unsigned word = 0;
        if (!plain) CHECK(cudaMemcpy(&word, gpu + i, sizeof word, cudaMemcpyDeviceToHost));
        return (plain ? static_cast<volatile unsigned*>(gpu)[i] : word) == value(seed, i);
    }
    unsigned wrong(unsigned seed) const {
        std::vector<unsigned> copy(plain ? 0 : count);
        if (!plain) CHECK(cudaMemcpy(copy.data(), gpu, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
        const unsigned* words = plain ? gpu : copy.data();
        unsigned found = 0;
        for (unsigned i = 0; i < count; ++i) found += words[i] != value(seed, i);
        return found;
    }
    CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(gpu); }
};

// Only a device with nothing to do is given access, and copies go on when the calls that make them have returned.
inline void rest() {
    int count = 0, current = 0;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaGetDevice(&current));
    for (int d = 0; d < count; ++d) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(current));
}

// All of the array, in one of the ways there are.
inline cudaError_t copy_in(const char* way, Array& to, int to_device, const Array& from, int from_device) {
    const auto is = [&](const char* name) { return std::strcmp(way, name) == 0; };
    const std::size_t bytes = to.count * sizeof(unsigned), pitch = kWords * sizeof(unsigned);
    const auto driver = [](CUresult result) { return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown; };
    if (is("peer")) return cudaMemcpyPeer(to.gpu, to_device, from.gpu, from_device, bytes);
    if (is("peer_async")) return cudaMemcpyPeerAsync(to.gpu, to_device, from.gpu, from_device, bytes, nullptr);
    if (is("default")) return cudaMemcpy(to.gpu, from.gpu, bytes, cudaMemcpyDefault);
    if (is("on_device")) return cudaMemcpy(to.gpu, from.gpu, bytes, cudaMemcpyDeviceToDevice);
    if (is("on_device_async")) {
        return cudaMemcpyAsync(to.gpu, from.gpu, bytes, cudaMemcpyDeviceToDevice, cudaStreamPerThread);
    }
    if (is("unified")) return driver(cuMemcpy(to.address(), from.address(), bytes));
    if (is("unified_async")) return driver(cuMemcpyAsync(to.address(), from.address(), bytes, nullptr));
    if (is("linear")) return driver(cuMemcpyDtoD(to.address(), from.address(), bytes));
    if (is("rows")) {
        return cudaMemcpy2D(to.gpu, pitch, from.gpu, pitch, pitch, to.count / kWords, cudaMemcpyDeviceToDevice);
    }
    if (is("box")) {
        cudaMemcpy3DParms p{};
        p.srcPtr = make_cudaPitchedPtr(from.gpu, pitch, kWords, 10);
        p.dstPtr = make_cudaPitchedPtr(to.gpu, pitch, kWords, 10);
        p.extent = make_cudaExtent(pitch, 10, to.count / kWords / 10);
        p.kind = cudaMemcpyDeviceToDevice;
        return cudaMemcpy3D(&p);
    }
    if (is("box_peer")) {
        cudaMemcpy3DPeerParms p{};
        p.srcPtr = make_cudaPitchedPtr(from.gpu, pitch, kWords, 10);
        p.dstPtr = make_cudaPitchedPtr(to.gpu, pitch, kWords, 10);
        p.srcDevice = from_device;
        p.dstDevice = to_device;
        p.extent = make_cudaExtent(pitch, 10, to.count / kWords / 10);
        return cudaMemcpy3DPeer(&p);
    }
    if (is("batch")) {
        CUdeviceptr target = to.address(), source = from.address();
        std::size_t size = bytes, index = 0;
        CUmemcpyAttributes attributes{};
        attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        CUstream stream = nullptr;
        CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        const CUresult result = cuMemcpyBatchAsync(&target, &source, &size, 1, &attributes, &index, 1, stream);
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuStreamDestroy(stream));
        return driver(result);
    }
    std::fprintf(stderr, "no way %s\n", way);
    std::exit(2);
}

// Work of the program's in the stream, which lasts until let_go().
inline std::atomic<bool> holding{false};
inline void hold(cudaStream_t stream) {
    holding = true;
    CHECK(cudaLaunchHostFunc(
        stream,
        [](void*) {
            while (holding) sched_yield();
        },
        nullptr));
}
inline void let_go() { holding = false; }
