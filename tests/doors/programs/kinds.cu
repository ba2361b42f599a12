// SPDX-License-Identifier: MIT
// Device memory that is not cudaMalloc's, used by the CPU: stream-ordered, of pools, mapped by the program, and
// variables. Linked with libcuda too.
#include <cuda.h>

#include <algorithm>
#include <vector>

#include "program.h"

static unsigned* allocate(std::size_t bytes, cudaStream_t stream = nullptr) {
    unsigned* memory = nullptr;
    CHECK(cudaMallocAsync(&memory, bytes, stream));
    return memory;
}

static cudaStream_t make_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

// Sizes that are no whole pages, side by side.
static void sizes(int, char**) {
    std::vector<Data> all;
    unsigned wrong = 0;
    for (unsigned n : {1u, 3u, 128u, 1000u, 1024u, 5000u, 300000u, 7u}) all.emplace_back(n, allocate(n * 4));
    for (unsigned round = 0; round < 4; ++round) {
        for (auto& data : all) data.launch();
        for (auto& data : all) wrong += data.touch(round);
    }
    for (auto& data : all) wrong += data.check_all();
    say("%u wrong\n", wrong);
    for (auto& data : all) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        CHECK_CU(cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(data.gpu)));
        say("%d %zu\n", base == reinterpret_cast<CUdeviceptr>(data.gpu), bytes);
        CHECK(cudaFreeAsync(data.gpu, nullptr));
    }
    CHECK(cudaDeviceSynchronize());
}

// The next allocation gets the memory while a kernel still reads what was there.
static void freed_in_order(int, char**) {
    constexpr unsigned n = 1u << 17;
    const auto stream = make_stream();
    Data kept(n);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 12; ++round) {
        unsigned* const first = allocate(n * 4, stream);
        CHECK(cudaMemsetAsync(first, static_cast<int>(round), n * 4, stream));
        for (int k = 0; k < 4; ++k) advance<><<<blocks_for(n, 128), 128, 0, stream>>>(first, n, k);
        CHECK(cudaMemcpyAsync(kept.gpu, first, n * 4, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaFreeAsync(first, stream));
        unsigned* const second = allocate(n * 4, stream);
        const unsigned value = round + 77;
        if (plain) {
            std::fill(second, second + n, value);
        } else {
            const std::vector<unsigned> host(n, value);
            CHECK(cudaMemcpyAsync(second, host.data(), n * 4, cudaMemcpyHostToDevice, stream));
        }
        advance<><<<blocks_for(n, 128), 128, 0, stream>>>(second, n, 1);
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; i += 1001) {
            unsigned model = round * 0x01010101u;
            for (unsigned k = 0; k < 4; ++k) model = model * 1664525u + k + i;
            kept.model[i] = model;
            wrong += kept.get(i) != model;
            unsigned got = 0;
            if (plain)
                got = second[i];
            else
                CHECK(cudaMemcpy(&got, second + i, 4, cudaMemcpyDeviceToHost));
            wrong += got != value * 1664525u + 1 + i;
        }
        CHECK(cudaFreeAsync(second, stream));
    }
    say("%u wrong\n", wrong);
    CHECK(cudaStreamDestroy(stream));
}

// A pool of the program's, many small pieces, of which every second goes and comes.
static void pool(int, char**) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t made;
    CHECK(cudaMemPoolCreate(&made, &properties));
    const auto piece = [&](unsigned n) {
        unsigned* memory = nullptr;
        CHECK(cudaMallocFromPoolAsync(&memory, n * 4, made, nullptr));
        return Data(n, memory);
    };
    std::vector<Data> pieces;
    unsigned wrong = 0;
    for (unsigned i = 0; i < 200; ++i) pieces.push_back(piece(50 + i));
    for (unsigned round = 0; round < 3; ++round) {
        for (auto& data : pieces) data.launch();
        for (auto& data : pieces) wrong += data.touch(round);
        for (unsigned i = round % 2; i < pieces.size(); i += 2) {
            CHECK(cudaFreeAsync(pieces[i].gpu, nullptr));
            pieces[i] = piece(60 + i);
        }
        CHECK(cudaMemPoolTrimTo(made, 0));
    }
    for (auto& data : pieces) wrong += data.check_all();
    for (auto& data : pieces) CHECK(cudaFree(data.gpu));
    CHECK(cudaMemPoolDestroy(made));
    say("%u wrong\n", wrong);
}

