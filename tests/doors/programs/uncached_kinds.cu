// SPDX-License-Identifier: MIT
// CPU accesses to memory of which no host copy is kept: exported from pages of others, mapped twice, of a graph, of
// another device, imported from another process. Linked with libcuda too.
#include <cuda.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <initializer_list>
#include <new>
#include <thread>
#include <vector>

#include "exported.h"

// One that lies in a chunk of addresses with others, which stay shared.
static void small(int, char**) {
    std::vector<Data> all;
    unsigned wrong = 0;
    for (unsigned n : {40000u, 3000u, 50000u, 100u}) all.emplace_back(n);
    for (auto& data : all) wrong += data.work(2);
    export_to_others(all[0].gpu);
    for (unsigned round = 0; round < 8; ++round) {
        for (auto& data : all) data.launch();
        // Whole pages of its own.
        const unsigned i = 2048 + 4000 * round;
        wrong += all[0].get(i) != all[0].model[i];
        all[0].set(i, round);
        for (unsigned k = 1; k < 4; ++k) wrong += all[k].touch(round);
        wrong += all[0].get(i) != round;
    }
    Data late(2000);  // in the same chunk
    wrong += late.work(3);
    wrong += all[0].get(5000) != all[0].model[5000];
    CHECK(cudaFree(all[0].gpu));
    for (unsigned k = 1; k < 4; ++k) wrong += all[k].work(4) + all[k].check_all();
    wrong += late.check_all();
    say("%u wrong\n", wrong);
}

// In pages of others, which stay theirs: first, last and other words, kernels, and calls that go over the pages' ends.
static void beside(int, char**) {
    std::vector<Data> all;
    for (unsigned n : {90u, 300u, 40u, 5000u, 100u, 20u, 3000u, 1500u, 64u}) all.emplace_back(n);
    unsigned wrong = 0;
    const auto use = [&](unsigned round) {
        for (auto& data : all) data.launch();
        for (auto& data : all) {
            for (const unsigned i : {0u, 1u, data.count / 2, data.count - 1}) {
                wrong += data.get(i) != data.model[i];
                data.set(i, round + i);
            }
        }
        std::FILE* const file = std::tmpfile();
        for (auto& data : all) {
            std::vector<unsigned> got(data.count);
            if (plain) {
                wrong += std::fwrite(data.gpu, 4, data.count, file) != data.count || std::fflush(file) != 0 ||
                         pread(fileno(file), got.data(), data.count * 4, 0) != data.count * 4;
                std::rewind(file);
            } else {
                CHECK(cudaMemcpy(got.data(), data.gpu, data.count * 4, cudaMemcpyDeviceToHost));
            }
            wrong += std::memcmp(got.data(), data.model, data.count * 4) != 0;
            std::vector<unsigned> fill(data.count, round);
            std::memcpy(data.model, fill.data(), data.count * 4);
            if (plain) {
                std::memcpy(data.gpu, fill.data(), data.count * 4);
            } else {
                CHECK(cudaMemcpy(data.gpu, fill.data(), data.count * 4, cudaMemcpyHostToDevice));
            }
        }
        std::fclose(file);
        wrong += all[3].touch(round) + all[6].touch(round);
    };
    use(1);
    for (const unsigned exports : {4u, 1u, 7u}) {
        export_to_others(all[exports].gpu);
        use(exports + 10);
    }
    // What comes into such pages, and goes.
    for (const unsigned frees : {7u, 2u, 4u}) {
        CHECK(cudaFree(all[frees].gpu));
        all[frees] = Data(all[frees].count);
        use(frees + 20);
    }
    for (auto& data : all) CHECK(cudaFree(data.gpu));
    Data anew(2000);
    wrong += anew.work(1);
    say("%u wrong\n", wrong);
}

// Pages of what was exported, and of what lay beside it, are shared again when all of it was freed.
static void given_back(int, char**) {
    for (const bool exported_first : {true, false}) {
        const Data other(300), beside(300);
        export_to_others(other.gpu);
        for (const bool first : {true, false}) CHECK(cudaFree(first == exported_first ? other.gpu : beside.gpu));
    }
    Data anew(300), another(300);
    say("%u wrong\n", anew.work(1) + another.work(2));
}

// Memory of the device, mapped at each of the places.
static void map(int device, std::size_t size, std::initializer_list<CUdeviceptr*> places,
                CUmemAccess_flags rights = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemGenericAllocationHandle handle;
    CHECK_CU(cuMemCreate(&handle, size, &properties, 0));
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = rights;
    for (CUdeviceptr* const place : places) {
        CHECK_CU(cuMemAddressReserve(place, size, 0, 0, 0));
        CHECK_CU(cuMemMap(*place, size, 0, handle, 0));
        CHECK_CU(cuMemSetAccess(*place, size, &access, 1));
    }
}

