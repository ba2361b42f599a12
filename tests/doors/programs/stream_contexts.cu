// SPDX-License-Identifier: MIT
// Calls that name a stream work in its context: in threads where none is current, and where another one is. Linked with
// libcuda too.
#include <cuda.h>

#include <random>
#include <vector>

#include "program.h"

namespace {

constexpr unsigned kCount = 30000;

// An array and its model; everything is done in the stream, by calls that need no current context.
class Array {
public:
    Array(CUstream stream, CUfunction kernel) : stream_(stream), kernel_(kernel), model_(kCount) {}
    // In a thread that has the context.
    void allocate() { CHECK_CU(cuMemAlloc(&memory_, bytes())); }
    void allocate_in_stream() { CHECK_CU(cuMemAllocAsync(&memory_, bytes(), stream_)); }
    void free() { CHECK_CU(cuMemFree(memory_)); }
    void free_in_stream() { CHECK_CU(cuMemFreeAsync(memory_, stream_)); }

    void fill(unsigned value) {
        CHECK_CU(cuMemsetD32Async(memory_, value, kCount, stream_));
        model_.assign(kCount, value);
    }
    void launch(unsigned key) {
        unsigned n = kCount;
        void* arguments[] = {&memory_, &n, &key};
        CHECK_CU(cuLaunchKernel(kernel_, blocks_for(n, 128), 1, 1, 128, 1, 1, 0, stream_, arguments, nullptr));
        for (unsigned i = 0; i < n; ++i) model_[i] = model_[i] * 1664525u + key + i;
    }
    void copy_from(const Array& other) {
        CHECK_CU(cuMemcpyDtoDAsync(memory_, other.memory_, bytes(), stream_));
        model_ = other.model_;
    }
    void upload(unsigned value) {
        model_.assign(kCount, value);
        CHECK_CU(cuMemcpyHtoDAsync(memory_, model_.data(), bytes(), stream_));
        CHECK_CU(cuStreamSynchronize(stream_));
    }
    unsigned download() const {
        std::vector<unsigned> values(kCount);
        CHECK_CU(cuMemcpyDtoHAsync(values.data(), memory_, bytes(), stream_));
        CHECK_CU(cuStreamSynchronize(stream_));
        return values != model_;
    }
    // By the CPU, without a wait.
    void set(unsigned i, unsigned value) {
        model_[i] = value;
        if (plain) {
            reinterpret_cast<volatile unsigned*>(memory_)[i] = value;
        } else {
            CHECK_CU(cuMemcpyHtoDAsync(memory_ + i * 4, &value, 4, stream_));
            CHECK_CU(cuStreamSynchronize(stream_));
        }
    }
    unsigned wrong(unsigned i) const {
        unsigned value = 0;
        if (plain) {
            value = reinterpret_cast<volatile unsigned*>(memory_)[i];
        } else {
            CHECK_CU(cuMemcpyDtoHAsync(&value, memory_ + i * 4, 4, stream_));
            CHECK_CU(cuStreamSynchronize(stream_));
        }
        return value != model_[i];
    }

private:
    static constexpr std::size_t bytes() { return kCount * sizeof(unsigned); }
    CUstream stream_;
    CUfunction kernel_;
    CUdeviceptr memory_ = 0;
    std::vector<unsigned> model_;
};

unsigned work(std::vector<Array>& arrays, unsigned rounds) {
    std::mt19937 random(5);
    unsigned wrong = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        auto& array = arrays[random() % arrays.size()];
        const unsigned i = random() % kCount;
        switch (random() % 8) {
            case 0: array.fill(round); break;
            case 1: array.launch(round); break;
            case 2: array.copy_from(arrays[random() % arrays.size()]); break;
            case 3: array.upload(round); break;
            case 4: wrong += array.download(); break;
            case 5: array.set(i, round); break;
            default: wrong += array.wrong(i); break;
        }
    }
    for (const auto& array : arrays) wrong += array.download();
    return wrong;
}

// Work of a stream of the primary context, in a thread with `current`.
void in_thread(CUcontext current) {
    CHECK(cudaFree(nullptr));
    CUstream stream = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    cudaFunction_t kernel = nullptr;
    CHECK(cudaGetFuncBySymbol(&kernel, reinterpret_cast<const void*>(&advance<>)));
    std::vector<Array> arrays(3, Array(stream, kernel));
    for (auto& array : arrays) array.allocate();
    auto thread = [&] {
        CHECK_CU(cuCtxSetCurrent(current));
        for (auto& array : arrays) array.fill(7);
        unsigned wrong = work(arrays, 300);
        for (auto& array : arrays) {
            array.free();
            array.allocate_in_stream();
            array.fill(3);
        }
        wrong += work(arrays, 300);
        for (auto& array : arrays) array.free_in_stream();
        CUcontext after = nullptr;
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuCtxGetCurrent(&after));
        say("%u wrong, as before: %d\n", wrong, after == current);
    };
    pthread_join(start(thread), nullptr);
}

void none_current(int, char**) { in_thread(nullptr); }

void another_current(int, char**) {
    CUcontext other = nullptr, popped = nullptr;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuCtxCreate(&other, nullptr, 0, 0));
    CHECK_CU(cuCtxPopCurrent(&popped));
    in_thread(other);
}

}  // namespace

int main(int argc, char** argv) {
    static const Case cases[] = {{"none_current", none_current}, {"another_current", another_current}};
    return run_case(cases, argc, argv);
}
