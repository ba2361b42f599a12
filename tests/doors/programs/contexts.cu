// SPDX-License-Identifier: MIT
// Contexts, devices, sizes, queries and errors. Linked with libcuda as well as with the CUDA runtime.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "program.h"

static void poke(void* pointer) {
    say("poking\n");
    *static_cast<volatile unsigned char*>(pointer) = 1;
    say("poked\n");
}
static CUcontext current() {
    CUcontext context = nullptr;
    if (cuCtxGetCurrent(&context) != CUDA_SUCCESS) say("no current context can be had\n");
    return context;
}

template <class Work>
static void in_thread(Work work) {
    pthread_join(start(work), nullptr);
}

static void no_current_context(int, char**) {
    Data data(5000);
    data.launch();
    in_thread([&] {
        unsigned wrong = 0;
        // The runtime would make a context current here; the CPU's accesses must not.
        if (plain) wrong = data.touch(3);
        say("current before: %d\n", plain && current() != nullptr);
        if (!plain) wrong = data.touch(3);
        say("%u wrong\n", wrong);
    });
    say("%u wrong\n", data.work(4));
}

// Arrays of driver contexts, used as Data is.
struct Piece {
    CUdeviceptr pointer = 0;
    unsigned model[4096];
    void make() {
        if (cuMemAlloc(&pointer, sizeof model) != CUDA_SUCCESS) say("cuMemAlloc failed\n");
        if (cuMemsetD32(pointer, 7, 4096) != CUDA_SUCCESS) say("cuMemsetD32 failed\n");
        for (unsigned& m : model) m = 7;
        if (cuCtxSynchronize() != CUDA_SUCCESS) say("cuCtxSynchronize failed\n");
    }
    unsigned get(unsigned i) const {
        unsigned value = 0;
        if (plain) {
            value = reinterpret_cast<volatile unsigned*>(pointer)[i];
        } else if (cuMemcpyDtoH(&value, pointer + i * sizeof value, sizeof value) != CUDA_SUCCESS) {
            say("cuMemcpyDtoH failed\n");
        }
        return value;
    }
    void set(unsigned i, unsigned value) {
        model[i] = value;
        if (plain) {
            reinterpret_cast<volatile unsigned*>(pointer)[i] = value;
        } else if (cuMemcpyHtoD(pointer + i * sizeof value, &value, sizeof value) != CUDA_SUCCESS) {
            say("cuMemcpyHtoD failed\n");
        }
    }
    unsigned touch(unsigned seed) {
        unsigned wrong = 0;
        for (unsigned i = seed % 100; i < 4096; i += 517) {
            wrong += get(i) != model[i];
            set(i, seed + i);
        }
        return wrong;
    }
    unsigned on_device() const {
        unsigned values[4096];
        if (cuMemcpyDtoH(values, pointer, sizeof values) != CUDA_SUCCESS) say("cuMemcpyDtoH failed\n");
        unsigned wrong = 0;
        for (unsigned i = 0; i < 4096; ++i) wrong += values[i] != model[i];
        return wrong;
    }
};
static Piece pieces[3];

