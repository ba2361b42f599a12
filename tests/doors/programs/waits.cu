// SPDX-License-Identifier: MIT
// A CPU access waits for a kernel that waits for a flag, which another thread raises after a call of its own.
#include <chrono>
#include <thread>

#include "swept.h"

namespace {

__global__ void until(const volatile int* flag) {
    while (*flag == 0) {
    }
}

struct Stream {
    cudaStream_t s = nullptr;
    Stream() { CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
    ~Stream() {
        if (s != nullptr) CHECK(cudaStreamDestroy(s));
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
};

// `call` is given the stream where the kernel waits.
template <class Call>
void returns_meanwhile(Call&& call) {
    Swept a;
    Stream held;
    int* flag = nullptr;
    CHECK(cudaMallocHost(&flag, sizeof *flag));
    *flag = 1;
    until<<<1, 1, 0, held.s>>>(flag);  // loaded while nothing runs
    a.kernel(1);
    CHECK(cudaDeviceSynchronize());
    *flag = 0;
    until<<<1, 1, 0, held.s>>>(flag);
    std::thread reader([&] { a.read(77); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    call(held);
    *static_cast<volatile int*>(flag) = 1;
    reader.join();
    CHECK(cudaDeviceSynchronize());
    a.read(0, a.size());
    CHECK(cudaFreeHost(flag));
}

void begins_capture() {
    const Stream idle;
    returns_meanwhile([&](Stream&) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(idle.s, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaStreamEndCapture(idle.s, &graph));
        CHECK(cudaGraphDestroy(graph));
    });
}
void destroys_stream() {
    returns_meanwhile([](Stream& held) {
        CHECK(cudaStreamDestroy(held.s));
        held.s = nullptr;
    });
}

constexpr Case cases[] = {CASE(begins_capture), CASE(destroys_stream)};

}  // namespace

int main(int argc, char** argv) { return run(cases, argc, argv); }
