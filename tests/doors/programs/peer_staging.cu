// SPDX-License-Identifier: MIT
// Copies of several MiB between devices that cannot reach each other's memory. Cases that take a way of copying are run
// once for each.
#include <thread>

#include "devices.h"

template <int = 0>
__global__ void add(unsigned* words, unsigned count, unsigned what) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] += what;
}

// Of so many words, what value() is for the next seed.
static void next_seed(const Array& array, cudaStream_t stream) {
    add<><<<(array.count + 255) / 256, 256, 0, stream>>>(array.gpu, array.count, 2654435761u);
    CHECK(cudaGetLastError());
}

// What is in the stream before a copy and after it belongs before it and after it.
static void there(const char* way, unsigned count) {
    Array first(0, count), second(1, count);
    for (int device = 0; device < 2; ++device) {
        for (unsigned round = 0; round < 3; ++round) {
            first.fill(round);
            second.fill(round + 100);
            rest();
            CHECK(cudaSetDevice(device));
            const cudaStream_t stream = std::strcmp(way, "on_device_async") == 0 ? cudaStreamPerThread : nullptr;
            Array& own = device == 0 ? first : second;
            next_seed(own, stream);
            say("copy %d", copy_in(way, second, 1, first, 0));
            next_seed(own, stream);
            say(" %d", copy_in(way, second, 1, first, 0));
            // Only the stream tells when it is there.
            const bool more = round % 2 == 0;
            if (more) next_seed(own, stream);
            CHECK(cudaStreamSynchronize(stream));
            // The source has been changed twice before the last copy, then the source or the target once more.
            const unsigned at_second = device == 0 ? round + 2 : round + (more ? 1 : 0);
            const unsigned at_first = device == 0 ? round + (more ? 3 : 2) : round;
            // What arrives last is looked at first.
            say(" end %d,", second.right_at(count - 1, at_second));
            say(" error %d, %u and %u wrong\n", cudaGetLastError(), second.wrong(at_second), first.wrong(at_first));
        }
    }
}
// A little more than the smallest for which blocks are used, and so much that each block is used twice.
static void blocks(int argc, char** argv) { there(argv[argc - 1], (1u << 20) + 12345); }
static void twice(int argc, char** argv) { there(argv[argc - 1], 3u << 20); }

// A copy without a stream is ordered among all work of both devices.
static void among(int, char**) {
    Array first(0, 1 << 20), second(1, 1 << 20);
    for (unsigned round = 0; round < 6; ++round) {
        first.fill(round);
        second.fill(round + 100);
        rest();
        CHECK(cudaSetDevice(0));
        next_seed(first, nullptr);
        CHECK(cudaSetDevice(1));
        next_seed(second, nullptr);
        // Issued by either.
        CHECK(cudaSetDevice(static_cast<int>(round % 2)));
        say("copy %d", copy_in("peer", second, 1, first, 0));
        CHECK(cudaSetDevice(0));
        next_seed(first, nullptr);
        CHECK(cudaSetDevice(1));
        next_seed(second, nullptr);
        rest();
        say(" %u and %u wrong\n", second.wrong(round + 2), first.wrong(round + 2));
    }
}

