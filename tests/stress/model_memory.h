// SPDX-License-Identifier: MIT
// The memory of the model test's objects: of each kind that a program can have, made, moved and ended. Calls return the
// runtime's errors; those of the driver are cudaErrorUnknown. An object is one thread's; the pools are everybody's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include <cuda.h>
#include <cuda_runtime.h>

// Of the first threads each object has a variable of its own; those of all threads lie beside each other.
constexpr unsigned kObjects = 4, kWithVariables = 8;
constexpr std::size_t variable_size(unsigned i) { return 1 + i * i * i % 7919; }
template <unsigned i>
__device__ unsigned char variable[variable_size(i)];

inline cudaError_t driver(CUresult result) { return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown; }

// The first error of several calls, which are all made.
inline cudaError_t all(std::initializer_list<cudaError_t> errors) {
    for (const auto error : errors)
        if (error != cudaSuccess) return error;
    return cudaSuccess;
}

// Two allocations that the program cuts up itself: a part is no allocation, and shares its pages with other threads'.
struct Pools {
    static constexpr std::size_t kPart = 3001;  // bytes, at most
    unsigned char* memory[2]{};
    unsigned threads = 0;

    cudaError_t make(unsigned for_threads) {
        threads = for_threads;
        const std::size_t size = threads * (kObjects / 2) * kPart;
        return all({cudaMalloc(&memory[0], size), cudaMallocAsync(&memory[1], size, nullptr), cudaDeviceSynchronize()});
    }
    unsigned char* part(unsigned thread, unsigned object) const {
        return memory[object % 2] + (object / 2 * threads + thread) * kPart;
    }
    cudaError_t end() const { return all({cudaFree(memory[0]), cudaFree(memory[1])}); }
};

// Two pieces of memory that the program maps side by side. What is used of them lies over their border.
class Mapped {
public:
    cudaError_t make() {
        int device = 0;
        if (const auto error = cudaGetDevice(&device); error != cudaSuccess) return error;
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device;
        access_.location = properties.location;
        access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        cudaError_t error =
            driver(cuMemGetAllocationGranularity(&piece_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        for (auto& handle : handles_)
            if (error == cudaSuccess) error = driver(cuMemCreate(&handle, piece_, &properties, 0));
        return error == cudaSuccess ? map(address_) : error;
    }
    cudaError_t end() {
        return all({unmap(address_), driver(cuMemRelease(handles_[0])), driver(cuMemRelease(handles_[1]))});
    }
    // The bytes stay, their addresses change; or, with `to_same`, do not.
    cudaError_t move(bool to_same) {
        if (to_same) return all({driver(cuMemUnmap(address_, 2 * piece_)), map_at(address_)});
        CUdeviceptr other = 0;  // made before the old place is given back, so that it is another
        if (const auto error = driver(cuMemAddressReserve(&other, 2 * piece_, 0, 0, 0)); error != cudaSuccess)
            return error;
        const auto error = all({unmap(address_), map_at(other)});
        address_ = other;
        return error;
    }
    // The same bytes at a second address too, until unmap(). Memory of two addresses has no host copy.
    cudaError_t map(CUdeviceptr& at) const {
        const auto error = driver(cuMemAddressReserve(&at, 2 * piece_, 0, 0, 0));
        return error == cudaSuccess ? map_at(at) : error;
    }
    cudaError_t unmap(CUdeviceptr at) const {
        return all({driver(cuMemUnmap(at, 2 * piece_)), driver(cuMemAddressFree(at, 2 * piece_))});
    }
    unsigned char* bytes(CUdeviceptr at, std::size_t size) const {
        return reinterpret_cast<unsigned char*>(at + piece_ - size / 2);
    }
    unsigned char* bytes(std::size_t size) const { return bytes(address_, size); }
    std::size_t most() const { return 2 * piece_; }

private:
    cudaError_t map_at(CUdeviceptr at) const {
        return all({driver(cuMemMap(at, piece_, 0, handles_[0], 0)),
                    driver(cuMemMap(at + piece_, piece_, 0, handles_[1], 0)),
                    driver(cuMemSetAccess(at, 2 * piece_, &access_, 1))});
    }

    std::size_t piece_ = 0;
    CUmemAccessDesc access_{};
    CUmemGenericAllocationHandle handles_[2]{};
    CUdeviceptr address_ = 0;
};

struct Memory {
    enum Kind { kNone, kAllocated, kStreamOrdered, kVariable, kPart, kMapped };
    Kind kind = kNone;
    unsigned char* bytes = nullptr;
    Mapped mapped;

    // Makes memory of `size` bytes, or fewer where the kind has no more.
    cudaError_t make(Kind wanted, std::size_t& size, unsigned thread, unsigned object, const Pools& pools,
                     cudaStream_t stream) {
        kind = wanted;
        cudaError_t error = cudaSuccess;
        switch (kind) {
            case kNone: break;
            case kAllocated: return cudaMalloc(&bytes, size);
            // Other streams, and the calls that take none, are not ordered with it.
            case kStreamOrdered: return all({cudaMallocAsync(&bytes, size, stream), cudaStreamSynchronize(stream)});
            case kVariable:
                return find_variable(thread * kObjects + object, size,
                                     std::make_integer_sequence<unsigned, kObjects * kWithVariables>());
            case kPart: {
                const auto gap = size % 17;
                size = std::min(size, Pools::kPart - gap);
                bytes = pools.part(thread, object) + gap;
                break;
            }
            case kMapped:
                error = mapped.make();
                size = std::min(size, mapped.most());
                bytes = mapped.bytes(size);
        }
        return error;
    }

    // Some in the order of the thread's stream, which may have work outstanding; the default stream may not.
    cudaError_t end(cudaStream_t stream, bool in_order) {
        const auto was = std::exchange(kind, kNone);
        if (was == kMapped) return all({settle(stream), mapped.end()});
        if (was != kAllocated && was != kStreamOrdered) return cudaSuccess;
        return in_order ? all({cudaStreamSynchronize(nullptr), cudaFreeAsync(bytes, stream)}) : cudaFree(bytes);
    }

    // Unmapping waits for nothing.
    static cudaError_t settle(cudaStream_t stream) {
        return all({cudaStreamSynchronize(stream), cudaStreamSynchronize(nullptr)});
    }

private:
    template <unsigned... i>
    cudaError_t find_variable(unsigned wanted, std::size_t& size, std::integer_sequence<unsigned, i...>) {
        cudaError_t error = cudaErrorInvalidSymbol;
        const auto look = [&](unsigned number, const auto& symbol) {
            if (number != wanted) return;
            void* address = nullptr;
            error = cudaGetSymbolAddress(&address, symbol);
            bytes = static_cast<unsigned char*>(address);
            size = sizeof symbol;
        };
        (look(i, variable<i>), ...);
        return error;
    }
};
