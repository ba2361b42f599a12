// SPDX-License-Identifier: MIT
// What a timeline must show, and what it must survive: `trace FORM CASE`. Every case prints what is the same with and
// without one.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "program.h"

__global__ void fill(unsigned* data, unsigned n, unsigned value) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = value + i;
}
constexpr unsigned kCount = 5000;
static void start_fill(unsigned* data, unsigned value, cudaStream_t stream = nullptr) {
    fill<<<blocks_for(kCount, 128), 128, 0, stream>>>(data, kCount, value);
}
static bool is_filled(const unsigned* data, unsigned value) {
    std::vector<unsigned> copy(kCount);
    CHECK(cudaMemcpy(copy.data(), data, kCount * sizeof *data, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < kCount; ++i) {
        if (copy[i] != value + i) return false;
    }
    return true;
}
static unsigned* array() {
    unsigned* data = nullptr;
    CHECK(cudaMalloc(&data, kCount * sizeof *data));
    return data;
}

// Two threads that launch at once, each into a stream and an array of its own, and end.
static void threads(int, char**) {
    std::vector<unsigned> wrong(2);
    std::vector<std::thread> all;
    Data arrays[] = {Data(3000), Data(3000)};
    for (unsigned t = 0; t < 2; ++t) {
        all.emplace_back([&wrong = wrong[t], &data = arrays[t]] {
            cudaStream_t stream = nullptr;
            CHECK(cudaStreamCreate(&stream));
            for (unsigned i = 0; i < 10; ++i) {
                advance<><<<blocks_for(data.count, 128), 128, 0, stream>>>(data.gpu, data.count, ++data.round);
                for (unsigned k = 0; k < data.count; ++k) data.model[k] = data.model[k] * 1664525u + data.round + k;
                CHECK(cudaStreamSynchronize(stream));
                wrong += data.touch(i);
            }
        });
    }
    for (auto& thread : all) thread.join();
    say("%u wrong\n", wrong[0] + wrong[1]);
}
// Two threads that read one array at once.
static void readers(int, char**) {
    Data data(60000);
    data.launch();
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> wrong(2);
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 2; ++t) {
        all.emplace_back([t, &data, &wrong] {
            for (unsigned i = t * 1024; i < data.count; i += 2048) wrong[t] += data.get(i) != data.model[i];
        });
    }
    for (auto& thread : all) thread.join();
    say("%u wrong\n", wrong[0] + wrong[1]);
}
// One after the other: their handles may be the same.
static void streams(int, char**) {
    unsigned* arrays[6];
    for (auto& data : arrays) data = array();
    for (unsigned i = 0; i < 6; ++i) {
        cudaStream_t stream = nullptr;
        CHECK(cudaStreamCreate(&stream));
        start_fill(arrays[i], i, stream);
        CHECK(cudaStreamDestroy(stream));
    }
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < 6; ++i) say("filled %d\n", is_filled(arrays[i], i));
}
static void captured(int, char**) {
    unsigned* const data = array();
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (unsigned i = 0; i < 3; ++i) start_fill(data, i, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 4; ++i) CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("%zu nodes, filled %d\n", nodes, is_filled(data, 2));
}
static void reset(int, char**) {
    for (unsigned i = 0; i < 3; ++i) {
        Data data(3000);
        say("%u wrong\n", data.work(i));
        data.launch();  // still under way
        CHECK(cudaDeviceReset());
    }
}
// Refused launches, and what the program sees of errors.
static void errors(int, char**) {
    Data data(3000);
    for (unsigned i = 0; i < 3; ++i) {
        advance<><<<1, 4096>>>(data.gpu, data.count, 1);
        const auto peeked = cudaPeekAtLastError(), first = cudaGetLastError(), second = cudaGetLastError();
        say("refused: %s, %s, then %s\n", cudaGetErrorName(peeked), cudaGetErrorName(first), cudaGetErrorName(second));
        say("%u wrong\n", data.work(i));
    }
}
// Each may begin while the one in front of it runs: nothing must stand between them.
static void overlapping(int, char**) {
    unsigned* const data = array();
    unsigned count = kCount, value = 0;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks_for(kCount, 128);
    config.blockDim = 128;
    config.attrs = &early;
    for (value = 1; value < 6; ++value) {
        config.numAttrs = value < 4;
        CHECK(cudaLaunchKernelEx(&config, fill, data, count, value));
    }
    CHECK(cudaDeviceSynchronize());
    say("filled %d\n", is_filled(data, 5));
}
// Nobody waits.
static void pending(int, char**) {
    unsigned* const data = array();
    for (unsigned i = 0; i < 20; ++i) start_fill(data, i);
    say("no wait\n");
}
// A host function that ends the process, on the driver's own thread.
static void ends_in_callback(int, char**) {
    unsigned* const data = array();
    start_fill(data, 1);
    CHECK(cudaLaunchHostFunc(
        nullptr, [](void*) { std::exit(7); }, nullptr));
    for (;;) pause();
}
// CUDA after main, when the exit handlers of what came later have run.
static void late(int, char**) {
    struct Late {
        unsigned* data = nullptr;
        ~Late() {
            start_fill(data, 3);
            say("late: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        }
    };
    static Late last;
    last.data = array();
    start_fill(last.data, 2);
    CHECK(cudaDeviceSynchronize());
}
// Both use CUDA, each for itself.
static void fork_first(int, char**) {
    int version = 0;
    // Finds the driver, which is not initialised yet.
    const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDriverGetVersion"));
    say("asked: %d\n", ask(&version));
    const pid_t child = fork();
    int status = -1;
    if (child != 0) waitpid(child, &status, 0);
    Data data(3000);
    const unsigned wrong = data.work(1) + data.check_all();
    if (child == 0) std::exit(wrong != 0);
    say("%u wrong, child %d\n", wrong, status);
}
// More calls than a timeline holds.
static void many(int, char**) {
    Data data(3000);
    unsigned refused = 0;
    for (unsigned i = 0; i < 700000; ++i) refused += cudaStreamQuery(nullptr) != cudaSuccess;
    say("%u wrong, %u refused\n", data.work(1), refused);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"threads", threads},
                                 {"readers", readers},
                                 {"streams", streams},
                                 {"captured", captured},
                                 {"reset", reset},
                                 {"errors", errors},
                                 {"pending", pending},
                                 {"late", late},
                                 {"many", many},
                                 {"fork_first", fork_first},
                                 {"overlapping", overlapping},
                                 {"ends_in_callback", ends_in_callback}};
    return run_case(cases, argc, argv);
}