// Allocations that name no pool come from the one that the program has chosen for the device, and from the device's
// own.
static void chosen(int, char**) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t made, own;
    CHECK(cudaMemPoolCreate(&made, &properties));
    CHECK(cudaDeviceGetDefaultMemPool(&own, 0));
    unsigned wrong = 0;
    for (unsigned round = 0; round < 4; ++round) {
        Data data(3000 + round, allocate((3000 + round) * 4, nullptr));
        wrong += data.work(round);
        CHECK(cudaDeviceSetMemPool(0, round % 2 == 0 ? made : own));
        wrong += data.work(round + 9);
        CHECK(cudaFreeAsync(data.gpu, nullptr));
    }
    CHECK(cudaMemPoolDestroy(made));
    say("%u wrong\n", wrong);
}

// Captured allocations exist while their graph runs; those beside them are used as ever.
static void captured(int, char**) {
    constexpr unsigned n = 5000;
    const auto stream = make_stream();
    Data beside(n, allocate(n * 4));
    unsigned wrong = beside.work(3);
    cudaGraph_t graph;
    cudaGraphExec_t runs;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    unsigned* const scratch = allocate(n * 4, stream);
    CHECK(cudaMemcpyAsync(scratch, beside.gpu, n * 4, cudaMemcpyDeviceToDevice, stream));
    advance<><<<blocks_for(n, 128), 128, 0, stream>>>(scratch, n, 9);
    CHECK(cudaMemcpyAsync(beside.gpu, scratch, n * 4, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&runs, graph, 0));
    for (unsigned round = 0; round < 3; ++round) {
        wrong += beside.touch(round);
        CHECK(cudaGraphLaunch(runs, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; ++i) beside.model[i] = beside.model[i] * 1664525u + 9 + i;
    }
    wrong += beside.check_all();
    say("%u wrong\n", wrong);
    CHECK(cudaGraphExecDestroy(runs));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeAsync(beside.gpu, nullptr));
    CHECK(cudaStreamDestroy(stream));
}

// Two threads, each with a stream and allocations of its own.
static void threads(int, char**) {
    unsigned wrong[2] = {};
    unsigned number = 0;
    auto work = [&] {
        const unsigned id = __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED);
        const auto stream = make_stream();
        for (unsigned round = 0; round < 60; ++round) {
            const unsigned n = 100 + 997 * (round % 7) + id;
            Data data(n, allocate(n * 4, stream));
            CHECK(cudaStreamSynchronize(stream));
            wrong[id] += data.touch(round);
            wrong[id] += data.work(round + 1);
            wrong[id] += data.check_all();
            CHECK(cudaFreeAsync(data.gpu, stream));
            std::free(data.model);
        }
        CHECK(cudaStreamDestroy(stream));
    };
    const auto first = start(work), second = start(work);
    pthread_join(first, nullptr);
    pthread_join(second, nullptr);
    say("%u and %u wrong\n", wrong[0], wrong[1]);
}

struct Mapped {
    static constexpr int kMost = 4;
    std::size_t piece = 0;
    CUdeviceptr at = 0;
    CUmemAllocationProp properties = {};

