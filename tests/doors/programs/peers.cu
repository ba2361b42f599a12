// SPDX-License-Identifier: MIT
// Copies between devices, and peer access that the program enables and disables, or never does. Linked with libcuda as
// well as with the CUDA runtime. Cases that take a way of copying are run once for each.
#include "devices.h"

// There and back again.
static void copies(int argc, char** argv) {
    Array first(0), second(1);
    for (unsigned round = 0; round < 3; ++round) {
        first.fill(round + 1);
        second.fill(round + 10);
        rest();
        say("copy %d", copy_in(argv[argc - 1], second, 1, first, 0));
        say(" error %d, %u wrong\n", cudaGetLastError(), second.wrong(round + 1));
        second.fill(round + 20);
        say("back %d", copy_in(argv[argc - 1], first, 0, second, 1));
        say(" error %d, %u wrong\n", cudaGetLastError(), first.wrong(round + 20));
    }
}

// Every device's array visits every other device.
static void all_pairs(int, char**) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    std::vector<Array> arrays, visitors;
    for (int d = 0; d < count; ++d) arrays.emplace_back(d), visitors.emplace_back(d);
    for (int d = 0; d < count; ++d) arrays[d].fill(100 + static_cast<unsigned>(d));
    for (int d = 0; d < count; ++d) {
        for (int e = 0; e < count; ++e) {
            if (d == e) continue;
            rest();
            // Issued by a third device, if there is one.
            CHECK(cudaSetDevice((d + e) % count));
            CHECK(copy_in((d + e) % 2 != 0 ? "peer" : "default", visitors[e], e, arrays[d], d));
            say("%d to %d: %u wrong\n", d, e, visitors[e].wrong(100 + static_cast<unsigned>(d)));
        }
    }
}

static void small(int, char**) {
    Array first(0, 200 * kWords), second(1, 200 * kWords);
    for (unsigned round = 0; round < 4; ++round) {
        first.fill(round);
        say("copy %d", copy_in("peer", second, 1, first, 0));
        say(", %u wrong\n", second.wrong(round));
    }
}

static void pool(int, char**) {
    unsigned* memory[2];
    for (int d = 0; d < 2; ++d) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaMallocAsync(&memory[d], kBytes, nullptr));
        CHECK(cudaMemsetAsync(memory[d], d + 1, kBytes, nullptr));
        CHECK(cudaStreamSynchronize(nullptr));
        // So that there are objects of two contexts.
        Array other(d);
    }
    unsigned word = 0;
    say("copy %d\n", cudaMemcpyPeer(memory[0], 0, memory[1], 1, kBytes));
    CHECK(cudaSetDevice(0));  // which alone may access it
    CHECK(cudaMemcpy(&word, memory[0] + kCount - 1, sizeof word, cudaMemcpyDeviceToHost));
    say("%x\n", word);
}

// What the program sees of access from the first device to the array of the second.
static void look(const char* when, const Array& second) {
    CHECK(cudaSetDevice(0));
    unsigned flags = 99;
    CUdeviceptr pointer = 0, both_pointer = 0;
    say("%s: flags %d", when, cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, second.address()));
    say(" %u", flags);
    say(" pointer %d", cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, second.address()));
    say(" same %d", pointer == second.address());
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void* data[] = {&flags, &both_pointer};
    say(" both %d", cuPointerGetAttributes(2, attributes, data, second.address()));
    cudaPointerAttributes a{};
    const cudaError_t asked = cudaPointerGetAttributes(&a, second.gpu);
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    say(" %u same %d, runtime %d %d, can %d\n", flags, both_pointer == second.address(), asked,
        a.devicePointer == second.gpu, can);
}

template <int = 0>
__global__ void read_peer(unsigned* to, const unsigned* from) {
    *to = *from;
}