// Several streams of both devices at once, and a third device that issues copies of the others' memory.
static void crossing(int, char**) {
    constexpr int kStreams = 4;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    std::vector<Array> here, there;
    cudaStream_t streams[2 * kStreams];
    for (int s = 0; s < 2 * kStreams; ++s) {
        here.emplace_back(s % 2, (1u << 20) + static_cast<unsigned>(s));
        there.emplace_back(1 - s % 2, (1u << 20) + static_cast<unsigned>(s));
        CHECK(cudaSetDevice(s / 2 % 2));
        CHECK(cudaStreamCreateWithFlags(&streams[s], s < 4 ? cudaStreamNonBlocking : cudaStreamDefault));
    }
    for (unsigned round = 0; round < 6; ++round) {
        for (int s = 0; s < 2 * kStreams; ++s) here[s].fill(round + static_cast<unsigned>(s));
        rest();
        for (int s = 0; s < 2 * kStreams; ++s) {
            CHECK(cudaSetDevice(s / 2 % 2));
            CHECK(cudaMemcpyPeerAsync(there[s].gpu, 1 - s % 2, here[s].gpu, s % 2, here[s].count * 4, streams[s]));
            if (s / 2 % 2 != s % 2) next_seed(there[s], streams[s]);
        }
        for (int s = 0; s < 2 * kStreams; ++s) {
            CHECK(cudaSetDevice(s / 2 % 2));
            CHECK(cudaStreamSynchronize(streams[s]));
            const unsigned moved = s / 2 % 2 != s % 2 ? 1 : 0;
            say("%u ", there[s].wrong(round + static_cast<unsigned>(s) + moved));
        }
        CHECK(cudaSetDevice(devices - 1));
        say("wrong, %d", cudaMemcpyPeer(here[0].gpu, 0, there[1].gpu, 0, 4 << 20));
        say(" %d", cudaMemcpyPeer(here[0].gpu, 0, there[0].gpu, 1, 4 << 20));
        CHECK(cudaSetDevice(1));
        say(" %d\n", cudaDeviceSynchronize());
    }
    // Streams that go while their copies are under way.
    for (int s = 0; s < 2 * kStreams; ++s) here[s].fill(77);
    rest();
    for (int s = 0; s < 2 * kStreams; ++s) {
        CHECK(cudaSetDevice(s / 2 % 2));
        CHECK(cudaMemcpyPeerAsync(there[s].gpu, 1 - s % 2, here[s].gpu, s % 2, here[s].count * 4, streams[s]));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    rest();
    for (int s = 0; s < 2 * kStreams; ++s) say("%u ", there[s].wrong(77));
    say("wrong\n");
}

// Copies that the driver refuses, or that are none.
static void refused(int, char**) {
    Array first(0, 2 << 20), second(1, 2 << 20);
    const std::size_t bytes = std::size_t{8} << 20;
    first.fill(1);
    second.fill(2);
    rest();
    say("too long %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, bytes + 4096 * 4096, nullptr));
    say(" %d\n", cudaGetLastError());
    say("beyond the end %d", cudaMemcpyPeer(second.gpu + 2048, 1, first.gpu, 0, bytes) != cudaSuccess);
    say(" %d\n", cudaGetLastError() != cudaSuccess);
    say("nothing %d\n", cudaMemcpyPeer(second.gpu, 1, first.gpu, 0, 0));
    rest();
    say("%u and %u wrong\n", first.wrong(1), second.wrong(2));
    say("copy %d\n", cudaMemcpyPeer(second.gpu, 1, first.gpu, 0, bytes));
    rest();
    say("%u wrong\n", second.wrong(1));
}

// Two contexts of one device: the device copies by itself.
static void one_device(int, char**) {
    CHECK_CU(cuInit(0));
    CUcontext context[2];
    CUdeviceptr memory[2];
    for (int c = 0; c < 2; ++c) {
        CHECK_CU(cuCtxCreate(&context[c], nullptr, 0, 0));
        CHECK_CU(cuMemAlloc(&memory[c], 8 << 20));
        CHECK_CU(cuMemsetD32(memory[c], static_cast<unsigned>(c), 2 << 20));
        CHECK_CU(cuCtxSynchronize());
    }
    for (int round = 0; round < 3; ++round) {
        say("copy %d", cuMemcpyPeer(memory[0], context[0], memory[1], context[1], 8 << 20));
        say(" %d\n", cuCtxSynchronize());
    }
    CHECK_CU(cuCtxSetCurrent(context[0]));
    unsigned word = 0;
    CHECK_CU(cuMemcpyDtoH(&word, memory[0] + 4096, sizeof word));
    say("%u\n", word);
}

// Contexts end while others go on, and come back.
static void ends(int, char**) {
    for (unsigned round = 0; round < 4; ++round) {
        Array first(0, 2 << 20), second(1, 2 << 20);
        for (int device = 0; device < 2; ++device) {
            first.fill(round);
            rest();
            CHECK(cudaSetDevice(device));
            say("copy %d", copy_in("peer_async", second, 1, first, 0));
            rest();
            say(", %u wrong\n", second.wrong(round));
        }
        CHECK(cudaSetDevice(static_cast<int>(round % 2)));
        CHECK(cudaDeviceReset());
    }
}

// The device is busy with something that waits for the program.
static void busy(int, char**) {
    Array first(0, 3 << 20), second(1, 3 << 20);
    first.fill(1);
    second.fill(2);
    rest();
    CHECK(cudaSetDevice(0));
    cudaStream_t held, free;
    CHECK(cudaStreamCreateWithFlags(&held, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
    hold(held);
    say("copy %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, 12 << 20, free));
    say(" %d\n", cudaStreamSynchronize(free));
    let_go();
    say("wait %d\n", cudaStreamSynchronize(held));
    // From here on through blocks, until it is the driver's turn.
    for (int round = 0; round < 5; ++round) {
        say("copy %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, 12 << 20, free));
        say(" %d\n", cudaStreamSynchronize(free));
    }
    say("%u wrong\n", second.wrong(1));
}

// A copy whose stream is held up by the program holds up no copy of another stream.
static void held(int, char**) {
    constexpr int kPairs = 4;
    std::vector<Array> first, second;
    cudaStream_t streams[kPairs];
    for (int i = 0; i < kPairs; ++i) {
        first.emplace_back(0, 1 << 20);
        second.emplace_back(1, 1 << 20);
        // Two of the device that is copied from, two of the other.
        CHECK(cudaSetDevice(i / 2));
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    const auto copy = [&](int i) {
        CHECK(cudaSetDevice(i / 2));
        CHECK(cudaMemcpyPeerAsync(second[i].gpu, 1, first[i].gpu, 0, 4 << 20, streams[i]));
    };
    for (unsigned round = 0; round < 8; ++round) {
        for (int i = 0; i < kPairs; ++i) first[i].fill(round + static_cast<unsigned>(i));
        rest();
        for (int i = 0; i < kPairs; i += 2) {
            CHECK(cudaSetDevice(i / 2));
            hold(streams[i]);
            copy(i);
            copy(i + 1);
            say("%d ", cudaStreamSynchronize(streams[i + 1]));
        }
        let_go();
        rest();
        for (int i = 0; i < kPairs; ++i) say("%u ", second[i].wrong(round + static_cast<unsigned>(i)));
        say("wrong\n");
    }
}

static void threads(int, char**) {
    constexpr int kThreads = 6;
    std::atomic<int> next{0};
    std::atomic<unsigned> wrong{0};
    auto copy = [&] {
        const int me = next++;
        Array source(me % 2, 1 << 20), target(1 - me % 2, 1 << 20);
        cudaStream_t stream;
        CHECK(cudaSetDevice(me / 2 % 2));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (unsigned round = 0; round < 6; ++round) {
            source.fill(round + static_cast<unsigned>(me));
            CHECK(cudaDeviceSynchronize());
            if (me == 5) {
                CHECK(copy_in("peer", target, 1 - me % 2, source, me % 2));
                CHECK(cudaDeviceSynchronize());
            } else {
                CHECK(cudaMemcpyPeerAsync(target.gpu, 1 - me % 2, source.gpu, me % 2, 4 << 20,
                                          me == 4 ? cudaStreamPerThread : stream));
                CHECK(cudaStreamSynchronize(me == 4 ? cudaStreamPerThread : stream));
            }
            wrong += target.wrong(round + static_cast<unsigned>(me));
        }
    };
    pthread_t all[kThreads];
    for (pthread_t& thread : all) thread = start(copy);
    for (const pthread_t thread : all) pthread_join(thread, nullptr);
    say("%u wrong\n", wrong.load());
}

// A stream, or the default stream, that another thread uses as well, to change all of what is copied: each copy is one
// operation.
static void shared(int, char**) {
    Array first(0, 1 << 20), second(1, 1 << 20);
    CHECK(cudaSetDevice(0));
    cudaStream_t own;
    CHECK(cudaStreamCreate(&own));
    std::vector<unsigned> got(second.count);
    for (const cudaStream_t stream : {own, cudaStream_t{}}) {
        first.fill(0);
        rest();
        std::atomic<bool> stop{false};
        unsigned done = 0;
        std::thread kernels([&] {
            CHECK(cudaSetDevice(0));
            for (; !stop; ++done) {
                next_seed(first, stream);
                CHECK(cudaStreamSynchronize(stream));
            }
        });
        unsigned wrong = 0;
        for (int round = 0; round < 12; ++round) {
            CHECK(cudaSetDevice(0));
            if (stream == nullptr) {
                CHECK(cudaMemcpyPeer(second.gpu, 1, first.gpu, 0, 4 << 20));
            } else {
                CHECK(cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, 4 << 20, stream));
            }
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaMemcpy(got.data(), second.gpu, 4 << 20, cudaMemcpyDeviceToHost));
            for (unsigned i = 0; i < second.count; ++i) wrong += got[i] - i != got[0];
        }
        stop = true;
        kernels.join();
        rest();
        say("%u and %u wrong\n", wrong, first.wrong(done));
    }
    CHECK(cudaStreamDestroy(own));
}

// Captured copies are the graph's.
static void capture(int, char**) {
    Array first(0, 1 << 20), second(1, 1 << 20);
    CHECK(cudaSetDevice(0));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CHECK(cudaStreamCreate(&stream));
    for (unsigned round = 0; round < 4; ++round) {
        first.fill(round);
        rest();
        say("copy %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, 4 << 20, stream));
        rest();
        say(", %u wrong\n", second.wrong(round));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        next_seed(first, stream);
        say("captured %d", cudaMemcpyPeerAsync(second.gpu, 1, first.gpu, 0, 4 << 20, stream));
        say(" %d", cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&run, graph, 0));
        CHECK(cudaGraphLaunch(run, stream));
        CHECK(cudaStreamSynchronize(stream));
        say(", %u wrong\n", second.wrong(round + 1));
    }
}

// Where devices can reach each other's memory the program gives that up, and libhpe leaves it at that.
static void part() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    for (int d = 0; d < count; ++d) {
        for (int e = 0; e < count; ++e) {
            int can = 0;
            if (d != e) CHECK(cudaDeviceCanAccessPeer(&can, d, e));
            if (can == 0) continue;
            CHECK(cudaSetDevice(d));
            CHECK(cudaDeviceEnablePeerAccess(e, 0));
            CHECK(cudaDeviceDisablePeerAccess(e));
        }
    }
    CHECK(cudaSetDevice(0));
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"blocks", blocks},   {"twice", twice},           {"among", among},   {"crossing", crossing},
        {"refused", refused}, {"one_device", one_device}, {"ends", ends},     {"busy", busy},
        {"held", held},       {"threads", threads},       {"shared", shared}, {"capture", capture},
    };
    if (argc > 2) part();
    return run_case(cases, argc, argv);
}