    Mapped() {
        CHECK(cudaFree(nullptr));
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CHECK_CU(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        CHECK_CU(cuMemAddressReserve(&at, kMost * piece, 0, 0, 0));
    }
    ~Mapped() { CHECK_CU(cuMemAddressFree(at, kMost * piece)); }
    CUmemGenericAllocationHandle make() const {
        CUmemGenericAllocationHandle handle;
        CHECK_CU(cuMemCreate(&handle, piece, &properties, 0));
        return handle;
    }
    CUdeviceptr place(int i) const { return at + i * piece; }
    void map(int i, CUmemGenericAllocationHandle handle) const { CHECK_CU(cuMemMap(place(i), piece, 0, handle, 0)); }
    // The program keeps no handle: the mapping keeps the memory.
    void map_new(int i) const {
        const auto handle = make();
        map(i, handle);
        CHECK_CU(cuMemRelease(handle));
    }
    void allow(int first, int count, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const {
        CUmemAccessDesc access = {};
        access.location = properties.location;
        access.flags = flags;
        CHECK_CU(cuMemSetAccess(place(first), count * piece, &access, 1));
    }
    void unmap(int first, int count) const { CHECK_CU(cuMemUnmap(place(first), count * piece)); }
    unsigned* numbers(int i) const { return reinterpret_cast<unsigned*>(place(i)); }
    unsigned count(int pieces) const { return static_cast<unsigned>(pieces * piece / 4); }
};

// An array over several pieces, which grows and shrinks.
static void mapped(int, char**) {
    const Mapped memory;
    unsigned wrong = 0;
    memory.map_new(0);
    memory.map_new(1);
    memory.allow(0, 2);
    {
        Data data(memory.count(2), memory.numbers(0));
        for (unsigned round = 0; round < 3; ++round) wrong += data.work(round);
        // A copy from one piece into the other.
        const unsigned at = memory.count(1) - 5000;
        CHECK(cudaMemcpy(data.gpu + at, data.gpu, 10000 * 4, cudaMemcpyDeviceToDevice));
        std::copy_n(data.model, 10000, data.model + at);
        wrong += data.touch(9);
        wrong += data.check_all();
        std::free(data.model);
    }
    memory.map_new(2);
    memory.allow(2, 1);
    {
        Data data(memory.count(3), memory.numbers(0));
        wrong += data.work(4);
        wrong += data.check_all();
        std::free(data.model);
    }
    // Other memory at the same place; what was there is gone, and its neighbours are not.
    Data last(1000, memory.numbers(2));
    wrong += last.work(5);
    memory.unmap(0, 2);
    wrong += last.check_all();
    memory.map_new(0);
    memory.allow(0, 1);
    Data again(memory.count(1), memory.numbers(0));
    wrong += again.work(6);
    wrong += again.check_all();
    wrong += last.work(7);
    wrong += last.check_all();
    // What lies between them is not mapped any more.
    memory.unmap(0, 3);
    say("%u wrong\n", wrong);
}

// Memory at two addresses: a kernel writes by one, the program reads by the other. The CPU used it before, and after.
static void twice(int, char**) {
    const Mapped memory;
    const auto handle = memory.make();
    memory.map(0, handle);
    memory.allow(0, 1);
    Data data(1000, memory.numbers(0));
    unsigned wrong = data.work(1);
    memory.map(1, handle);
    memory.allow(0, 2);
    std::vector<unsigned> host(1000);
    CHECK(cudaMemcpy(host.data(), memory.numbers(1), 4000, cudaMemcpyDeviceToHost));
    wrong += !std::equal(host.begin(), host.end(), data.model);
    data.launch();
    CHECK(cudaMemcpy(host.data(), memory.numbers(1), 4000, cudaMemcpyDeviceToHost));
    wrong += !std::equal(host.begin(), host.end(), data.model);
    advance<><<<8, 128>>>(memory.numbers(1), 1000, 5);
    CHECK(cudaMemcpy(host.data(), memory.numbers(0), 4000, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 1000; ++i) {
        data.model[i] = data.model[i] * 1664525u + 5 + i;
        wrong += host[i] != data.model[i];
    }
    // Mapped anew, at one address, it is as it was before.
    memory.unmap(0, 2);
    memory.map(0, handle);
    memory.allow(0, 1);
    wrong += data.work(2);
    wrong += data.check_all();
    memory.unmap(0, 1);
    CHECK_CU(cuMemRelease(handle));
    say("%u wrong\n", wrong);
}

// What the CPU wrote is on the device when the device may only read it, and shared again when it may write.
static void access(int, char**) {
    const Mapped memory;
    memory.map_new(0);
    memory.allow(0, 1);
    Data data(3000, memory.numbers(0));
    unsigned wrong = data.work(1);
    memory.allow(0, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    std::vector<unsigned> host(3000);
    CHECK(cudaMemcpy(host.data(), data.gpu, 12000, cudaMemcpyDeviceToHost));
    wrong += !std::equal(host.begin(), host.end(), data.model);
    memory.allow(0, 1);
    wrong += data.work(2);
    wrong += data.check_all();
    memory.unmap(0, 1);
    say("%u wrong\n", wrong);
}

// The memory outlives its mapping: what the CPU wrote is there at the next address.
static void remapped(int, char**) {
    const Mapped memory;
    const auto first = memory.make(), second = memory.make();
    memory.map(0, first);
    memory.map(1, second);
    memory.allow(0, 2);
    Data one(3000, memory.numbers(0)), other(3000, memory.numbers(1));
    unsigned wrong = one.work(1) + other.work(2);
    store(memory.numbers(0) + 7, 42u);
    store(memory.numbers(1) + 7, 43u);
    memory.unmap(0, 2);
    memory.map(0, second);
    memory.map(1, first);
    memory.allow(0, 2);
    wrong += load(memory.numbers(1) + 7) != 42;
    wrong += load(memory.numbers(0) + 7) != 43;
    for (unsigned i = 8; i < 3000; ++i) wrong += load(memory.numbers(1) + i) != one.model[i];
    memory.unmap(0, 2);
    CHECK_CU(cuMemRelease(first));
    CHECK_CU(cuMemRelease(second));
    say("%u wrong\n", wrong);
}

// A call that fails takes no right away: another device is named that is not there.
static void access_refused(int, char**) {
    const Mapped memory;
    memory.map_new(0);
    memory.allow(0, 1);
    Data data(3000, memory.numbers(0));
    unsigned wrong = data.work(1);
    CUmemAccessDesc access[2] = {};
    access[0].location = access[1].location = memory.properties.location;
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access[1].location.id = 99;
    say("refused: %d\n", cuMemSetAccess(memory.place(0), memory.piece, access, 2) != CUDA_SUCCESS);
    wrong += data.work(2);
    wrong += data.check_all();
    memory.unmap(0, 1);
    say("%u wrong\n", wrong);
}

// Another handle of the memory, as another process has it.
static CUmemGenericAllocationHandle imported(CUmemGenericAllocationHandle handle) {
    constexpr auto kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int file = -1;
    CHECK_CU(cuMemExportToShareableHandle(&file, handle, kind, 0));
    CUmemGenericAllocationHandle other = 0;
    CHECK_CU(cuMemImportFromShareableHandle(&other, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), kind));
    close(file);
    return other;
}

// What the CPU wrote is on the device when other processes are given the memory.
static void exported(int, char**) {
    Mapped memory;
    memory.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto handle = memory.make();
    memory.map(0, handle);
    memory.allow(0, 1);
    Data data(3000, memory.numbers(0));
    unsigned wrong = data.work(1);
    const auto other = imported(handle);
    memory.map(1, other);
    memory.allow(1, 1);
    std::vector<unsigned> host(3000);
    CHECK(cudaMemcpy(host.data(), memory.numbers(1), 12000, cudaMemcpyDeviceToHost));
    wrong += !std::equal(host.begin(), host.end(), data.model);
    memory.unmap(0, 2);
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemRelease(other));
    say("%u wrong\n", wrong);
}

// Given to other processes while it is mapped twice, it is theirs, too, when it is mapped anew at one address.
static void exported_while_twice(int, char**) {
    Mapped memory;
    memory.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto handle = memory.make();
    memory.map(0, handle);
    memory.map(1, handle);
    memory.allow(0, 2);
    const auto other = imported(handle);
    memory.unmap(0, 2);
    memory.map(0, handle);
    memory.map(1, other);
    memory.allow(0, 2);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 3; ++round) {
        CHECK(cudaMemset(memory.numbers(1), static_cast<int>(round + 1), 4000));
        CHECK(cudaDeviceSynchronize());
        wrong += load(memory.numbers(0) + 7) != (round + 1) * 0x01010101u;
    }
    memory.unmap(0, 2);
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemRelease(other));
    say("%u wrong\n", wrong);
}

