// SPDX-License-Identifier: MIT
// What the programs of this folder share: a call that is looked at, reported and tried once more when it fails; and
// arrays with a plain vector beside them that says what they must hold, given which calls succeeded. An array is one
// pointer for the CPU and the GPU. Nothing here knows of libhpe.
//
// With the argument `untouched` the CPU stays away from all arrays: the same calls, without libhpe.
//
// Exit status: 0 all right; 1 an array holds a wrong number; 3 everything is right, and some call failed for good,
// which is said on stdout.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <vector>

inline bool touching = true;
inline std::atomic<int> lost_calls{0};    // failed twice
inline std::atomic<int> failed_calls{0};  // failed at least once
inline std::atomic<int> wrong_arrays{0};

// True if the call, or its repetition, succeeded. A call that fails must have had no effect.
template <class Call>
bool tried(const char* what, Call&& call) {
    cudaError_t error = call();
    if (error == cudaSuccess) return true;
    cudaGetLastError();  // this thread's last error would be taken for the next launch's
    ++failed_calls;
    std::printf("%s: %s\n", what, cudaGetErrorName(error));
    error = call();
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    ++lost_calls;
    std::printf("%s again: %s\n", what, cudaGetErrorName(error));
    return false;
}
#define TRIED(...) tried(#__VA_ARGS__, [&] { return __VA_ARGS__; })

using Word = std::uint32_t;

__global__ void scale_add(Word* to, const Word* from, std::size_t n, Word factor) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) to[i] = to[i] * factor + from[i];
}

struct Array {
    const char* name;
    Word* data = nullptr;  // nullptr: the allocation failed, and said so
    std::size_t n;
    std::vector<Word> model;

    Array(const char* called, std::size_t count) : name(called), n(count), model(count) {}
    std::size_t bytes() const { return n * sizeof(Word); }

    // New memory holds anything; comparing needs a value.
    bool allocate() {
        data = nullptr;
        if (!tried(name, [&] { return cudaMalloc(&data, bytes()); })) {
            data = nullptr;
            return false;
        }
        if (!tried(name, [&] { return cudaMemset(data, 0x11, bytes()); })) {
            write(0, n, 0x11111111);
        } else {
            for (Word& m : model) m = 0x11111111;
        }
        return true;
    }
    bool release() {
        if (data == nullptr) return true;
        const bool freed = tried(name, [&] { return cudaFree(data); });
        if (freed) data = nullptr;
        return freed;
    }
    void write(std::size_t first, std::size_t count, Word seed, std::size_t stride = 1) {
        if (data == nullptr || !touching) return;
        for (std::size_t i = first; i < first + count && i < n; i += stride) {
            data[i] = model[i] = static_cast<Word>(seed + i * 2654435761u);
        }
    }
    std::size_t wrong(std::size_t first, std::size_t count, std::size_t stride = 1) const {
        std::size_t found = 0;
        for (std::size_t i = first; i < first + count && i < n; i += stride) found += data[i] != model[i];
        return found;
    }
    void check(const char* when, std::size_t first, std::size_t count, std::size_t stride = 1) const {
        if (data == nullptr || !touching) return;
        const auto found = wrong(first, count, stride);
        if (found == 0) return;
        ++wrong_arrays;
        std::printf("WRONG %s: %zu of %zu words %s\n", name, found, count / stride, when);
        for (std::size_t i = first, shown = 0; i < first + count && i < n && shown < 3; i += stride) {
            if (data[i] == model[i]) continue;
            std::printf("  [%zu] is %08x, must be %08x\n", i, data[i], model[i]);
            ++shown;
        }
    }
    void finish() const {
        if (data == nullptr) {
            std::printf("%s: not allocated\n", name);
            return;
        }
        if (!touching) return;
        check("at the end", 0, n);
        std::uint64_t sum = 0xcbf29ce484222325ull;
        for (std::size_t i = 0; i < n; ++i) sum = (sum ^ data[i]) * 0x100000001b3ull;
        std::printf("%s: %016llx\n", name, static_cast<unsigned long long>(sum));
    }
};

// to = to * factor + from, on both sides. Arrays of one size.
inline bool launch(Array& to, const Array& from, Word factor, cudaStream_t stream = nullptr) {
    if (to.data == nullptr || from.data == nullptr) return false;
    std::size_t n = to.n;
    void* arguments[] = {&to.data, const_cast<Word**>(&from.data), &n, &factor};
    const auto blocks = static_cast<unsigned>((n + 127) / 128);
    return tried("launch", [&] {
        return cudaLaunchKernel(reinterpret_cast<const void*>(scale_add), dim3(blocks), dim3(128), arguments, 0,
                                stream);
    });
}
inline void model_launch(Array& to, const Array& from, Word factor) {
    for (std::size_t i = 0; i < to.n; ++i) to.model[i] = to.model[i] * factor + from.model[i];
}
inline bool launched(Array& to, const Array& from, Word factor, cudaStream_t stream = nullptr) {
    if (!launch(to, from, factor, stream)) return false;
    model_launch(to, from, factor);
    return true;
}

// The end: after a reset the arrays are gone, and new ones are as good.
inline void reset_or_finish(std::size_t n, std::initializer_list<const Array*> arrays) {
    if (!TRIED(cudaDeviceReset())) {
        for (const Array* array : arrays) array->finish();
        return;
    }
    Array again("again", n);
    again.allocate();
    again.write(0, n, 31);
    launched(again, again, 23);
    again.finish();
    again.release();
}

inline void arguments(int argc, char**) { touching = argc == 1; }

inline int verdict() {
    std::printf("%d calls failed, %d for good, %d arrays wrong\n", failed_calls.load(), lost_calls.load(),
                wrong_arrays.load());
    return wrong_arrays != 0 ? 1 : lost_calls != 0 ? 3 : 0;
}
