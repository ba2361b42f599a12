// SPDX-License-Identifier: MIT
// The soft driver's streams, events and devices from many threads at once, linked as an ordinary library, so that a
// sanitizer sees both sides. The numbers are checked, too: every kernel and copy is ordered by streams or events.
// Run with two devices or more and peer access.
#include <cuda.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kThreads = 6, kRounds = 12, kCount = 2000;

void check(CUresult result, const char* what, int line) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "line %d: %s: error %d\n", line, what, result);
    std::exit(1);
}
#define CHECK(call) check((call), #call, __LINE__)

// data[i] = data[i] * factor + i
const char* const kPtx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 n, .param .u32 factor)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r6, [%rd4];
    ld.param.u32 %r7, [factor];
    mad.lo.s32 %r6, %r6, %r7, %r4;
    st.global.u32 [%rd4], %r6;
done:
    ret;
}
)";

struct Device {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUfunction scale = nullptr;
};
std::vector<Device> devices;

// What a thread made of its array in a round, handed to the next thread with an event in front of it.
struct Handed {
    CUdeviceptr data = 0;
    CUcontext context = nullptr;
    CUevent ready = nullptr;
    unsigned key = 0;
};
Handed handed[kThreads];
std::barrier<> everybody(kThreads);
std::atomic<unsigned> wrong{0}, called{0};

unsigned expected(unsigned i, unsigned key) { return (i ^ key) * (key + 3) + i; }

void work(unsigned number) {
    const Device& mine = devices[number % devices.size()];
    CHECK(cuCtxSetCurrent(mine.context));
    CUstream first = nullptr, second = nullptr;
    CUevent copied = nullptr;
    Handed& own = handed[number];
    own.context = mine.context;
    CUdeviceptr received = 0;
    const std::size_t bytes = kCount * sizeof(unsigned);
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&own.ready, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&own.data, bytes));
    CHECK(cuMemAlloc(&received, bytes));
    std::vector<unsigned> host(kCount);
    for (unsigned round = 0; round < kRounds; ++round) {
        own.key = number * 100 + round;
        for (unsigned i = 0; i < kCount; ++i) host[i] = i ^ own.key;
        CHECK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
        CHECK(cuMemcpyHtoDAsync(own.data, host.data(), bytes, first));
        CHECK(cuEventRecord(copied, first));
        CHECK(cuStreamWaitEvent(second, copied, 0));
        unsigned count = kCount, factor = own.key + 3;
        void* arguments[] = {&own.data, &count, &factor};
        CHECK(cuLaunchKernel(mine.scale, (kCount + 63) / 64, 1, 1, 64, 1, 1, 0, second, arguments, nullptr));
        CHECK(cuLaunchHostFunc(
            second, [](void* counter) { ++*static_cast<std::atomic<unsigned>*>(counter); }, &called));
        CHECK(cuEventRecord(own.ready, second));
        everybody.arrive_and_wait();

        // The neighbour's array, which may be another device's and another thread's unfinished work.
        const Handed& other = handed[(number + 1) % kThreads];
        CHECK(cuStreamWaitEvent(first, other.ready, 0));
        CHECK(cuMemcpyPeerAsync(received, mine.context, other.data, other.context, bytes, first));
        CHECK(cuMemcpyDtoHAsync(host.data(), received, bytes, first));
        CHECK(cuEventRecord(copied, first));
        CHECK(cuMemsetD8Async(received, 0, bytes, first));
        CUresult state = CUDA_ERROR_NOT_READY;
        while ((state = cuEventQuery(copied)) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
        CHECK(state);
        for (unsigned i = 0; i < kCount; ++i) wrong += host[i] != expected(i, other.key);
        CHECK(cuStreamDestroy(second));
        CHECK(cuStreamSynchronize(first));
        everybody.arrive_and_wait();
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(received));
    CHECK(cuMemFree(own.data));
    CHECK(cuEventDestroy(own.ready));
    CHECK(cuEventDestroy(copied));
    CHECK(cuStreamDestroy(first));
}

}  // namespace

int main() {
    CHECK(cuInit(0));
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    devices.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
        auto& device = devices[static_cast<std::size_t>(i)];
        CUmodule module = nullptr;
        CHECK(cuDeviceGet(&device.device, i));
        CHECK(cuDevicePrimaryCtxRetain(&device.context, device.device));
        CHECK(cuCtxSetCurrent(device.context));
        CHECK(cuModuleLoadData(&module, kPtx));
        CHECK(cuModuleGetFunction(&device.scale, module, "scale"));
    }
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < kThreads; ++number) threads.emplace_back(work, number);
    for (auto& thread : threads) thread.join();
    for (const auto& device : devices) CHECK(cuDevicePrimaryCtxRelease(device.device));
    std::printf("%d devices, %u wrong, %u host functions\n", count, wrong.load(), called.load());
    return count < 2 || wrong != 0 || called != kThreads * kRounds;
}