static void several_contexts(int, char**) {
    CUdevice device;
    CUcontext contexts[3], popped;
    say("cuInit %d\n", cuInit(0));
    say("cuDeviceGet %d\n", cuDeviceGet(&device, 0));
    for (int i = 0; i < 3; ++i) {
        say("create %d\n", cuCtxCreate(&contexts[i], nullptr, 0, device));
        pieces[i].make();
    }
    for (int i = 0; i < 3; ++i)
        say("%u wrong, current is the last: %d\n", pieces[i].touch(5), current() == contexts[2]);
    say("pop %d, same %d\n", cuCtxPopCurrent(&popped), popped == contexts[2]);
    for (int i = 0; i < 3; ++i)
        say("%u wrong, current is the second: %d\n", pieces[i].touch(6), current() == contexts[1]);
    cuCtxPopCurrent(&popped);
    say("set none %d\n", cuCtxSetCurrent(nullptr));
    if (plain) {
        for (int i = 0; i < 3; ++i) say("%u wrong, none %d\n", pieces[i].touch(7), current() == nullptr);
    } else {
        cuCtxSetCurrent(contexts[0]);
        for (int i = 0; i < 3; ++i) say("%u wrong, none %d\n", pieces[i].touch(7), 1);
        cuCtxSetCurrent(nullptr);
    }
    say("destroy a dirty one %d\n", cuCtxDestroy(contexts[1]));
    say("none %d\n", current() == nullptr);
    cuCtxSetCurrent(contexts[0]);
    say("%u wrong, %u wrong\n", pieces[0].on_device(), pieces[0].touch(8));
    cuCtxSetCurrent(contexts[2]);
    say("%u wrong, %u wrong\n", pieces[2].on_device(), pieces[2].touch(9));
    say("free in another context's turn %d\n", cuMemFree(pieces[0].pointer));
    CUcontext fourth;
    say("create %d\n", cuCtxCreate(&fourth, nullptr, 0, device));
    pieces[1].make();
    say("%u wrong, %u wrong\n", pieces[1].touch(10), pieces[1].on_device());
    say("synchronize %d, destroy %d\n", cuCtxSynchronize(), cuCtxDestroy(fourth));
    say("%u wrong\n", pieces[2].touch(10));
    say("destroy %d %d\n", cuCtxDestroy(contexts[2]), cuCtxDestroy(contexts[0]));
}

// More in the life of the process than there ever are at once, and in each everything that libhpe keeps for one.
static void one_after_another(int, char**) {
    CUdevice device;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    unsigned wrong = 0;
    for (unsigned i = 0; i < 150; ++i) {
        CUcontext context;
        CHECK_CU(cuCtxCreate(&context, nullptr, 0, device));
        pieces[0].make();
        wrong += pieces[0].touch(i) + pieces[0].on_device();
        static unsigned value;
        value = i;
        if (plain) {
            CHECK_CU(cuLaunchHostFunc(
                nullptr, [](void* p) { reinterpret_cast<unsigned*>(p)[9] = value; },
                reinterpret_cast<void*>(pieces[0].pointer)));
            CHECK_CU(cuCtxSynchronize());
            pieces[0].model[9] = i;
        } else {
            pieces[0].set(9, i);
        }
        wrong += pieces[0].on_device();
        CHECK_CU(cuCtxDestroy(context));
    }
    say("%u wrong\n", wrong);
}

static void after_context_destroy(int, char**) {
    CUdevice device;
    CUcontext context;
    cuInit(0);
    cuDeviceGet(&device, 0);
    cuCtxCreate(&context, nullptr, 0, device);
    pieces[0].make();
    say("%u wrong\n", pieces[0].touch(1));
    say("destroy %d\n", cuCtxDestroy(context));
    poke(reinterpret_cast<void*>(pieces[0].pointer));
}

static void reset(int, char**) {
    for (unsigned round = 0; round < 4; ++round) {
        Data data(5000 + round * 3000), other(100);
        say("%u wrong, %u wrong\n", data.work(round), other.work(round));
        data.launch();
        if (round % 2 == 0) say("%u wrong\n", data.touch(9));
        say("reset %d\n", cudaDeviceReset());
    }
    Data last(9000);
    say("%u wrong, %u wrong\n", last.work(1), last.check_all());
}
static void after_reset(int, char**) {
    Data data(5000);
    say("%u wrong\n", data.work(1));
    say("reset %d\n", cudaDeviceReset());
    poke(data.gpu);
}
static void after_free(int, char**) {
    Data data(5000);
    say("%u wrong\n", data.work(1));
    say("free %d\n", cudaFree(data.gpu));
    poke(data.gpu + 100);
}
static void after_async_free(int, char**) {
    Data data(5000);
    say("%u wrong\n", data.work(1));
    say("free %d\n", cudaFreeAsync(data.gpu, nullptr));
    say("synchronize %d\n", cudaDeviceSynchronize());
    poke(data.gpu + 100);
}
static void behind_the_end(int, char**) {
    unsigned char* bytes = nullptr;
    CHECK(cudaMalloc(&bytes, 3 << 20));
    say("memset %d\n", cudaMemset(bytes, 1, 3 << 20));
    poke(bytes + (3 << 20) + (1 << 30));
}