// Its own enable and disable, with copies in between.
static void own(int, char**) {
    Array first(0), second(1);
    const auto copy = [&](unsigned seed) {
        first.fill(seed);
        rest();
        const cudaError_t copied = copy_in("peer", second, 1, first, 0);
        say("copy %d error %d, %u wrong\n", copied, cudaGetLastError(), second.wrong(seed));
        CHECK(cudaSetDevice(0));
    };
    CHECK(cudaSetDevice(0));
    look("at first", second);
    copy(1);
    look("after a copy", second);
    say("flags of 1: %d\n", cudaDeviceEnablePeerAccess(1, 1));
    say("itself: %d\n", cudaDeviceEnablePeerAccess(0, 0));
    cudaGetLastError();
    const bool enabled = cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess;
    say("enable %d", enabled);
    say(" error %d\n", cudaGetLastError());
    look("enabled", second);
    say("again %d", cudaDeviceEnablePeerAccess(1, 0));
    say(" error %d\n", cudaGetLastError());
    copy(2);
    if (enabled) read_peer<><<<1, 1>>>(first.gpu, second.gpu + 5);
    say("kernel %d", cudaGetLastError());
    say(", %d\n", cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    say("other way %d", cudaDeviceEnablePeerAccess(0, 0));
    say(" error %d", cudaGetLastError());
    say(" disable %d", cudaDeviceDisablePeerAccess(0));
    say(" again %d\n", cudaDeviceDisablePeerAccess(0));
    cudaGetLastError();
    CHECK(cudaSetDevice(0));
    copy(3);
    say("disable %d", cudaDeviceDisablePeerAccess(1));
    say(" error %d\n", cudaGetLastError());
    look("disabled", second);
    copy(4);
    say("again %d", cudaDeviceDisablePeerAccess(1));
    say(" error %d\n", cudaGetLastError());
    copy(5);
    say("once more %d", cudaDeviceEnablePeerAccess(1, 0));
    say(" %d", cudaDeviceEnablePeerAccess(1, 0));
    say(" disable %d\n", cudaDeviceDisablePeerAccess(1));
    cudaGetLastError();
    copy(6);
    // Without access a kernel may not.
    read_peer<><<<1, 1>>>(first.gpu, second.gpu + 5);
    say("kernel %d", cudaGetLastError());
    say(", %d\n", cudaDeviceSynchronize());
    say("enable in a broken context %d\n", cudaDeviceEnablePeerAccess(1, 0));
}

// Disables what it never enabled.
static void disable(int, char**) {
    Array first(0), second(1);
    first.fill(1);
    rest();
    CHECK(copy_in("peer", second, 1, first, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    say("disable %d", cudaDeviceDisablePeerAccess(1));
    say(" error %d\n", cudaGetLastError());
    first.fill(2);
    say("copy %d", copy_in("peer", second, 1, first, 0));
    say(", %u wrong\n", second.wrong(2));
    CHECK(cudaSetDevice(0));
    say("disable %d", cudaDeviceDisablePeerAccess(1));
    say(" error %d\n", cudaGetLastError());
    look("not enabled", second);
}

// In a context that a kernel broke, before the program and its copies part.
static void broken(int, char**) {
    Array first(0), second(1);
    first.fill(1);
    rest();
    CHECK(copy_in("peer", second, 1, first, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    read_peer<><<<1, 1>>>(first.gpu, nullptr);
    say("kernel %d\n", cudaDeviceSynchronize());
    say("enable %d", cudaDeviceEnablePeerAccess(1, 0));
    say(", disable %d\n", cudaDeviceDisablePeerAccess(1));
}

// Contexts come and go.
static void contexts(int, char**) {
    CHECK_CU(cuInit(0));
    for (unsigned round = 0; round < 3; ++round) {
        CUcontext context[3];
        CUdeviceptr memory[3];
        std::vector<unsigned> words(kCount, round + 7);
        for (int c = 0; c < 3; ++c) {  // two of the first device
            CHECK_CU(cuCtxCreate(&context[c], nullptr, 0, c == 2 ? 1 : 0));
            CHECK_CU(cuMemAlloc(&memory[c], kBytes));
            CHECK_CU(cuMemsetD32(memory[c], static_cast<unsigned>(c), kCount));
            CHECK_CU(cuCtxSynchronize());
        }
        CHECK_CU(cuMemcpyHtoD(memory[2], words.data(), kBytes));
        CHECK_CU(cuCtxSynchronize());
        say("to the second %d", cuMemcpyPeer(memory[1], context[1], memory[2], context[2], kBytes));
        say(" to the first %d\n", cuMemcpyPeer(memory[0], context[0], memory[1], context[1], kBytes));
        CHECK_CU(cuCtxSynchronize());
        CHECK_CU(cuCtxSetCurrent(context[0]));
        words.assign(kCount, 0);
        CHECK_CU(cuMemcpyDtoH(words.data(), memory[0], kBytes));
        unsigned wrong = 0;
        for (const unsigned w : words) wrong += w != round + 7;
        say("%u wrong\n", wrong);
        CHECK_CU(cuCtxSetCurrent(context[1]));
        say("enable one device's %d", cuCtxEnablePeerAccess(context[0], 0));
        say(" the other's %d", cuCtxEnablePeerAccess(context[2], 0));
        say(" again %d", cuCtxEnablePeerAccess(context[2], 0));
        say(" nothing %d\n", cuCtxEnablePeerAccess(nullptr, 0) != CUDA_SUCCESS);
        say("destroy %d", cuCtxDestroy(context[2]));
        say(" %d", cuCtxDestroy(context[1]));
        say(" %d\n", cuCtxDestroy(context[0]));
    }
    for (unsigned round = 0; round < 3; ++round) {
        Array first(0), second(1);
        second.fill(round);
        rest();
        say("copy %d", copy_in("peer", first, 0, second, 1));
        say(", %u wrong\n", first.wrong(round));
        CHECK(cudaSetDevice(1));
        CHECK(cudaDeviceReset());
        CHECK(cudaSetDevice(0));
        say("disable %d", cudaDeviceDisablePeerAccess(1));
        say(" error %d", cudaGetLastError());
        say(" enable %d\n", cudaDeviceEnablePeerAccess(1, 0));
    }
}

// Copies on all sides at once, while one thread enables and disables.
static void threads(int, char**) {
    constexpr int kThreads = 6;
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    std::atomic<int> next{0};
    std::atomic<unsigned> wrong{0};
    auto copy = [&] {
        const int me = next++, from = me % count, to = (me + 1) % count;
        Array source(from), target(to);
        for (unsigned round = 0; round < 6; ++round) {
            source.fill(round + static_cast<unsigned>(me));
            CHECK(copy_in(round % 2 != 0 ? "peer" : "default", target, to, source, from));
            wrong += target.wrong(round + static_cast<unsigned>(me));
        }
    };
    auto enable = [&] {
        CHECK(cudaSetDevice(0));
        for (int round = 0; round < 10; ++round) {
            say("%d", cudaDeviceEnablePeerAccess(1, 0));
            say(" %d", cudaDeviceEnablePeerAccess(1, 0));
            say(" %d", cudaDeviceDisablePeerAccess(1));
            say(" %d\n", cudaDeviceDisablePeerAccess(1));
        }
    };
    pthread_t all[kThreads + 1];
    for (int t = 0; t < kThreads; ++t) all[t] = start(copy);
    all[kThreads] = start(enable);
    for (const pthread_t thread : all) pthread_join(thread, nullptr);
    say("%u wrong\n", wrong.load());
}

// A copy in a graph, while another thread copies as well.
static void capture(int, char**) {
    Array first(0), second(1), third(0), fourth(1);
    first.fill(1);
    third.fill(3);
    CHECK(cudaSetDevice(0));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    say("captured %d\n", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, kBytes, stream));
    auto other = [&] {
        cudaStream_t own;
        auto mode = cudaStreamCaptureModeRelaxed;
        CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
        CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        say("beside it %d", cudaMemcpyPeerAsync(fourth.gpu, 1, third.gpu, 0, kBytes, own));
        say(" %d\n", cudaStreamSynchronize(own));
        CHECK(cudaStreamDestroy(own));
    };
    pthread_join(start(other), nullptr);
    say("end %d\n", cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    for (unsigned round = 0; round < 3; ++round) {
        first.fill(round);
        CHECK(cudaGraphLaunch(run, stream));
        CHECK(cudaStreamSynchronize(stream));
        say("%u wrong, %u wrong\n", second.wrong(round), fourth.wrong(3));
    }
}

// The device is busy with something that waits for the program.
static void busy(int, char**) {
    Array first(0), second(1);
    first.fill(1);
    second.fill(2);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    cudaStream_t held, free;
    CHECK(cudaStreamCreateWithFlags(&held, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
    hold(held);
    say("copy %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, kBytes, free));
    say(" %d\n", cudaStreamSynchronize(free));
    let_go();
    say("wait %d\n", cudaStreamSynchronize(held));
    // From here on directly.
    for (int round = 0; round < 2; ++round) {
        say("copy %d", cudaMemcpyPeerAsync(first.gpu, 0, second.gpu, 1, kBytes, free));
        say(" %d\n", cudaStreamSynchronize(free));
    }
    say("%u wrong, %u wrong\n", first.wrong(1), second.wrong(1));
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"copies", copies},   {"all_pairs", all_pairs}, {"small", small},   {"pool", pool},
        {"own", own},         {"disable", disable},     {"broken", broken}, {"contexts", contexts},
        {"threads", threads}, {"capture", capture},     {"busy", busy},
    };
    return run_case(cases, argc, argv);
}
