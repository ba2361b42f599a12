// SPDX-License-Identifier: MIT
// CPU threads that work their way through objects, in every direction, and everything that may come in between.
#include "swept.h"

#include <thread>

namespace {

void forwards() {
    Swept a;
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        a.read(0, a.size());
    }
}
void once() {
    Swept a;
    a.kernel(3);
    a.read(0, a.size());
}
// One block of a window is used, and after a kernel sent for again by another sweep, before the rest of the first
// window turns out to be old.
void sent_for_twice() {
    constexpr std::size_t block = (64 << 10) / sizeof(Word);
    Swept a;
    a.warm();
    a.read(0, 12 * block);  // 12 to 27 are on their way
    a.read(17 * block);
    a.kernel(8);
    for (const std::size_t at : {77, 57, 37}) a.read(at * block);  // 17 is next
    a.read(20 * block);
    a.read(17 * block, 18 * block);
    a.write(17 * block, 18 * block, 3);
    a.kernel(9);
    a.read(0, a.size());
}
// What was pinned for a device that is gone may be pinned for the next.
void resets() {
    for (Word round = 0; round < 4; ++round) {
        {
            Swept a;
            a.kernel(round);
            a.read(0, a.size());
        }
        CHECK(cudaDeviceReset());
    }
}
// So large that a window fills several of what parks it.
void large() {
    Swept a(208 * kMiB);
    for (std::size_t i = 0; i < a.size(); i += 64) a.read(i);
    a.kernel(5);
    for (std::size_t i = a.size(); i >= 64; i -= 64) a.read(i - 1);
}
void backwards_once() {
    Swept a;
    a.kernel(3);
    for (std::size_t i = a.size(); i-- > 0;) a.read(i);
}
void backwards() {
    Swept a;
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        for (std::size_t i = a.size(); i-- > 0;) a.read(i);
    }
}
void strided() {
    Swept a(24 * kMiB);
    a.warm();
    for (Word round = 0; round < 3; ++round) {
        for (std::size_t i = 5; i < a.size(); i += kMiB) a.read(i);
        a.kernel(round);
    }
}
void strided_backwards() {
    Swept a(24 * kMiB);
    a.warm();
    for (Word round = 0; round < 3; ++round) {
        for (std::size_t i = a.size(); i >= kMiB; i -= kMiB) a.read(i - 1);
        a.kernel(round);
    }
}
void strided_writes() {
    Swept a(12 * kMiB);
    a.warm();
    for (Word round = 0; round < 3; ++round) {
        for (std::size_t i = 5; i < a.size(); i += kMiB) a.write(i, round);
        a.kernel(round);
    }
    a.read(0, a.size());
}
void scattered() {
    Swept a(8 * kMiB);
    a.warm();
    for (std::size_t i = 0, at = 1; i < 400; ++i) {
        at = (at * 1103515245u + 12345u) % a.size();
        if (i % 3 == 0) {
            a.write(at, static_cast<Word>(i));
        } else {
            a.read(at);
        }
    }
    a.kernel(1);
    a.read(0, a.size());
}
void writes() {
    Swept a;
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        a.write(0, a.size() - 3 * kMiB / 2, round);
        a.kernel(round);
    }
    a.read(0, a.size());
}
void updates() {
    Swept a;
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        for (std::size_t i = 0; i < a.size(); ++i) {
            a.data[i] += round;
            a.model[i] += round;
        }
    }
    a.kernel(1);
    a.read(0, a.size());
}

