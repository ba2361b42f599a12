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
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "shim/base/thread.h"
#include "shim/coherence/callbacks.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/lease.h"
#include "shim/coherence/loans.h"
#include "shim/doors/fault.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/process/process.h"
#include "tests/sanitizers/do.h"
#include "tests/sanitizers/failing_driver.h"

namespace {

using Word = std::uint32_t;
constexpr unsigned kThreads = 5;
std::atomic<std::size_t> wrong{0}, read_words{0}, told{0};

// What fails here the program is told, and its data is as before: it may try again.
template <class Call>
void tell_again(Call&& call) {
    CUresult result = call();
    for (int i = 0; i < 100 && result != CUDA_SUCCESS && failing_driver::one_in != 0; ++i, ++told) result = call();
    DO(result);
}

// What cannot be fetched ends in the program's handler, which has the access made again.
void access_again(int) {
    if (failing_driver::one_in == 0) std::abort();
    ++told;
}

// What the doors of allocation, free and device work do.
struct Swept {
    CUdeviceptr device = 0;
    std::vector<Word> model;

    explicit Swept(std::size_t words) : model(words) {
        const auto bytes = hpe::Coherence::padded(words * sizeof(Word));
        DO(cuMemAlloc_v2(&device, bytes));
        hpe::process::objects_exist(hpe::on_fault);
        hpe::coherence().track(device, words * sizeof(Word));
    }
    ~Swept() {
        auto& state = hpe::coherence();
        hpe::LaunchInGate in_gate(state.launch_gate());
        auto allocation = state.allocation_at(device);
        tell_again([&] { return state.begin_free(allocation); });
        DO(cuMemFree_v2(device));
        state.finish_free(allocation);
    }
    Swept(const Swept&) = delete;
    Swept& operator=(const Swept&) = delete;

