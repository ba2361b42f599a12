// SPDX-License-Identifier: MIT
// A graph captured from a stream, with kernels, a copy, a memset and a host function that touches an array, and
// launched several times; the CPU reads and writes its arrays in between. The model replays what was really captured.
#include "tried.h"

#include <functional>

namespace {

constexpr std::size_t kWords = 9001;

struct Callback {
    Array* array;
    int ran;
};
void host_function(void* argument) {
    auto* callback = static_cast<Callback*>(argument);
    ++callback->ran;
    if (!touching) return;
    for (std::size_t i = 0; i < 3000; ++i) callback->array->data[i] ^= 0x55;
}

// Takes a while.
__global__ void count_down(Word* to, Word turns) {
    Word state = 1, done = 0;
    for (; done < turns; ++done) state = state * 1664525u + 1013904223u + done;
    *to = done + (state == 0);
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array a("a", kWords), b("b", kWords), c("c", kWords), d("d", 1);
    cudaStream_t stream = nullptr, beside = nullptr;
    if (!a.allocate() || !b.allocate() || !c.allocate() || !d.allocate() || !TRIED(cudaStreamCreate(&stream)) ||
        !TRIED(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking))) {
        return verdict();
    }
    a.write(0, kWords, 5);
    b.write(0, kWords, 6, 3);
    launched(c, a, 3);

    std::vector<std::function<void()>> captured;
    Callback callback{&c, 0};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    bool ready = false;
    if (TRIED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))) {
        if (launch(b, a, 7, stream)) captured.push_back([&] { model_launch(b, a, 7); });
        if (TRIED(
                cudaMemcpyAsync(c.data + 4000, b.data + 100, 2000 * sizeof(Word), cudaMemcpyDeviceToDevice, stream))) {
            captured.push_back([&] {
                for (std::size_t i = 0; i < 2000; ++i) c.model[4000 + i] = b.model[100 + i];
            });
        }
        if (TRIED(cudaMemsetAsync(a.data + 8000, 0x21, 1001 * sizeof(Word), stream))) {
            captured.push_back([&] {
                for (std::size_t i = 0; i < 1001; ++i) a.model[8000 + i] = 0x21212121;
            });
        }
        if (TRIED(cudaLaunchHostFunc(stream, host_function, &callback))) {
            captured.push_back([&] {
                for (std::size_t i = 0; i < 3000; ++i) c.model[i] ^= 0x55;
            });
        }
        // The CPU touches an array while the capture is under way: nothing of that may enter it.
        a.write(10, 20, 71);
        a.check("during a capture", 0, kWords, 9);
        // Work beside the capture is waited for.
        if (TRIED((count_down<<<1, 1, 0, beside>>>(d.data, 400'000), cudaGetLastError()))) d.model[0] = 400'000;
        d.check("beside a capture", 0, 1);
        if (launch(a, c, 3, stream)) captured.push_back([&] { model_launch(a, c, 3); });
        ready = TRIED(cudaStreamEndCapture(stream, &graph)) && graph != nullptr &&
                TRIED(cudaGraphInstantiate(&exec, graph, 0));
    }
    std::size_t nodes = 0;
    if (ready && TRIED(cudaGraphGetNodes(graph, nullptr, &nodes)) && nodes != captured.size()) {
        ++wrong_arrays;
        std::printf("WRONG graph: %zu nodes, %zu were captured\n", nodes, captured.size());
    }
    for (unsigned round = 0; ready && round < 4; ++round) {
        if (TRIED(cudaGraphLaunch(exec, stream))) {
            for (const auto& replay : captured) replay();
        }
        if (round == 1) continue;  // two launches in a row
        if (!TRIED(cudaStreamSynchronize(stream))) TRIED(cudaDeviceSynchronize());
        a.check("after a graph", 0, kWords, 5);
        c.write(round * 1000, 700, round);
        b.check("after a graph", 0, kWords);
    }
    if (exec != nullptr) TRIED(cudaGraphExecDestroy(exec));
    if (graph != nullptr) TRIED(cudaGraphDestroy(graph));
    TRIED(cudaDeviceSynchronize());
    launched(b, a, 9, stream);
    TRIED(cudaStreamDestroy(stream));
    TRIED(cudaStreamDestroy(beside));
    for (Array* array : {&a, &b, &c, &d}) {
        array->finish();
        array->release();
    }
    return verdict();
}
