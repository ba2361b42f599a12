// SPDX-License-Identifier: MIT
// A graph of a host function that writes an array and a kernel that reads it, launched twice. Short, so that each call
// can be made to fail.
#include "tried.h"

namespace {

constexpr std::size_t kWords = 20'000, kWritten = 100;  // enough for libhpe to pin them

void host_function(void* array) {
    if (!touching) return;
    for (std::size_t i = 0; i < kWritten; ++i) static_cast<Array*>(array)->data[i] ^= 0x55;
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array a("a", kWords), b("b", kWords);
    cudaStream_t stream = nullptr;
    if (!a.allocate() || !b.allocate() || !TRIED(cudaStreamCreate(&stream))) return verdict();
    a.write(0, kWords, 5);
    b.write(0, kWords, 6);
    launched(a, b, 3, stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (!TRIED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))) return verdict();
    const bool writes = TRIED(cudaLaunchHostFunc(stream, host_function, &a));
    const bool reads = launch(b, a, 7, stream);
    const bool ready = TRIED(cudaStreamEndCapture(stream, &graph)) && graph != nullptr &&
                       TRIED(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; ready && round < 2; ++round) {
        if (!TRIED(cudaGraphLaunch(exec, stream))) continue;
        for (std::size_t i = 0; writes && i < kWritten; ++i) a.model[i] ^= 0x55;
        if (reads) model_launch(b, a, 7);
        if (!TRIED(cudaStreamSynchronize(stream))) TRIED(cudaDeviceSynchronize());
        b.check("after a host function", 0, kWords);
    }
    if (exec != nullptr) TRIED(cudaGraphExecDestroy(exec));
    if (graph != nullptr) TRIED(cudaGraphDestroy(graph));
    TRIED(cudaStreamDestroy(stream));
    for (Array* array : {&a, &b}) {
        array->finish();
        array->release();
    }
    return verdict();
}