static void twice(int, char**) {
    CHECK(cudaFree(nullptr));
    CUdeviceptr places[2];
    map(0, 2 << 20, {&places[0], &places[1]});
    auto* const first = reinterpret_cast<unsigned*>(places[0]);
    auto* const second = reinterpret_cast<unsigned*>(places[1]);
    unsigned wrong = 0;
    for (unsigned i = 0; i < 300; ++i) {
        store(first + i, i * 3);
        wrong += load(second + i) != i * 3;
        store(second + i, i * 5);
        wrong += load(first + i) != i * 5;
    }
    advance<><<<2, 128>>>(first, 200, 1);
    wrong += load(second + 10) != 50 * 1664525u + 1 + 10;
    say("%u wrong\n", wrong);
}

// Memory of a graph, from its run on; what it frees is not there any more.
static void graph_memory(int, char**) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned* array = nullptr;
    cudaGraph_t graph;
    cudaGraphExec_t runs;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&array, many * 4, stream));
    CHECK(cudaMemsetAsync(array, 1, many * 4, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&runs, graph, 0));
    unsigned wrong = 0;
    for (unsigned round = 0; round < 3; ++round) {
        CHECK(cudaGraphLaunch(runs, stream));
        if (!plain) CHECK(cudaStreamSynchronize(stream));
        wrong += load(array + 500) != 0x01010101;
        store(array + 500, round);
        advance<><<<blocks_for(many, 128), 128, 0, stream>>>(array, many, 1);
        if (!plain) CHECK(cudaStreamSynchronize(stream));
        wrong += load(array + 500) != round * 1664525u + 1 + 500;
        CHECK(cudaFreeAsync(array, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    say("%u wrong\n", wrong);
}

// Memory of the last device, allocated while the first one is current: a pool's, and mapped memory.
static void other_device(int, char**) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    const int other = count - 1;
    cudaMemPool_t pool;
    unsigned *from_pool = nullptr, wrong = 0;
    CHECK(cudaFree(nullptr));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, other));
    CHECK(cudaSetDevice(other));
    CHECK(cudaFree(nullptr));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocFromPoolAsync(&from_pool, many * 4, pool, nullptr));
    CHECK(cudaStreamSynchronize(nullptr));
    CUdeviceptr mapped = 0;
    map(other, 4 << 20, {&mapped});
    // The CPU needs no device; a copy does, and the other one alone may make it.
    const auto use = [&](int device) { CHECK(cudaSetDevice(plain ? 0 : device)); };
    for (unsigned* const memory : {from_pool, reinterpret_cast<unsigned*>(mapped)}) {
        for (unsigned round = 0; round < 5; ++round) {
            use(other);
            for (unsigned i = 0; i < 30; ++i) store(memory + i * 999, i + round);
            CHECK(cudaSetDevice(other));
            advance<><<<blocks_for(many, 128), 128>>>(memory, many, round);
            CHECK(cudaGetLastError());
            if (!plain) CHECK(cudaDeviceSynchronize());
            use(other);
            for (unsigned i = 0; i < 30; ++i) {
                wrong += load(memory + i * 999) != (i + round) * 1664525u + round + i * 999;
            }
        }
    }
    say("%u wrong\n", wrong);
}