static void wrong_frees(int, char**) {
    Data data(5000), other(5000);
    say("%u wrong\n", data.work(1));
    static int on_host;
    say("free of the middle %d %d\n", cudaFree(data.gpu + 16), cudaGetLastError());
    say("free of host memory %d %d\n", cudaFree(&on_host), cudaGetLastError());
    say("free of nothing %d %d\n", cudaFree(nullptr), cudaGetLastError());
    say("cuMemFree of nothing %d\n", cuMemFree(0));
    say("%u wrong\n", data.work(2));
    say("free %d, again %d, error %d\n", cudaFree(data.gpu), cudaFree(data.gpu), cudaGetLastError());
    unsigned value = 0;
    say("copy from freed %d\n", cudaMemcpy(&value, data.gpu, 4, cudaMemcpyDeviceToHost));
    cudaGetLastError();
    say("memset of freed %d\n", cudaMemset(data.gpu, 0, 4));
    cudaGetLastError();
    say("%u wrong\n", other.work(2));
    void* nothing = &on_host;
    say("malloc of nothing %d, null %d\n", cudaMalloc(&nothing, 0), nothing == nullptr);
    say("cuMemAlloc of nothing %d\n", cuMemAlloc(&pieces[0].pointer, 0));
    say("cuMemAlloc to nowhere %d\n", cuMemAlloc(nullptr, 100));
    say("malloc of too much %d\n", cudaMalloc(&nothing, std::size_t{1} << 60));
    say("malloc of everything %d\n", cudaMalloc(&nothing, ~std::size_t{0}));
    say("last error %d, then %d\n", cudaGetLastError(), cudaGetLastError());
    say("%u wrong\n", other.check_all());
}

static void quiet(int, char**) {
    Data data(50000);
    void* nothing = nullptr;
    say("malloc of too much %d\n", cudaMalloc(&nothing, std::size_t{1} << 60));
    if (plain) {
        data.launch_quietly();
        errno = 55;
        const unsigned wrong = data.touch(5);
        say("errno %d, %u wrong\n", errno, wrong);
    } else {
        data.launch_quietly();
        const unsigned wrong = data.touch(5);
        say("errno 55, %u wrong\n", wrong);
    }
    say("the error is still %d\n", cudaGetLastError());
    say("and then %d, %u wrong\n", cudaGetLastError(), data.work(6));
    say("and then %d\n", cudaPeekAtLastError());
}

// What the driver stores while it holds a lock, in memory that a kernel has just written.
static void answers_in_objects(int, char**) {
    struct Answers {
        std::size_t limit;
        int blocks, blocks_with_flags;
    } on_host{}, *there = nullptr;
    CHECK(cudaMalloc(&there, sizeof *there));
    auto* const answers = plain ? there : &on_host;
    const auto before = [&] { CHECK(cudaMemset(there, 0, sizeof *there)); };
    before();
    CHECK(cudaDeviceGetLimit(&answers->limit, cudaLimitStackSize));
    say("limit %zu\n", answers->limit);
    before();
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&answers->blocks, advance<>, 128, 0));
    say("blocks %d\n", answers->blocks);
    before();
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&answers->blocks_with_flags, advance<>, 128, 0, 0));
    say("blocks %d\n", answers->blocks_with_flags);
    CHECK(cudaFree(there));
}

