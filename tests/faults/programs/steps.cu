// SPDX-License-Identifier: MIT
// One thread through everything a program does with device memory: allocate, CPU write, launch, CPU read, copies,
// memsets, streams, events, host functions, two devices, free, context reset. No CPU access waits by itself: libhpe has
// to.
#include "tried.h"

#include <numeric>

namespace {

constexpr std::size_t kWords = 12345;

// Keeps what follows in its stream waiting: whoever reads too early sees it.
__global__ void hold(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

void copies(Array& a, Array& b, cudaStream_t stream) {
    if (a.data == nullptr || b.data == nullptr) return;
    const std::size_t part = 3000, from = 1111, to = 7001;
    if (TRIED(cudaMemcpy(b.data + to, a.data + from, part * sizeof(Word), cudaMemcpyDeviceToDevice))) {
        for (std::size_t i = 0; i < part; ++i) b.model[to + i] = a.model[from + i];
    }
    std::vector<Word> host(part);
    std::iota(host.begin(), host.end(), 77u);
    if (TRIED(cudaMemcpy(a.data + 100, host.data(), part * sizeof(Word), cudaMemcpyHostToDevice))) {
        for (std::size_t i = 0; i < part; ++i) a.model[100 + i] = host[i];
    }
    if (TRIED(cudaMemcpy(host.data(), b.data + to, part * sizeof(Word), cudaMemcpyDeviceToHost))) {
        std::size_t bad = 0;
        for (std::size_t i = 0; i < part; ++i) bad += host[i] != b.model[to + i];
        if (bad != 0) {
            ++wrong_arrays;
            std::printf("WRONG host: %zu words copied out\n", bad);
        }
    }
    // Rows, with a gap between them.
    if (TRIED(cudaMemcpy2D(a.data + 5000, 400, b.data, 400, 300, 20, cudaMemcpyDefault))) {
        for (std::size_t row = 0; row < 20; ++row) {
            for (std::size_t i = 0; i < 75; ++i) a.model[5000 + row * 100 + i] = b.model[row * 100 + i];
        }
    }
    if (TRIED(cudaMemset(b.data + 3333, 0x5c, 500 * sizeof(Word)))) {
        for (std::size_t i = 0; i < 500; ++i) b.model[3333 + i] = 0x5c5c5c5c;
    }
    // In stream order, through pinned memory.
    Word* pinned = nullptr;
    if (!TRIED(cudaMallocHost(&pinned, part * sizeof(Word)))) return;
    for (std::size_t i = 0; i < part; ++i) pinned[i] = static_cast<Word>(i * 31);
    if (TRIED(cudaMemcpyAsync(b.data + 50, pinned, part * sizeof(Word), cudaMemcpyHostToDevice, stream))) {
        for (std::size_t i = 0; i < part; ++i) b.model[50 + i] = pinned[i];
    }
    const bool sent =
        TRIED(cudaMemcpyAsync(a.data + 9000, b.data + 50, 2000 * sizeof(Word), cudaMemcpyDefault, stream));
    if (sent) {
        for (std::size_t i = 0; i < 2000; ++i) a.model[9000 + i] = b.model[50 + i];
    }
    if (TRIED(cudaMemsetAsync(a.data, 0x33, 64 * sizeof(Word), stream))) {
        for (std::size_t i = 0; i < 64; ++i) a.model[i] = 0x33333333;
    }
    // The pinned memory may go only when the stream is done with it.
    if (TRIED(cudaStreamSynchronize(stream))) TRIED(cudaFreeHost(pinned));
}

void streams(Array& a, Array& b, cudaStream_t first) {
    cudaStream_t second = nullptr;
    cudaEvent_t event = nullptr;
    const bool made = TRIED(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking)) &&
                      TRIED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    a.write(0, kWords, 21, 3);
    launched(a, b, 3, first);
    if (made && TRIED(cudaEventRecord(event, first)) && TRIED(cudaStreamWaitEvent(second, event, 0))) {
        launched(a, b, 5, second);
        a.check("after two streams", 4000, 4000);
        b.write(2000, 3000, 8);
        unsigned long long nanoseconds = 2'000'000;
        void* arguments[] = {&nanoseconds};
        TRIED(cudaLaunchKernel(reinterpret_cast<const void*>(hold), dim3(1), dim3(1), arguments, 0, second));
        launched(a, b, 9, second);
        if (TRIED(cudaEventRecord(event, second)) && TRIED(cudaEventSynchronize(event))) {
            a.check("after an event", 0, kWords, 7);
        }
    }
    if (second != nullptr) TRIED(cudaStreamDestroy(second));
    if (event != nullptr) TRIED(cudaEventDestroy(event));
    a.check("after its stream went", 0, kWords, 5);
}

struct Callback {
    Array* array;
    int ran;
};
void host_function(void* argument) {
    auto* callback = static_cast<Callback*>(argument);
    ++callback->ran;
    if (!touching) return;
    for (std::size_t i = 500; i < 4500; ++i) callback->array->data[i] += 3;
}

void host_functions(Array& a, Array& b, cudaStream_t stream) {
    if (a.data == nullptr || b.data == nullptr) return;
    Callback callback{&a, 0};
    launched(a, b, 11, stream);
    if (TRIED(cudaLaunchHostFunc(stream, host_function, &callback))) {
        for (std::size_t i = 500; i < 4500; ++i) a.model[i] += 3;
    }
    launched(b, a, 13, stream);
    if (!TRIED(cudaStreamSynchronize(stream))) TRIED(cudaDeviceSynchronize());
    a.check("after a host function", 0, kWords);
    b.check("after a host function", 0, kWords);
}

void two_devices(Array& a) {
    int devices = 0;
    if (!TRIED(cudaGetDeviceCount(&devices)) || devices < 2) return;
    Array far("far", kWords), more("more", kWords);
    if (!TRIED(cudaSetDevice(1))) return;
    far.allocate();
    more.allocate();
    far.write(0, kWords, 4711);
    launched(far, more, 17);
    if (a.data != nullptr && far.data != nullptr &&
        TRIED(cudaMemcpyPeer(a.data + 2000, 0, far.data + 1000, 1, 5000 * sizeof(Word)))) {
        for (std::size_t i = 0; i < 5000; ++i) a.model[2000 + i] = far.model[1000 + i];
    }
    far.check("on the other device", 0, kWords, 3);
    TRIED(cudaSetDevice(0));
    a.check("after a copy between devices", 1000, 8000);
    launched(a, a, 2);
    int device = -1;
    if (TRIED(cudaGetDevice(&device)) && device != 0) {
        ++wrong_arrays;
        std::printf("WRONG device: %d is current\n", device);
    }
    a.finish();
    far.finish();
    far.release();
    more.release();
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array a("a", kWords), b("b", kWords), small("small", 5);
    cudaStream_t stream = nullptr;
    a.allocate();
    b.allocate();
    small.allocate();
    a.write(0, kWords, 1);
    b.write(100, 9000, 2, 2);
    small.write(0, 5, 3);
    launched(b, a, 3);
    b.check("without a wait", 0, kWords, 11);
    a.write(3000, 200, 99);
    launched(a, b, 5);
    launched(b, a, 7);
    TRIED(cudaDeviceSynchronize());
    a.check("after a wait", 0, kWords);

    TRIED(cudaStreamCreate(&stream));
    copies(a, b, stream);
    b.check("after copies", 0, kWords);
    streams(a, b, stream);
    host_functions(a, b, stream);
    two_devices(a);

    // Memory that comes back is new memory.
    if (b.release() && b.allocate()) {
        b.write(0, 6000, 1234);
        launched(b, a, 19);
    }
    a.finish();
    b.finish();
    small.finish();
    if (stream != nullptr) TRIED(cudaStreamDestroy(stream));
    small.release();

    // What is not freed goes with the context.
    if (TRIED(cudaDeviceReset())) {
        Array again("again", kWords), other("other", kWords);
        again.allocate();
        other.allocate();
        again.write(0, kWords, 31);
        launched(other, again, 23);
        other.finish();
        again.finish();
        again.release();
        other.release();
    } else {
        a.check("after a reset that failed", 0, kWords);
    }
    return verdict();
}