// Memory of the first device that in the end only the last one may write, since the first one's right has ended or
// there was none.
static void only_other_writes(int, char**) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    const int other = count - 1;
    for (const int device : {other, 0}) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaFree(nullptr));
    }
    const auto size = std::size_t{2} << 20;
    unsigned wrong = 0;
    for (const bool first_may : {true, false}) {
        CUdeviceptr place = 0;
        const auto may = [&](int device, CUmemAccess_flags what) {
            const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, what};
            CHECK_CU(cuMemSetAccess(place, size, &access, 1));
        };
        map(0, size, {&place}, first_may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
        may(other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        auto* const memory = reinterpret_cast<unsigned*>(place);
        if (first_may) store(memory + 7, 70u);
        if (first_may && other != 0) may(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
        CHECK(cudaSetDevice(other));
        for (unsigned round = 0; round < 3; ++round) {
            for (unsigned i = 0; i < 20; ++i) store(memory + 100 + i, i + round);
            advance<><<<8, 128>>>(memory, 1000, round);
            CHECK(cudaGetLastError());
            if (!plain) CHECK(cudaDeviceSynchronize());
            for (unsigned i = 0; i < 20; ++i) {
                wrong += load(memory + 100 + i) != (i + round) * 1664525u + round + 100 + i;
            }
        }
        CHECK(cudaSetDevice(0));
    }
    say("%u wrong\n", wrong);
}

// Two processes, each of which sees what the other wrote, with its CPU or its device, as soon as a flag in shared
// memory says so.
struct Meeting {
    std::atomic<unsigned> turn;
    cudaIpcMemHandle_t handle;
};
static void await(Meeting& meeting, unsigned turn) {
    while (meeting.turn.load(std::memory_order_acquire) != turn) sched_yield();
}
static constexpr unsigned rounds = 12;
static int importer(Meeting& meeting) {
    while (meeting.turn.load(std::memory_order_acquire) == 0) sched_yield();
    unsigned *array = nullptr, *again = nullptr, wrong = 0;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&array), meeting.handle, cudaIpcMemLazyEnablePeerAccess));
    std::atomic<bool> over{false};
    std::thread reader([&] {
        CHECK(cudaSetDevice(0));
        while (!over.load()) load(array + 7);
    });
    for (unsigned i = 0; i < 100; ++i) {
        CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), meeting.handle, cudaIpcMemLazyEnablePeerAccess));
        CHECK(cudaIpcCloseMemHandle(again));
    }
    over.store(true);
    reader.join();
    for (unsigned round = 0; round < rounds; ++round) {
        await(meeting, 2 + 2 * round);
        for (unsigned i = 0; i < 40; ++i) wrong += load(array + i * 1000) != round * 100 + i;
        if (round % 2 == 0) {
            for (unsigned i = 0; i < 40; ++i) store(array + i * 1000, round * 200 + i);
        } else {
            CHECK(cudaMemset(array, static_cast<int>(round), many * 4));
            CHECK(cudaDeviceSynchronize());
        }
        meeting.turn.store(3 + 2 * round, std::memory_order_release);
    }
    CHECK(cudaIpcCloseMemHandle(array));
    say("importer: %u wrong\n", wrong);
    return 0;
}
static void processes(int, char**) {
    auto* const meeting = new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Meeting;
    const pid_t child = fork();
    if (child == 0) std::exit(importer(*meeting));
    unsigned *array = nullptr, wrong = 0;
    CHECK(cudaMalloc(&array, many * 4));
    CHECK(cudaIpcGetMemHandle(&meeting->handle, array));
    meeting->turn.store(1, std::memory_order_release);
    for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned i = 0; i < 40; ++i) store(array + i * 1000, round * 100 + i);
        meeting->turn.store(2 + 2 * round, std::memory_order_release);
        await(*meeting, 3 + 2 * round);
        for (unsigned i = 0; i < 40; ++i) {
            const unsigned expected = round % 2 == 0 ? round * 200 + i : round * 0x01010101u;
            wrong += load(array + i * 1000) != expected;
        }
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("exporter: %u wrong, child %d\n", wrong, status);
}