// It may be given back once for each time that a handle was had, and is other processes' until the last: what is mapped
// anew meanwhile, too.
static void retained(int, char**) {
    Mapped memory;
    memory.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto handle = memory.make();
    memory.map(0, handle);
    memory.allow(0, 1);
    CUmemGenericAllocationHandle again = 0;
    CHECK_CU(cuMemRetainAllocationHandle(&again, memory.numbers(0) + 7));
    const auto other = imported(again);
    CHECK_CU(cuMemRelease(again));
    memory.unmap(0, 1);
    memory.map(0, handle);
    memory.map(1, other);
    memory.allow(0, 2);
    unsigned wrong = 0;
    for (unsigned round = 1; round < 10; ++round) {
        if (round == 5) CHECK_CU(cuMemRelease(handle));
        CHECK(cudaMemcpy(memory.numbers(1) + 9, &round, sizeof round, cudaMemcpyHostToDevice));
        wrong += load(memory.numbers(0) + 9) != round;
    }
    // Had again, and given back, its number may be another memory's.
    CHECK_CU(cuMemRetainAllocationHandle(&again, memory.numbers(0)));
    CHECK_CU(cuMemRelease(again));
    memory.unmap(0, 2);
    CHECK_CU(cuMemRelease(other));
    say("same handle %d, %u wrong\n", again == handle, wrong);
}

