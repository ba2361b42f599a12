// SPDX-License-Identifier: MIT
// Everything below the doors, from many threads at once over the soft driver: objects that come and go, CPU sweeps and
// scattered accesses that trap, and device work between them, against plain arrays. So that a sanitizer sees the fault
// path with the transfers it makes and those it sends ahead; libhpe.so itself cannot run under one.
//
//   coherence_threads [ROUNDS [CALLS]]     one in CALLS of libhpe's own driver calls fails (failing_driver.h)
//
// The options are libhpe's own variables.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "shim/base/thread.h"
#include "shim/runtime/coherence.h"
#include "shim/runtime/inflight.h"
#include "shim/runtime/process.h"
#include "shim/runtime/real.h"
#include "tests/sanitizers/do.h"
#include "tests/sanitizers/failing_driver.h"

namespace {

using Word = std::uint32_t;
constexpr unsigned kThreads = 5;
std::atomic<std::size_t> wrong{0}, read_words{0}, told{0};

// What fails here the program is told, and its data is as before: it may try again.
template <class Call>
void tell_again(Call&& call) {
    const failing_driver::Patience patience;
    CUresult result = call();
    for (int i = 0; i < 100 && result != CUDA_SUCCESS && failing_driver::one_in != 0; ++i, ++told) result = call();
    DO(result);
}

// What the doors of allocation, free and device work do.
struct Swept {
    CUdeviceptr device = 0;
    std::vector<Word> model;

    explicit Swept(std::size_t words) : model(words) {
        const auto bytes = hpe::Coherence::padded(words * sizeof(Word));
        DO(cuMemAlloc_v2(&device, bytes));
        hpe::process::objects_exist();
        hpe::coherence().track(device, words * sizeof(Word));
    }
    ~Swept() {
        auto& state = hpe::coherence();
        hpe::LaunchInRoom in_room(state.room());
        hpe::Object& object = *state.object_at(device);
        tell_again([&] { return state.begin_free(object); });
        DO(cuMemFree_v2(device));
        state.finish_free(object);
    }
    Swept(const Swept&) = delete;
    Swept& operator=(const Swept&) = delete;

    volatile Word* data() const { return reinterpret_cast<volatile Word*>(device); }
    void fill(std::size_t first, std::size_t count, Word value, CUstream stream, bool as_a_launch) {
        auto& state = hpe::coherence();
        {
            hpe::LaunchInRoom in_room(state.room());
            const auto begin = static_cast<std::uintptr_t>(device) + first * sizeof(Word);
            tell_again([&] {
                return as_a_launch ? state.release(&stream)
                                   : state.before_device_writes({begin, count * sizeof(Word)}, &stream);
            });
            DO(cuMemsetD32Async(begin, value, count, stream));
            hpe::in_flight.enqueued(stream, hpe::Flavour::Legacy, in_room.slot());
        }
        for (std::size_t i = first; i < first + count; ++i) model[i] = value;
    }
    void read(std::size_t first, std::size_t last, std::size_t step = 1) const {
        for (std::size_t i = first; i < last; i += step) {
            wrong += data()[i] != model[i];
            ++read_words;
        }
    }
    void write(std::size_t first, std::size_t last, std::size_t step, Word value) {
        for (std::size_t i = first; i < last; i += step) data()[i] = model[i] = value + static_cast<Word>(i);
    }
};

// A signal handler that interrupts a launch touches an object.
void interrupt_launch(unsigned thread, CUstream stream) {
    Swept other(3000);
    other.fill(0, 3000, 1, stream, true);
    for (unsigned round = 0; round < 3; ++round) {
        other.fill(0, 2000, round, stream, true);
        {
            const hpe::LaunchInRoom in_room(hpe::coherence().room());
            other.read(0, 3000, 100);
            other.write(thread, 3000, 1000, round);
        }
        wrong += !std::exchange(hpe::this_thread.touched_inside, false);
        hpe::coherence().end_unordered();
        other.read(0, 3000);
    }
}

void work(CUcontext context, unsigned thread, unsigned rounds, Swept& shared, std::barrier<>& together) {
    DO(cuCtxSetCurrent(context));
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    {
        // Large enough that what is fetched ahead is parked, since nobody has used its memory before.
        Swept large(1100000 + thread * 1000);
        const auto n = large.model.size();
        large.fill(0, n, thread, stream, true);
        large.read(0, n * 2 / 3, 64);
        large.fill(n / 2, n / 4, 99, stream, thread % 2 == 0);
        large.read(n / 3, n, 64);
    }
    // Which cannot be told of a failure.
    if (failing_driver::one_in == 0) interrupt_launch(thread, stream);
    for (unsigned life = 0; life < 3; ++life) {
        Swept own(200000 + thread * 10007 + life * 999);
        const auto n = own.model.size();
        own.write(0, n, 1, thread);
        for (unsigned round = 0; round < rounds; ++round) {
            own.fill(n / 7, n / 2, round, stream, true);
            own.read(0, n);
            own.fill(0, n / 3, round + 1, stream, false);
            own.write(n / 4, n / 2, 1 + round * 500, round);
            own.read(0, n / 2);
            own.fill(n / 3, n / 3, round + 2, stream, true);
            own.read(n / 8, n, 16384);
            // One object for all: one thread gives it to the device, then all read it.
            together.arrive_and_wait();
            if (thread == round % kThreads) {
                shared.fill(0, shared.model.size(), round * 77 + life, stream, true);
                shared.write(round * 1000, shared.model.size(), 30011, round);
            }
            together.arrive_and_wait();
            shared.read(thread % 2 == 0 ? 0 : thread * 10000, shared.model.size());
        }
    }
    DO(cuStreamSynchronize(stream));
    DO(cuStreamDestroy_v2(stream));
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 3;
    if (!hpe::process::first_use() || !hpe::adopt_driver(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
        std::fprintf(stderr, "no driver to work on\n");
        return 1;
    }
    CUdevice device;
    CUcontext context;
    const unsigned calls = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    if (calls != 0) failing_driver::install(calls);
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    {
        Swept shared(400000);
        std::barrier together(kThreads);
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; ++t) {
            threads.emplace_back(work, context, t, rounds, std::ref(shared), std::ref(together));
        }
        for (auto& thread : threads) thread.join();
    }
    std::printf("%zu words read, %zu wrong; %zu calls failed, %zu were told\n", read_words.load(), wrong.load(),
                failing_driver::failed.load(), told.load());
    return wrong != 0 || read_words == 0 || (calls != 0) != (failing_driver::failed != 0);
}