// A host function writes to an allocation that shares its pages, while another thread exports it.
struct Written {
    volatile unsigned* words;
    unsigned round;
};
static void write_again_and_again(void* argument) {
    const auto& written = *static_cast<Written*>(argument);
    for (unsigned time = 0; time < 400; ++time) written.words[time % 20] = written.round * 100 + time % 20;
}
static void exported_meanwhile(int, char**) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    unsigned wrong = 0;
    for (unsigned round = 1; round <= 60; ++round) {
        unsigned *before = nullptr, *array = nullptr, *behind = nullptr, copy[20] = {};
        CHECK(cudaMalloc(&before, 600));
        CHECK(cudaMalloc(&array, 1000));
        CHECK(cudaMalloc(&behind, 700));
        CHECK(cudaMemset(array, 0, 1000));
        CHECK(cudaDeviceSynchronize());
        Written written{plain ? array : copy, round};
        CHECK(cudaLaunchHostFunc(stream, write_again_and_again, &written));
        for (volatile unsigned pause = round * 977 % 3000; pause != 0; pause = pause - 1) {
        }
        export_to_others(array);
        CHECK(cudaStreamSynchronize(stream));
        if (!plain) CHECK(cudaMemcpy(array, copy, sizeof copy, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(copy, array, sizeof copy, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < 20; ++i) wrong += copy[i] != round * 100 + i;
        for (auto* each : {before, array, behind}) CHECK(cudaFree(each));
    }
    say("%u wrong\n", wrong);
}

// One thread uses memory while another one's frees of it are refused.
static void free_refused_meanwhile(int, char**) {
    for (const std::size_t words : {250u, 1000000u}) {
        unsigned* array = nullptr;
        CHECK(cudaMalloc(&array, words * sizeof *array));
        CHECK(cudaMemset(array, 0, words * sizeof *array));
        CHECK(cudaDeviceSynchronize());
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        unsigned wrong = 0, refused = 0;
        store(array + 5, 0u);
        std::atomic<bool> over{false};
        std::thread user([&] {
            CHECK(cudaSetDevice(0));
            auto mode = cudaStreamCaptureModeRelaxed;
            CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
            for (unsigned time = 0; !over.load(); ++time) {
                store(array + time % 50, time);
                wrong += load(array + time % 50) != time;
            }
        });
        for (unsigned round = 0; round < 100; ++round) {
            cudaGraph_t graph = nullptr;
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
            refused += cudaFree(array) != cudaSuccess;
            cudaGetLastError();
            cudaStreamEndCapture(stream, &graph);
            cudaGetLastError();
        }
        over.store(true);
        user.join();
        say("%u refused, %u wrong\n", refused, wrong);
        CHECK(cudaFree(array));
        CHECK(cudaStreamDestroy(stream));
    }
}

// One thread reads memory while another one gives and takes the right to write it, which decides whether it is shared.
static void granted_meanwhile(int, char**) {
    CHECK(cudaFree(nullptr));
    CUdeviceptr place = 0;
    map(0, 2 << 20, {&place});
    auto* const memory = reinterpret_cast<unsigned*>(place);
    CHECK(cudaMemset(memory, 1, 4096));
    CHECK(cudaDeviceSynchronize());
    const auto may = [&](CUmemAccess_flags what) {
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, what};
        CHECK_CU(cuMemSetAccess(place, 2 << 20, &access, 1));
    };
    may(CU_MEM_ACCESS_FLAGS_PROT_READ);
    unsigned wrong = load(memory + 5) != 0x01010101u;
    std::atomic<bool> over{false};
    std::thread reader([&] {
        CHECK(cudaSetDevice(0));
        while (!over.load()) wrong += load(memory + 5) != 0x01010101u;
    });
    for (unsigned round = 0; round < 300; ++round) {
        may(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        may(CU_MEM_ACCESS_FLAGS_PROT_READ);
    }
    over.store(true);
    reader.join();
    say("%u wrong\n", wrong);
}

// An export is refused where libhpe's copies are made to fail: the device does not take what the CPU wrote. The memory
// stays what it was; its first page it shares with what was exported before.
static void export_refused(int, char**) {
    constexpr unsigned kWords = 5000, kMiddle = kWords / 2;
    unsigned *before = nullptr, *array = nullptr;
    CHECK(cudaMalloc(&before, 600));
    CHECK(cudaMalloc(&array, kWords * sizeof *array));
    CHECK(cudaMemset(array, 1, kWords * sizeof *array));
    CHECK(cudaDeviceSynchronize());
    export_to_others(before);
    unsigned wrong = load(array + 3) != 0x01010101u;
    store(array + kMiddle, 7u);
    cudaIpcMemHandle_t handle;
    const bool refused = cudaIpcGetMemHandle(&handle, array) != cudaSuccess;
    cudaGetLastError();
    for (const unsigned i : {0u, 3u, kMiddle - 1, kWords - 1}) wrong += load(array + i) != 0x01010101u;
    wrong += load(array + kMiddle) != 7u;
    say("%d refused, %u wrong\n", refused, wrong);
    CHECK(cudaFree(before));
    CHECK(cudaFree(array));
}

// String functions read whole vectors, and calls of stdio that take a string may hand it to the kernel.
static void strings(int, char**) {
    for (const std::size_t length : {2999u, 20000u}) {
        char* text = nullptr;
        CHECK(cudaMalloc(&text, length + 1));
        CHECK(cudaMemset(text, 'x', length));
        CHECK(cudaMemset(text + length, 0, 1));
        export_to_others(text);
        std::vector<char> copy(length + 1), same(length + 1, 'x');
        same[length] = 0;
        const char* from = text;
        if (!plain) {
            CHECK(cudaMemcpy(copy.data(), text, length + 1, cudaMemcpyDeviceToHost));
            from = copy.data();
        }
        const auto* const end = static_cast<const char*>(std::memchr(from, 0, length + 1));
        say("%zu long, ends at %td, compares %d\n", std::strlen(from), end - from, std::strcmp(same.data(), from));
        std::FILE* const file = std::tmpfile();
        say("fputs %d\n", std::fputs(from, file) >= 0);
        say("unlocked %d, ", fputs_unlocked(from, file) >= 0);
        say("%ld bytes\n", std::fflush(file) == 0 ? std::ftell(file) : -1);
        std::fclose(file);
        say("puts %d\n", std::puts(from) >= 0);
        CHECK(cudaFree(text));
    }
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"small", small},
                                 {"strings", strings},
                                 {"beside", beside},
                                 {"given_back", given_back},
                                 {"twice", twice},
                                 {"graph_memory", graph_memory},
                                 {"other_device", other_device},
                                 {"only_other_writes", only_other_writes},
                                 {"granted_meanwhile", granted_meanwhile},
                                 {"exported_meanwhile", exported_meanwhile},
                                 {"free_refused_meanwhile", free_refused_meanwhile},
                                 {"export_refused", export_refused},
                                 {"processes", processes}};
    return run_case(cases, argc, argv);
}