// What was fetched ahead is old when the thread comes to it.
template <class Between>
void interrupted(Between&& between) {
    Swept a;
    a.begin();
    between(a);
    a.read(a.size() * 2 / 3, a.size());
    a.read(0, a.size());
}
void kernel_between() {
    interrupted([](Swept& a) { a.kernel(99); });
}
void kernel_and_wait_between() {
    interrupted([](Swept& a) {
        a.kernel(99);
        CHECK(cudaDeviceSynchronize());
    });
}
void memset_between() {
    interrupted([](Swept& a) {
        CHECK(cudaMemset(a.data, 0x5a, a.size() * sizeof(Word)));
        for (Word& m : a.model) m = 0x5a5a5a5a;
    });
}
void copy_between() {
    interrupted([](Swept& a) {
        const std::vector<Word> from(a.size(), 4711);
        CHECK(cudaMemcpy(a.data, from.data(), a.size() * sizeof(Word), cudaMemcpyHostToDevice));
        a.model = from;
    });
}
void pinned_copy_between() {
    Word* from = nullptr;
    CHECK(cudaMallocHost(&from, kWords * sizeof(Word)));
    for (std::size_t i = 0; i < kWords; ++i) from[i] = static_cast<Word>(i) ^ 0x77u;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    interrupted([&](Swept& a) {
        CHECK(cudaMemcpyAsync(a.data, from, kWords * sizeof(Word), cudaMemcpyHostToDevice, stream));
        a.model.assign(from, from + kWords);
    });
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(from));
}
void graph_between() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    interrupted([&](Swept& a) {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        a.kernel(12, stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        CHECK(cudaGraphLaunch(ready, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(ready));
        CHECK(cudaGraphDestroy(graph));
    });
    CHECK(cudaStreamDestroy(stream));
}
// Nothing is fetched into a graph that is being captured, and what was fetched before is not used after it ran.
void while_capturing() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    Swept a, b;
    b.warm();
    a.begin();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    advance<<<static_cast<unsigned>((a.size() + 255) / 256), 256, 0, stream>>>(a.data, a.size(), 3);
    b.read(0, b.size());
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    for (int round = 0; round < 2; ++round) {
        CHECK(cudaGraphLaunch(ready, stream));
        for (Word& m : a.model) m = m * 1664525u + 3;
        a.read(0, a.size());
    }
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}
// Another thread needs, and changes, what is on its way for this one.
void another_thread_between() {
    interrupted([](Swept& a) {
        std::thread([&a] {
            for (std::size_t i = a.size() - 1; i > a.size() / 2; i -= 3000) a.write(i, 5);
            a.write(a.size() * 2 / 3, a.size() * 2 / 3 + 2000, 6);
        }).join();
    });
}
void callback_between() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    interrupted([&](Swept& a) {
        a.kernel(50, stream);
        CHECK(cudaLaunchHostFunc(
            stream,
            [](void* argument) {
                auto* swept = static_cast<Swept*>(argument);
                for (std::size_t i = swept->size() / 2; i < swept->size(); i += 5000) swept->write(i, 8);
                swept->read(swept->size() * 5 / 6, swept->size() * 5 / 6 + 1000);
            },
            &a));
        CHECK(cudaStreamSynchronize(stream));
    });
    CHECK(cudaStreamDestroy(stream));
}
// What one fault opened goes back block by block: none of the others may be forgotten.
void block_by_block() {
    Swept a;
    for (std::size_t at = 0; at < a.size() / 2; at += kMiB / 16) {
        CHECK(cudaMemset(a.data + at, 0, sizeof(Word)));
        a.model[at] = 0;
    }
    a.kernel(3);
    a.read(0, a.size());
}
// A sweep of reads comes by what was just written: it stays newer than the device's.
void written_on_the_way() {
    Swept a;
    for (Word round = 0; round < 3; ++round) {
        a.kernel(round);
        a.write(a.size() / 9, 4);
        a.write(a.size() / 3, 5);
        a.read(0, a.size());
        a.kernel(round);
        a.read(0, a.size());
    }
}
// What was never given to the device is not fetched from it, though its host copy was in use before.
void fresh() {
    for (int round = 0; round < 4; ++round) {
        Swept a;
        a.kernel(1);
        a.read(0, a.size());
    }
}
// The memory goes while something is on its way to it, and comes back as another object.
void freed_between() {
    for (Word round = 0; round < 6; ++round) {
        Word* old = nullptr;
        {
            Swept a;
            a.begin();
            old = a.data;
        }
        Swept b;
        if (round == 0) std::printf("address used again: %s\n", b.data == old ? "yes" : "no");
        b.kernel(round);
        b.read(0, b.size());
    }
}
void reset_between() {
    for (Word round = 0; round < 3; ++round) {
        // Not freed: they go with the context.
        for (int i = 0; i < 2; ++i) (new Swept)->begin();
        CHECK(cudaDeviceReset());
        Swept b;
        b.begin();
        b.read(0, b.size());
    }
}
// Every block of 64 KiB is written once a round, in no order.
void scattered_densely() {
    constexpr std::size_t kStep = (64 << 10) / sizeof(Word);
    Swept a(16 * kMiB);
    std::vector<std::size_t> order(a.size() / kStep);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::uint64_t state = 88172645463325252u;
    for (std::size_t i = order.size(); i > 1; --i) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        std::swap(order[i - 1], order[state % i]);
    }
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        for (const std::size_t block : order) a.write(block * kStep + round, round);
    }
    a.kernel(9);
    a.read(0, a.size());
}
void two_objects() {
    Swept a, b;
    for (Word round = 0; round < 4; ++round) {
        a.kernel(round);
        b.kernel(round + 1);
        for (std::size_t i = 0; i < a.size(); ++i) {
            a.read(i);
            b.write(i, a.model[i] + round);
        }
    }
    b.kernel(3);
    b.read(0, b.size());
}
// Each its part, then all of them all of it.
void threads() {
    Swept a(8 * kMiB);
    const auto all = [&a](bool parts) {
        std::vector<std::thread> team;
        for (std::size_t t = 0; t < 8; ++t) {
            team.emplace_back([&a, parts, t] {
                if (parts) {
                    a.read(t * kMiB, (t + 1) * kMiB);
                } else {
                    a.read(0, a.size());
                }
            });
        }
        for (auto& thread : team) thread.join();
    };
    for (Word round = 0; round < 6; ++round) {
        a.kernel(round);
        all(round % 2 == 0);
    }
}
// While the threads sweep, others allocate, sweep and free.
void threads_and_frees() {
    std::vector<std::thread> team;
    for (Word t = 0; t < 6; ++t) {
        team.emplace_back([t] {
            for (Word round = 0; round < 4; ++round) {
                Swept a(2 * kMiB + t * 5000);
                a.warm();
                if (round % 2 == 0) a.read(0, a.size() / 2);
                if (t % 2 == 0) a.kernel(round);
                if (round % 3 == 0) a.read(0, a.size());
            }
        });
    }
    for (auto& thread : team) thread.join();
}
void devices() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    for (int device = 0; device < count; ++device) {
        CHECK(cudaSetDevice(device));
        Swept a;
        a.begin();
        // The other device's work, too, may have changed it.
        CHECK(cudaSetDevice((device + 1) % count));
        Swept b;
        b.begin();
        CHECK(cudaMemcpyPeer(a.data, device, b.data, (device + 1) % count, a.size() * sizeof(Word)));
        a.model = b.model;
        a.read(a.size() * 2 / 3, a.size());
        a.read(0, a.size());
        b.read(0, b.size());
    }
}
// Nobody waits for what is on its way.
void exit_between() {
    auto* a = new Swept;
    a->begin();
    std::printf("%lu wrong\n", wrong.load());
    std::fflush(stdout);
    std::exit(wrong != 0);
}

constexpr Case cases[] = {
    CASE(forwards),
    CASE(once),
    CASE(sent_for_twice),
    CASE(resets),
    CASE(large),
    CASE(backwards_once),
    CASE(backwards),
    CASE(strided),
    CASE(strided_backwards),
    CASE(strided_writes),
    CASE(scattered),
    CASE(scattered_densely),
    CASE(writes),
    CASE(updates),
    CASE(kernel_between),
    CASE(kernel_and_wait_between),
    CASE(memset_between),
    CASE(copy_between),
    CASE(pinned_copy_between),
    CASE(graph_between),
    CASE(while_capturing),
    CASE(another_thread_between),
    CASE(callback_between),
    CASE(block_by_block),
    CASE(written_on_the_way),
    CASE(fresh),
    CASE(freed_between),
    CASE(reset_between),
    CASE(two_objects),
    CASE(threads),
    CASE(threads_and_frees),
    CASE(devices),
    CASE(exit_between),
};

}  // namespace

int main(int argc, char** argv) { return run(cases, argc, argv); }
