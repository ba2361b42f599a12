// SPDX-License-Identifier: MIT
// What the CPU wrote is on its way to the device while the program goes on.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "swept.h"

namespace {

// What the CPU wrote before a launch is on its way when the launch returns: every stream, every copy, the CPU itself
// and a launch that fails find it there.
void flushes_between() {
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    Swept a, b, c;
    Word* to = nullptr;
    CHECK(cudaMallocHost(&to, kWords * sizeof(Word)));
    a.warm();
    b.warm();
    c.warm();
    for (Word round = 0; round < 6; ++round) {
        a.write(0, a.size(), round);
        b.write(0, b.size(), round + 1);
        c.write(c.size() / 2, c.size(), round + 2);
        if (round % 3 == 2) {
            advance<<<1, 32, 1 << 28, second>>>(b.data, b.size(), 1);  // too much shared memory
            wrong += cudaGetLastError() == cudaSuccess;
            b.read(b.size() - 1000, b.size());  // what was written last goes last
            b.read(0, b.size());
        }
        a.kernel(round, first);
        if (round % 3 == 0) b.kernel(round, second);
        if (round % 3 == 1) {
            CHECK(cudaMemcpyAsync(to, b.data, b.size() * sizeof(Word), cudaMemcpyDeviceToHost, second));
            CHECK(cudaStreamSynchronize(second));
            for (std::size_t i = 0; i < b.size(); ++i) wrong += to[i] != b.model[i];
        }
        c.read(0, c.size());
        b.read(0, b.size());
        a.read(0, a.size());
    }
    CHECK(cudaFreeHost(to));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}
// Launches of all kinds, each with what the CPU wrote just before.
void flushes_before_launches() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Swept a;
    a.warm();
    const auto grid = static_cast<unsigned>((a.size() + 255) / 256);
    const auto advanced = [&a](Word key) {
        for (Word& m : a.model) m = m * 1664525u + key;
    };
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    advance<<<grid, 256, 0, stream>>>(a.data, a.size(), 11);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    for (Word round = 0; round < 4; ++round) {
        a.write(0, a.size(), round);
        a.kernel(round, stream);
        a.read(a.size() - 1000, a.size());
        a.write(0, a.size(), round + 1);
        cudaLaunchConfig_t config{};
        config.gridDim = grid, config.blockDim = 256, config.stream = stream;
        CHECK(cudaLaunchKernelEx(&config, advance, a.data, a.size(), round));
        advanced(round);
        a.read(0, a.size() / 2);
        a.write(0, a.size(), round + 2);
        CHECK(cudaGraphLaunch(ready, stream));
        advanced(11);
        a.read(0, a.size());
    }
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}
// Copies and memsets of all kinds, each of what the CPU wrote just before or of a part of it, so that the rest has to
// be sent first.
void flushes_before_copies() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Swept a, b;
    a.warm();
    b.warm();
    const std::size_t part = kWords / 2 + 5, words = kWords / 3, bytes = words * sizeof(Word);
    const auto copied = [&] { std::copy_n(a.model.begin(), words, b.model.begin() + part); };
    const auto set = [&](Word byte) { std::fill_n(b.model.begin() + part, words, byte * 0x01010101u); };
    std::vector<Word> host(words);
    for (Word round = 0; round < 2; ++round) {
        const auto written = [&](Word key) {
            a.write(0, a.size(), round * 10 + key);
            b.write(0, b.size(), round * 10 + key + 1);
        };
        const auto seen = [&] {
            b.read(b.size() - 1000, b.size());
            b.read(0, b.size());
            a.read(0, a.size());
        };
        written(0);
        CHECK(cudaMemcpyAsync(b.data + part, a.data, bytes, cudaMemcpyDeviceToDevice, stream));
        copied();
        seen();
        written(1);
        CHECK(cudaMemcpy2DAsync(b.data + part, bytes, a.data, bytes, bytes, 1, cudaMemcpyDeviceToDevice, stream));
        copied();
        seen();
        written(2);
        CHECK(cudaMemsetAsync(b.data + part, 3, bytes, stream));
        set(3);
        seen();
        written(3);
        CHECK(cudaMemset2DAsync(b.data + part, bytes, 4, bytes, 1, cudaStreamPerThread));
        set(4);
        seen();
        written(4);
        CHECK(cudaMemcpy(b.data + part, a.data, bytes, cudaMemcpyDeviceToDevice));
        copied();
        seen();
        written(5);
        CHECK(cudaMemset(b.data + part, 5, bytes));
        set(5);
        seen();
        // What goes to the program's own memory and comes from there has to pass what is on its way as well.
        written(6);
        CHECK(cudaMemcpy(host.data(), a.data + part, bytes, cudaMemcpyDeviceToHost));
        for (std::size_t i = 0; i < words; ++i) wrong += host[i] != a.model[part + i];
        CHECK(cudaMemcpy(b.data + part, host.data(), bytes, cudaMemcpyHostToDevice));
        std::copy_n(host.begin(), words, b.model.begin() + part);
        seen();
    }
    CHECK(cudaStreamDestroy(stream));
}
// A host function looks at what another stream's launch is sending.
struct Looking {
    const Swept* swept;
    std::atomic<bool> launched{false};
};
void callback_while_flushing() {
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    Swept a, b;
    a.warm();
    b.warm();
    a.kernel(1, second);
    for (Word round = 0; round < 4; ++round) {
        b.write(0, b.size(), round);
        Looking looking{&b};
        CHECK(cudaLaunchHostFunc(
            first,
            [](void* argument) {
                auto* with = static_cast<Looking*>(argument);
                while (!with->launched) std::this_thread::yield();
                with->swept->read(with->swept->size() - 1000, with->swept->size());
            },
            &looking));
        a.kernel(round, second);
        looking.launched = true;
        CHECK(cudaStreamSynchronize(first));
        b.read(0, b.size());
        a.read(0, a.size());
    }
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}
// A host function waits for a launch that is the kernel's first.
__global__ void never_launched_before(Word* data) { data[0] += 1; }
void callback_before_first_launch() {
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    Swept a;
    a.warm();
    a.read(0, a.size());
    std::atomic<bool> launched{false};
    CHECK(cudaLaunchHostFunc(
        first,
        [](void* argument) {
            while (!static_cast<std::atomic<bool>*>(argument)->load()) std::this_thread::yield();
        },
        &launched));
    never_launched_before<<<1, 1, 0, second>>>(a.data);
    CHECK(cudaGetLastError());
    launched = true;
    a.model[0] += 1;
    CHECK(cudaStreamSynchronize(first));
    a.read(0, a.size());
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}
// Another thread captures a stream of its own, again and again, in the mode that forbids most to all threads.
void captures_meanwhile() {
    cudaStream_t captured, stream;
    CHECK(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    // Each is fetched and sent for the first time then, in many steps.
    constexpr int kObjects = 6;
    std::vector<std::unique_ptr<Swept>> swept;
    for (int i = 0; i < kObjects; ++i) swept.push_back(std::make_unique<Swept>());
    Word* other = nullptr;
    CHECK(cudaMalloc(&other, sizeof(Word)));
    std::atomic<bool> done{false};
    std::thread worker([&] {
        for (const auto& s : swept) {
            s->kernel(1, stream);
            s->read(0, s->size());
            s->write(0, s->size(), 2);
            s->kernel(3, stream);
            s->read(0, s->size());
        }
        done = true;
    });
    while (!done) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
        fill<<<1, 1, 0, captured>>>(other, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(cudaStreamEndCapture(captured, &graph));
        CHECK(cudaGraphDestroy(graph));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // what begins without a capture meets the next
    }
    worker.join();
    CHECK(cudaFree(other));
    CHECK(cudaStreamDestroy(captured));
    CHECK(cudaStreamDestroy(stream));
}
constexpr Case cases[] = {
    CASE(flushes_between),         CASE(flushes_before_launches),      CASE(flushes_before_copies),
    CASE(callback_while_flushing), CASE(callback_before_first_launch), CASE(captures_meanwhile),

};

}  // namespace

int main(int argc, char** argv) { return run(cases, argc, argv); }
