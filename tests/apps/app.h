// SPDX-License-Identifier: MIT
// What the test programs share: an error check, a checksum, and objects that live on both sides.
//
// Every program exists in two forms from one source. Plain: an object is what cudaMalloc returned, and the CPU and the
// GPU use that one pointer. With EXPLICIT_COPIES: the object has a host buffer beside it, and to_gpu() and to_cpu(),
// which do nothing in the plain form, copy. Both forms print the same lines. Nothing here knows of libhpe.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                            \
    do {                                                                                                       \
        const cudaError_t check_error = (call);                                                                \
        if (check_error != cudaSuccess) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error)); \
            std::exit(1);                                                                                      \
        }                                                                                                      \
    } while (0)

#ifdef EXPLICIT_COPIES
constexpr bool explicit_copies = true;
#else
constexpr bool explicit_copies = false;
#endif

// FNV-1a, so that results can be compared bit for bit.
class Checksum {
public:
    void add(const void* data, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) {
            value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ull;
        }
    }
    template <class T>
    void add(const T& value) {
        add(&value, sizeof value);
    }
    std::uint64_t value() const { return value_; }
    void print() const { std::printf("checksum %016llx\n", static_cast<unsigned long long>(value_)); }

private:
    std::uint64_t value_ = 0xcbf29ce484222325ull;
};

// Numbers that look random and are the same everywhere.
class Random {
public:
    explicit Random(std::uint32_t seed) : state_(seed * 2654435761u + 1) {}
    std::uint32_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 17;
        state_ ^= state_ << 5;
        return state_;
    }
    std::uint32_t below(std::uint32_t limit) { return next() % limit; }

private:
    std::uint32_t state_;
};

enum class HostMemory { Pageable, Pinned };

template <class T>
struct Object {
    T* cpu = nullptr;  // where the CPU reads and writes; the same as gpu in the plain form
    T* gpu = nullptr;
    std::size_t count = 0;
    HostMemory kind = HostMemory::Pageable;
    T& operator[](std::size_t i) const { return cpu[i]; }
};

template <class T>
Object<T> allocate(std::size_t count, HostMemory kind = HostMemory::Pageable) {
    Object<T> o;
    o.count = count;
    o.kind = kind;
    CHECK(cudaMalloc(&o.gpu, count * sizeof(T)));
    if (!explicit_copies) {
        o.cpu = o.gpu;
    } else if (kind == HostMemory::Pinned) {
        CHECK(cudaMallocHost(&o.cpu, count * sizeof(T)));
    } else {
        o.cpu = static_cast<T*>(std::malloc(count * sizeof(T)));
    }
    return o;
}

template <class T>
void release(Object<T>& o) {
    CHECK(cudaFree(o.gpu));
    if (explicit_copies && o.kind == HostMemory::Pinned) CHECK(cudaFreeHost(o.cpu));
    if (explicit_copies && o.kind == HostMemory::Pageable) std::free(o.cpu);
    o = {};
}

// What the explicit form does around kernels.
template <class T>
void to_gpu(const Object<T>& o, std::size_t first, std::size_t count) {
    if (explicit_copies) CHECK(cudaMemcpy(o.gpu + first, o.cpu + first, count * sizeof(T), cudaMemcpyHostToDevice));
}
template <class T>
void to_gpu(const Object<T>& o) {
    to_gpu(o, 0, o.count);
}
template <class T>
void to_cpu(const Object<T>& o, std::size_t first, std::size_t count) {
    if (explicit_copies) CHECK(cudaMemcpy(o.cpu + first, o.gpu + first, count * sizeof(T), cudaMemcpyDeviceToHost));
}
template <class T>
void to_cpu(const Object<T>& o) {
    to_cpu(o, 0, o.count);
}
// In stream order; the object's host memory must be pinned.
template <class T>
void to_gpu(const Object<T>& o, cudaStream_t stream) {
    if (explicit_copies) CHECK(cudaMemcpyAsync(o.gpu, o.cpu, o.count * sizeof(T), cudaMemcpyHostToDevice, stream));
}
template <class T>
void to_cpu(const Object<T>& o, cudaStream_t stream) {
    if (explicit_copies) CHECK(cudaMemcpyAsync(o.cpu, o.gpu, o.count * sizeof(T), cudaMemcpyDeviceToHost, stream));
}

// Where the CPU finds what a device pointer into the object points to.
template <class T>
T* on_cpu(const Object<T>& o, T* device_pointer) {
    return o.cpu + (device_pointer - o.gpu);
}

inline std::size_t size_argument(int argc, char** argv, std::size_t otherwise) {
    return argc > 1 ? std::strtoull(argv[1], nullptr, 10) : otherwise;
}

inline unsigned blocks_for(std::size_t threads, unsigned block) {
    return static_cast<unsigned>((threads + block - 1) / block);
}