    volatile Word* data() const { return reinterpret_cast<volatile Word*>(device); }
    void fill(std::size_t first, std::size_t count, Word value, CUstream stream, bool as_a_launch) {
        auto& state = hpe::coherence();
        {
            hpe::LaunchInGate in_gate(state.launch_gate());
            const auto begin = static_cast<std::uintptr_t>(device) + first * sizeof(Word);
            tell_again([&] {
                return as_a_launch ? state.release(&stream)
                                   : state.before_device_writes({begin, count * sizeof(Word)}, &stream);
            });
            DO(cuMemsetD32Async(begin, value, count, stream));
            hpe::in_flight.enqueued(stream, hpe::Flavour::Legacy, hpe::this_thread.slot);
        }
        for (std::size_t i = first; i < first + count; ++i) model[i] = value;
    }
    void read(std::size_t first, std::size_t last, std::size_t step = 1) const {
        for (std::size_t i = first; i < last; i += step) {
            wrong += data()[i] != model[i];
            ++read_words;
        }
    }
    // As a call that the kernel answers: what it writes, and what it reads.
    void store(std::size_t first, std::size_t count, Word value) {
        std::vector<Word> words(count);
        for (std::size_t i = 0; i < count; ++i) words[i] = model[first + i] = value + static_cast<Word>(i);
        const auto bytes = count * sizeof(Word);
        auto* const to = reinterpret_cast<Word*>(device) + first;
        tell_again([&] {
            const auto* const from = reinterpret_cast<const std::byte*>(words.data());
            return hpe::lease::store(to, from, bytes, nullptr) == bytes ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
        });
    }
    void load(std::size_t first, std::size_t count) const {
        const auto bytes = count * sizeof(Word);
        const auto* const from = reinterpret_cast<const Word*>(device) + first;
        tell_again([&] {
            const hpe::lease::ToRead memory(from, bytes, nullptr);
            if (memory.memory() == nullptr) return CUDA_ERROR_UNKNOWN;
            wrong += !std::equal(model.begin() + static_cast<std::ptrdiff_t>(first),
                                 model.begin() + static_cast<std::ptrdiff_t>(first + count),
                                 static_cast<const Word*>(memory.memory()));
            return CUDA_SUCCESS;
        });
        read_words += count;
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
        DO(cuStreamSynchronize(stream));  // a handler cannot wait
        {
            const hpe::LaunchInGate in_gate(hpe::coherence().launch_gate());
            other.read(0, 3000, 100);
            other.write(thread, 3000, 1000, round);
        }
        wrong += !std::exchange(hpe::this_thread.touched_inside, false);
        hpe::coherence().end_loans();
        other.read(0, 3000);
    }
}

// As the host function of a stream.
template <class Work>
void in_callback(Work work) {
    const CUhostFn call = [](void* argument) { (*static_cast<Work*>(argument))(); };
    hpe::callbacks::run_host_function(hpe::callbacks::wrap(call, &work, false));
}
template <class Work>
void on_another_thread(CUcontext context, Work work) {
    std::thread([&] {
        DO(cuCtxSetCurrent(context));
        work();
    }).join();
}

// A stream of the program's whose work goes on for as long as this is there.
class Busy {
public:
    Busy() {
        DO(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
        DO(cuLaunchHostFunc(
            stream_,
            [](void* over) {
                while (!*static_cast<std::atomic<bool>*>(over)) std::this_thread::yield();
            },
            &over_));
        hpe::in_flight.enqueued(stream_, hpe::Flavour::Legacy);
    }
    ~Busy() {
        over_ = true;
        DO(cuStreamSynchronize(stream_));
        hpe::in_flight.destroyed(stream_);
        DO(cuStreamDestroy_v2(stream_));
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

private:
    std::atomic<bool> over_{false};
    CUstream stream_ = nullptr;
};

// Several host functions at once have the same block, and the device writes beside them.
void borrow(CUcontext context) {
    Swept object(100);
    object.write(0, 100, 1, 0);
    const auto device_has = [&](std::size_t i, Word value) {
        Word now = 0;
        DO(cuMemcpyDtoH_v2(&now, object.device + i * sizeof(Word), sizeof now));
        wrong += now != value;
    };
    // As a kernel of the busy stream would.
    const auto device_writes = [&](std::size_t i, Word value) {
        DO(cuMemsetD32_v2(object.device + i * sizeof(Word), value, 1));
        DO(cuStreamSynchronize(nullptr));  // a memset returns before it is done
        object.model[i] = value;
    };
    // A host function comes after what it needs: what it borrows is fetched without waiting, whole blocks at once.
    const auto release = [&] {
        object.fill(99, 1, 0, nullptr, true);
        DO(cuStreamSynchronize(nullptr));
    };

    // Who comes second does not trap; all the same the device has what it wrote when it ends.
    release();
    auto busy = std::make_unique<Busy>();
    in_callback([&] {
        object.write(0, 1, 1, 10);
        on_another_thread(context, [&] { in_callback([&] { object.write(1, 2, 1, 10); }); });
        device_has(0, 10);
        device_has(1, 11);
        device_writes(50, 5);
        object.write(2, 3, 1, 10);
    });
    device_has(2, 12);
    device_has(50, 5);
    busy.reset();
    object.read(0, 100);

    // A reader that ends before a writer sends nothing of its own.
    release();
    busy = std::make_unique<Busy>();
    in_callback([&] {
        object.read(0, 10);
        on_another_thread(context, [&] {
            in_callback([&] {
                object.write(3, 4, 1, 20);
                device_writes(50, 6);
            });
        });
    });
    device_has(3, 23);
    device_has(50, 6);
    busy.reset();

    // This thread has waited, the reader had not.
    release();
    busy = std::make_unique<Busy>();
    std::atomic<int> step{0};
    std::thread reader([&] {
        DO(cuCtxSetCurrent(context));
        in_callback([&] {
            object.read(0, 10);
            step = 1;
            while (step == 1) std::this_thread::yield();
        });
    });
    while (step == 0) std::this_thread::yield();
    device_writes(50, 7);
    busy.reset();
    // Of batch update whatever was read is writable: nothing traps before the program has been seen to wait.
    if (hpe::coherence().acts_on_acquire()) hpe::coherence().end_loans();
    object.write(4, 5, 1, 30);
    object.read(0, 100);
    step = 2;
    reader.join();
    object.read(0, 100);
    release();
    device_has(4, 34);
    device_has(50, 7);

    // At the limit on mappings the access traps though the block is valid: then nothing is borrowed.
    object.write(5, 6, 1, 40);
    hpe::Object& tracked = *hpe::coherence().object_at(object.device);
    hpe::pager::close_shadow(tracked);
    in_callback([&] { object.read(0, 10); });
    object.write(6, 7, 1, 40);
    release();
    device_has(5, 45);
    device_has(6, 46);

    // More blocks than there are loans; and objects that are freed while their blocks are borrowed.
    Swept large(hpe::loans::kMost * 3 * 70000);
    large.fill(0, large.model.size(), 1, nullptr, true);
    DO(cuStreamSynchronize(nullptr));  // a host function comes after what it needs
    in_callback([&] {
        large.read(0, large.model.size(), 5000);
        large.write(1, large.model.size(), 5000, 9);
        Swept freed(5000);
        freed.fill(0, 5000, 1, nullptr, true);
        DO(cuStreamSynchronize(nullptr));
        freed.write(0, 5000, 7, 3);
    });
    wrong += hpe::loans::any();
    large.read(0, large.model.size(), 1000);
    large.read(1, large.model.size(), 1000);
}

// Host functions that write here and there in the same blocks, launches and waits between them.
void lend_together(CUcontext context) {
    Swept object(300000);
    object.fill(0, object.model.size(), 1, nullptr, true);
    DO(cuStreamSynchronize(nullptr));
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            DO(cuCtxSetCurrent(context));
            Swept own(100);
            for (unsigned round = 0; round < 60; ++round) {
                if (t == 0) {
                    own.fill(0, 100, round, nullptr, true);
                    if (round % 4 == 0) hpe::coherence().end_loans();
                    continue;
                }
                in_callback([&] {
                    for (std::size_t i = t + round * 5; i < object.model.size(); i += 5 * 4001) {
                        const std::size_t mine = i - i % kThreads + t;
                        if (mine < object.model.size()) object.write(mine, mine + 1, 1, round);
                    }
                });
            }
        });
    }
    for (auto& thread : threads) thread.join();
    wrong += hpe::loans::any();
    object.read(0, object.model.size());
}