static void queries(int, char**) {
    for (const std::size_t size :
         {1ul, 2ul, 511ul, 512ul, 4095ul, 4096ul, 4097ul, 70001ul, 1ul << 20, (3ul << 20) + 5}) {
        unsigned char* bytes = nullptr;
        CHECK(cudaMalloc(&bytes, size));
        CHECK(cudaMemset(bytes, 9, size));
        for (int round = 0; round < 2; ++round) {
            for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
                cudaPointerAttributes a;
                say("size %zu at %zu: %d", size, at, cudaPointerGetAttributes(&a, bytes + at));
                say(" type %d device %d pointer %d host %d\n", a.type, a.device, a.devicePointer == bytes + at,
                    a.hostPointer == nullptr);
                CUdeviceptr base = 0;
                std::size_t range = 0;
                const auto pointer = reinterpret_cast<CUdeviceptr>(bytes + at);
                say("  range %d", cuMemGetAddressRange(&base, &range, pointer));
                say(" base %d size %zu\n", base == reinterpret_cast<CUdeviceptr>(bytes), range);
                for (const CUpointer_attribute attribute :
                     {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED,
                      CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                      CU_POINTER_ATTRIBUTE_ACCESS_FLAGS}) {
                    unsigned long long value = 0;
                    const int result = cuPointerGetAttribute(&value, attribute, pointer);
                    say("  %d: %d %llu\n", attribute, result, value);
                }
                unsigned long long start = 0, size_again = 0;
                CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
                void* values[] = {&start, &size_again};
                say("  several %d", cuPointerGetAttributes(2, wanted, values, pointer));
                say(" start %d size %llu\n", start == reinterpret_cast<CUdeviceptr>(bytes), size_again);
            }
            if (plain) {
                if (static_cast<volatile unsigned char*>(bytes)[size - 1] != 9) say("wrong\n");
                static_cast<volatile unsigned char*>(bytes)[0] = 9;
            }
        }
        say("free %d\n", cudaFree(bytes));
        cudaPointerAttributes a;
        say("after free %d", cudaPointerGetAttributes(&a, bytes));
        say(" type %d\n", a.type);
    }
}

static unsigned char byte_at(unsigned char* bytes, std::size_t i) {
    if (plain) return static_cast<volatile unsigned char*>(bytes)[i];
    unsigned char value = 0;
    CHECK(cudaMemcpy(&value, bytes + i, 1, cudaMemcpyDeviceToHost));
    return value;
}
static void put_byte(unsigned char* bytes, std::size_t i, unsigned char value) {
    if (plain) {
        static_cast<volatile unsigned char*>(bytes)[i] = value;
    } else {
        CHECK(cudaMemcpy(bytes + i, &value, 1, cudaMemcpyHostToDevice));
    }
}
static void try_size(std::size_t size) {
    unsigned char* bytes = nullptr;
    const int result = cudaMalloc(&bytes, size);
    say("size %zu: %d\n", size, result);
    if (result != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    const std::size_t places[] = {0, size / 3, size / 2, size - 1};
    for (const std::size_t at : places) {
        CHECK(cudaMemset(bytes + at, 77, 1));
        say(" %d", byte_at(bytes, at));
        put_byte(bytes, at, 78);
        CHECK(cudaDeviceSynchronize());
        unsigned char value = 0;
        CHECK(cudaMemcpy(&value, bytes + at, 1, cudaMemcpyDeviceToHost));
        say(" %d %d", value, byte_at(bytes, at));
    }
    say("\nfree %d\n", cudaFree(bytes));
}
static void sizes(int, char**) {
    for (const std::size_t size :
         {1ul, 3ul, 255ul, 4095ul, 4096ul, 4097ul, 65537ul, 262143ul, (1ul << 21) + 1, 33333333ul}) {
        try_size(size);
    }
}
static void huge_size(int, char**) { try_size((std::size_t{5} << 30) + 12345); }

static void several_devices(int, char**) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    say("%d devices\n", count);
    Data* data[8];
    for (int d = 0; d < count; ++d) {
        CHECK(cudaSetDevice(d));
        data[d] = new Data(6000 + 100 * static_cast<unsigned>(d));
        data[d]->launch();
        // A copy that another device makes waits for nothing here.
        if (!plain) CHECK(cudaDeviceSynchronize());
    }
    for (int d = 0; d < count; ++d) {
        CHECK(cudaSetDevice(count - 1 - d));
        const unsigned wrong = data[d]->touch(static_cast<unsigned>(d));
        int now = -1;
        CHECK(cudaGetDevice(&now));
        say("%u wrong, device %d\n", wrong, now);
    }
    for (int d = 0; d + 1 < count; ++d) {
        say("peer copy %d\n", cudaMemcpyPeer(data[d]->gpu, d, data[d + 1]->gpu, d + 1, 5000 * sizeof(unsigned)));
        for (unsigned i = 0; i < 5000; ++i) data[d]->model[i] = data[d + 1]->model[i];
        say("%u wrong, %u wrong\n", data[d]->touch(3), data[d + 1]->touch(3));
    }
    in_thread([&] {
        for (int d = 0; d < count; ++d) say("thread: %u wrong\n", data[d]->touch(11));
        int now = -1;
        CHECK(cudaGetDevice(&now));
        say("thread: device %d\n", now);
    });
    for (int d = 0; d < count; ++d) {
        CHECK(cudaSetDevice(d));
        say("%u wrong\n", data[d]->work(9));
    }
    CHECK(cudaSetDevice(count - 1));
    say("reset %d\n", cudaDeviceReset());
    for (int d = 0; d < count - 1; ++d) {
        CHECK(cudaSetDevice(d));
        say("%u wrong, %u wrong\n", data[d]->work(9), data[d]->check_all());
    }
}