// Memory that no network card will access is shared as before.
static void memops_off(int, char**) {
    Data data(5000);
    unsigned wrong = data.work(1), off = 0;
    CHECK_CU(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reinterpret_cast<CUdeviceptr>(data.gpu)));
    wrong += data.work(2);
    say("%u wrong\n", wrong + data.check_all());
}

// Small memory whose free the driver refuses keeps what the CPU wrote.
static void refused_free(int, char**) {
    unsigned *memory = Data::allocated(200), *beside = Data::allocated(200);
    CHECK(cudaMemset(memory, 1, 800));
    store(memory + 10, 55u);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    say("free %d\n", cudaFree(memory));
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    unsigned there = 0;
    CHECK(cudaMemcpy(&there, memory + 10, 4, cudaMemcpyDeviceToHost));
    say("%u, device %u\n", load(memory + 10), there);
    CHECK(cudaFree(memory));
    CHECK(cudaFree(beside));
}

// Most come and go without an access, at addresses that had memory of the same kind and size before, or of others.
static void freed_untouched(int, char**) {
    unsigned wrong = 0, random = 1;
    const auto choose = [&](unsigned of) { return (random = random * 1664525u + 1013904223u) >> 16 & (of - 1); };
    const auto get = [](unsigned n, bool in_order) { return in_order ? allocate(n * 4ul) : Data::allocated(n); };
    const auto give_back = [](unsigned* memory, bool in_order) {
        CHECK(in_order ? cudaFreeAsync(memory, nullptr) : cudaFree(memory));
    };
    for (unsigned round = 0; round < 300; ++round) {
        const unsigned sizes[] = {1000, 1024, 1u << 18, 1u << 19, (1u << 19) + 5, 3u << 18, 33, 4096};
        const unsigned n = sizes[choose(8)];
        const bool in_order = choose(2) != 0;
        for (unsigned k = choose(4); k != 0; --k) give_back(get(n, in_order), in_order);
        if (choose(4) != 0) continue;
        Data data(n, get(n, in_order));
        wrong += data.work(round);
        if (choose(2) != 0) give_back(get(n, in_order), in_order);
        data.launch();
        wrong += data.check_all();
        give_back(data.gpu, in_order);
        std::free(data.model);
        if (choose(8) == 0) CHECK(cudaDeviceReset());
    }
    say("%u wrong\n", wrong);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"sizes", sizes},
                                 {"freed_untouched", freed_untouched},
                                 {"freed_in_order", freed_in_order},
                                 {"pool", pool},
                                 {"chosen", chosen},
                                 {"captured", captured},
                                 {"threads", threads},
                                 {"mapped", mapped},
                                 {"twice", twice},
                                 {"access", access},
                                 {"remapped", remapped},
                                 {"access_refused", access_refused},
                                 {"exported", exported},
                                 {"exported_while_twice", exported_while_twice},
                                 {"retained", retained},
                                 {"refused_free", refused_free},
                                 {"memops_off", memops_off}};
    return run_case(cases, argc, argv);
}