// Small objects side by side, pairs of which belong to one thread each: what a thread's fault opens is another one's,
// which uses it, gives it to the device or frees it at that moment.
void crowd(CUcontext context, unsigned rounds) {
    // A release of many objects is many calls, of which hardly ever none fails.
    const std::size_t all_objects = (failing_driver::one_in == 0 ? 40 : 2) * kThreads;
    constexpr std::size_t kWords = 700;
    std::vector<std::unique_ptr<Swept>> objects;
    for (std::size_t i = 0; i < all_objects; ++i) objects.push_back(std::make_unique<Swept>(kWords));
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            DO(cuCtxSetCurrent(context));
            CUstream stream;
            DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            const auto for_mine = [&](auto&& each) {
                for (std::size_t i = 0; i < all_objects; ++i) {
                    if (i / 2 % kThreads == t) each(objects[i], i);
                }
            };
            for (unsigned round = 0; round < 3 * rounds; ++round) {
                for_mine(
                    [&](auto& object, std::size_t i) { object->write(0, kWords, 1, round + static_cast<Word>(i)); });
                for_mine([&](auto& object, std::size_t i) {
                    if (i % 7 == round % 7) object->fill(5, 100, round, stream, true);
                });
                for_mine([&](auto& object, std::size_t) { object->read(0, kWords); });
                for_mine([&](auto& object, std::size_t i) {
                    if (i % 11 != round % 11) return;
                    object.reset();
                    object = std::make_unique<Swept>(kWords);
                    object->write(0, kWords, 1, round);
                });
            }
            for_mine([&](auto& object, std::size_t) { object->load(0, kWords); });
            DO(cuStreamSynchronize(stream));
            DO(cuStreamDestroy_v2(stream));
        });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& object : objects) object->read(0, kWords);
}

void work(CUcontext context, unsigned thread, unsigned rounds, Swept& shared, std::barrier<>& together) {
    DO(cuCtxSetCurrent(context));
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    {
        // Large enough that prefetch buffers are used, since nobody has used its memory before.
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
            own.store(n / 5, n / 3, round);
            own.fill(n / 4, 1000, round, stream, true);
            own.load(n / 9, n / 2);
            // One object for all: one thread gives it to the device, then all read it.
            together.arrive_and_wait();
            if (thread == round % kThreads) {
                shared.fill(0, shared.model.size(), round * 77 + life, stream, true);
                shared.write(round * 1000, shared.model.size(), 30011, round);
            }
            together.arrive_and_wait();
            shared.read(thread % 2 == 0 ? 0 : thread * 10000, shared.model.size());
            // Each stores a part whose borders lie inside of blocks, and loads it again.
            together.arrive_and_wait();
            const auto part = shared.model.size() / kThreads;
            shared.store(thread * part, part, round + thread);
            shared.load(thread * part, part);
            together.arrive_and_wait();
            shared.load(1, shared.model.size() - 2);
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
    signal(SIGSEGV, access_again);
    CUdevice device;
    CUcontext context;
    const unsigned calls = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    if (calls != 0) failing_driver::install(calls);
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    if (calls == 0) {
        borrow(context);
        lend_together(context);
    }
    crowd(context, rounds);
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