// A library that takes a reference around each piece of its work: the context stays, and nothing is brought anywhere.
static void retained_around_work(int, char**) {
    constexpr unsigned kCount = 1 << 18, kPieces = 1000;
    unsigned* gpu = nullptr;
    CHECK(cudaMalloc(&gpu, kCount * sizeof(unsigned)));
    CHECK(cudaMemset(gpu, 0, kCount * sizeof(unsigned)));
    std::vector<unsigned> copy(kCount);
    unsigned* const at = plain ? gpu : copy.data();
    CUdevice device = 0;
    CHECK_CU(cuDeviceGet(&device, 0));
    for (unsigned i = 0; i < kPieces; ++i) {
        CUcontext context = nullptr;
        CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
        at[i] += i;
        CHECK_CU(cuDevicePrimaryCtxRelease(device));
        at[i] += 1;
    }
    unsigned sum = 0;
    for (unsigned i = 0; i < kCount; ++i) sum += at[i];
    say("%u\n", sum);
}

// Takes a reference that libhpe does not see: to it the next release may be of the last one.
static CUresult retain_unseen(const char* hooks, CUcontext* context, CUdevice device) {
    static const auto retain = [&] {
        void* const library = dlopen(hooks, RTLD_NOW | RTLD_LOCAL);
        auto* const find = reinterpret_cast<void* (*)(void*, const char*)>(dlsym(library, "hooks_find"));
        return reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
            find(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxRetain"));
    }();
    return retain(context, device);
}

// Another thread retains and releases the context, which stays: the objects do, too, at every moment.
static void retained_elsewhere(int, char** arguments) {
    constexpr unsigned kObjects = 500, kReleases = 1500;
    std::vector<std::unique_ptr<Data>> data;
    for (unsigned i = 0; i < kObjects; ++i) data.push_back(std::make_unique<Data>(100));
    CUdevice device = 0;
    CHECK_CU(cuDeviceGet(&device, 0));
    std::atomic<unsigned> releases{0};
    auto releasing = [&] {
        CUcontext context = nullptr;
        for (; releases < kReleases; ++releases) {
            CHECK_CU(retain_unseen(arguments[0], &context, device));
            CHECK_CU(cuDevicePrimaryCtxRelease(device));
            usleep(100);
        }
    };
    const auto thread = start(releasing);
    unsigned wrong = 0;
    for (unsigned i = 0; releases < kReleases; i = (i + 37) % kObjects) {
        wrong += data[i]->touch(i);
        usleep(10 + i % 50);  // at any moment of a release
    }
    pthread_join(thread, nullptr);
    for (const auto& d : data) wrong += d->check_all();
    say("%u wrong\n", wrong);
}

// The same while a host function uses an array: it may not wait until a release is over.
static void released_beside_calls(int, char** arguments) {
    constexpr unsigned kCount = 1 << 20;
    struct Words {
        unsigned *at, round, wrong;
        void touch() {
            for (unsigned i = 0; i < kCount; i += 1024) {
                wrong += at[i] != round;
                at[i] = round + 1;
            }
            ++round;
        }
    } words{};
    unsigned* gpu = nullptr;
    CHECK(cudaMalloc(&gpu, kCount * sizeof(unsigned)));
    CHECK(cudaMemset(gpu, 0, kCount * sizeof(unsigned)));
    std::vector<unsigned> copy(kCount);
    words.at = plain ? gpu : copy.data();
    CUdevice device = 0;
    CHECK_CU(cuDeviceGet(&device, 0));
    std::atomic<bool> done{false};
    auto releasing = [&] {
        CUcontext context = nullptr;
        while (!done) {
            CHECK_CU(retain_unseen(arguments[0], &context, device));
            CHECK_CU(cuDevicePrimaryCtxRelease(device));
            usleep(100);
        }
    };
    const auto thread = start(releasing);
    for (int round = 0; round < 50; ++round) {
        if (!plain) CHECK(cudaMemcpy(copy.data(), gpu, copy.size() * sizeof(unsigned), cudaMemcpyDefault));
        CHECK(cudaLaunchHostFunc(
            nullptr, [](void* argument) { static_cast<Words*>(argument)->touch(); }, &words));
        CHECK(cudaDeviceSynchronize());
        if (!plain) CHECK(cudaMemcpy(gpu, copy.data(), copy.size() * sizeof(unsigned), cudaMemcpyDefault));
    }
    done = true;
    pthread_join(thread, nullptr);
    say("%u wrong\n", words.wrong);
}

// A kernel that runs already is told of new memory, and fills it.
struct Told {
    volatile int state;
    unsigned* volatile memory;
};
static __global__ void fill_when_told(Told* told) {
    while (told->state == 0) {
    }
    for (unsigned i = 0; i < 1000; ++i) told->memory[i] = i * 3;
    __threadfence_system();
}
static void told_of_new_memory(int, char**) {
    Told* told = nullptr;
    CHECK(cudaHostAlloc(&told, sizeof *told, cudaHostAllocMapped));
    told->state = 0;
    fill_when_told<<<1, 1>>>(told);
    CHECK(cudaGetLastError());
    unsigned* memory = nullptr;
    CHECK(cudaMalloc(&memory, 4000));
    told->memory = memory;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    told->state = 1;
    CHECK(cudaDeviceSynchronize());
    unsigned host[1000];
    unsigned* seen = memory;
    if (!plain) {
        CHECK(cudaMemcpy(host, memory, sizeof host, cudaMemcpyDeviceToHost));
        seen = host;
    }
    seen[5] = 0;
    unsigned wrong = 0;
    for (unsigned i = 0; i < 1000; ++i) wrong += seen[i] != (i == 5 ? 0 : i * 3);
    say("%u wrong\n", wrong);
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"no_current_context", no_current_context},
        {"several_contexts", several_contexts},
        {"one_after_another", one_after_another},
        {"after_context_destroy", after_context_destroy},
        {"reset", reset},
        {"after_reset", after_reset},
        {"after_free", after_free},
        {"after_async_free", after_async_free},
        {"behind_the_end", behind_the_end},
        {"wrong_frees", wrong_frees},
        {"quiet", quiet},
        {"queries", queries},
        {"answers_in_objects", answers_in_objects},
        {"sizes", sizes},
        {"huge_size", huge_size},
        {"several_devices", several_devices},
        {"retained_around_work", retained_around_work},
        {"retained_elsewhere", retained_elsewhere},
        {"released_beside_calls", released_beside_calls},
        {"told_of_new_memory", told_of_new_memory},
    };
    return run_case(cases, argc, argv);
}
