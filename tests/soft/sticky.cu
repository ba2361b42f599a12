// SPDX-License-Identifier: MIT
// Errors that a kernel leaves behind: every later call answers the same, in every thread and stream, and after a reset the
// process can use the device no more; what may still be asked; and the last error, which is each thread's own.
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cassert>

#include "driver.h"

__global__ void illegal(int* p) { *p = 1; }
__global__ void misaligned(char* p) { *reinterpret_cast<int*>(p + 1) = 1; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void breakpoint() { asm volatile("brkpt;"); }
__global__ void asserts(const int* p) { assert(p != nullptr); }
__global__ void put(int* p, int value) { *p = value; }

struct Driver {
    DRIVER_FUNCTION(cuCtxGetCurrent, 4000)
    DRIVER_FUNCTION(cuCtxSynchronize, 2000)
    DRIVER_FUNCTION(cuCtxGetLimit, 3010)
    DRIVER_FUNCTION(cuMemAlloc, 3020)
    DRIVER_FUNCTION(cuMemFree, 3020)
    DRIVER_FUNCTION(cuMemsetD8, 3020)
    DRIVER_FUNCTION(cuStreamCreate, 2000)
    DRIVER_FUNCTION(cuEventCreate, 2000)
    DRIVER_FUNCTION(cuDevicePrimaryCtxGetState, 7000)
};

static int* memory;
static cudaStream_t stream;
static cudaEvent_t event;
static cudaGraph_t graph;
static cudaGraphConditionalHandle condition;

static void same_everywhere(const Driver& d, cudaError_t error) {
    int value = 0, host = 0;
    void* p = nullptr;
    cudaStream_t s;
    cudaEvent_t e;
#define SAME(call) EXPECT((call) == error && cudaPeekAtLastError() == error && cudaGetLastError() == error)
    SAME(cudaDeviceSynchronize());
    SAME(cudaMalloc(&p, 100));
    SAME(cudaMallocAsync(&p, 100, stream));
    SAME(cudaMallocHost(&p, 100));
    SAME(cudaMallocManaged(&p, 100));
    SAME(cudaMemcpy(&host, memory, 4, cudaMemcpyDeviceToHost));
    SAME(cudaMemcpyAsync(memory, &host, 4, cudaMemcpyHostToDevice, stream));
    SAME(cudaMemset(memory, 0, 4));
    SAME(cudaMemsetAsync(memory, 0, 4, stream));
    SAME(cudaFree(memory));
    SAME(cudaStreamCreate(&s));
    SAME(cudaStreamSynchronize(stream));
    SAME(cudaStreamQuery(stream));
    SAME(cudaStreamSynchronize(nullptr));
    SAME(cudaEventCreate(&e));
    SAME(cudaEventRecord(event, stream));
    SAME(cudaEventSynchronize(event));
    SAME(cudaEventQuery(event));
    SAME(cudaLaunchHostFunc(stream, [](void*) {}, nullptr));
    cudaGraphNodeParams conditional = {};
    conditional.type = cudaGraphNodeTypeConditional;
    conditional.conditional.handle = condition;
    conditional.conditional.type = cudaGraphCondTypeIf;
    conditional.conditional.size = 1;
    cudaGraphNode_t node;
    SAME(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &conditional));
    put<<<1, 1, 0, stream>>>(memory, 1);
    EXPECT(cudaGetLastError() == error);
    const auto code = static_cast<CUresult>(error);
    CUdeviceptr q;
    CUstream t;
    std::size_t limit;
    ANSWERS(code, d.cuCtxSynchronize());
    ANSWERS(code, d.cuMemAlloc(&q, 100));
    ANSWERS(code, d.cuMemFree(reinterpret_cast<CUdeviceptr>(memory)));
    ANSWERS(code, d.cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 0, 4));
    ANSWERS(code, d.cuStreamCreate(&t, 0));
    ANSWERS(code, d.cuEventCreate(nullptr, 0));  // before it looks at what it was given
    ANSWERS(code, d.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    EXPECT(cudaGetLastError() == cudaSuccess);
    // What is not the context's is still told.
    CUDA(cudaGetDevice(&value));
    CUDA(cudaGetDeviceCount(&value));
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    EXPECT(value == 32);
    CUDA(cudaDriverGetVersion(&value));
    unsigned flags;
    int active = 0;
    DRIVER(d.cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 1);
    CUcontext context;
    DRIVER(d.cuCtxGetCurrent(&context));
    EXPECT(context != nullptr);
}

struct Thread {
    const Driver* d;
    cudaError_t error;
};
static void* thread_main(void* p) {
    const auto* thread = static_cast<const Thread*>(p);
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    same_everywhere(*thread->d, thread->error);
    return nullptr;
}

static void set_up() {
    CUDA(cudaMalloc(&memory, 64));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaEventCreate(&event));
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphConditionalHandleCreate(&condition, graph, 0, 0));
}

// "The process must be terminated and relaunched."
static void unavailable(const Driver& d) {
    CUDA(cudaDeviceReset());
    EXPECT(cudaGetLastError() == cudaSuccess);
#define GONE(call) EXPECT((call) == cudaErrorDevicesUnavailable && cudaGetLastError() == cudaErrorDevicesUnavailable)
    int value = 0;
    void* p = nullptr;
    cudaStream_t s;
    cudaEvent_t e;
    GONE(cudaMalloc(&p, 100));
    GONE(cudaMallocHost(&p, 100));
    GONE(cudaMallocManaged(&p, 100));
    GONE(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
    GONE(cudaMemset(memory, 0, 4));
    GONE(cudaFree(memory));
    GONE(cudaStreamCreate(&s));
    GONE(cudaEventCreate(&e));
    GONE(cudaStreamSynchronize(nullptr));
    GONE(cudaDeviceSynchronize());
    put<<<1, 1>>>(memory, 1);
    EXPECT(cudaGetLastError() == cudaErrorDevicesUnavailable);
    CUDA(cudaGetDevice(&value));
    CUDA(cudaGetDeviceCount(&value));
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    EXPECT(value == 32);
    unsigned flags;
    int active = 1;
    DRIVER(d.cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 0);
    CUDA(cudaDeviceReset());
    GONE(cudaMalloc(&p, 100));
}

template <class Launch>
static void sticky(cudaError_t error, Launch launch) {
    CUDA(cudaFree(nullptr));
    const Driver d;
    set_up();
    launch();
    EXPECT(cudaStreamSynchronize(stream) == error);
    EXPECT(cudaPeekAtLastError() == error && cudaGetLastError() == error && cudaGetLastError() == cudaSuccess);
    same_everywhere(d, error);
    Thread thread{&d, error};
    pthread_t other;
    EXPECT(pthread_create(&other, nullptr, thread_main, &thread) == 0 && pthread_join(other, nullptr) == 0);
    unavailable(d);
}

// Without an error before it, a reset is a new beginning.
static void reset() {
    set_up();
    put<<<1, 1, 0, stream>>>(memory, 41);
    CUDA(cudaDeviceReset());
    EXPECT(cudaGetLastError() == cudaSuccess);
    set_up();
    put<<<1, 1, 0, stream>>>(memory, 42);
    int got = 0;
    CUDA(cudaMemcpy(&got, memory, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 42);
}

// Errors of a call stay with the thread that made it, and end with the question.
static void* other_thread(void*) {
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    EXPECT(cudaSetDevice(1000) == cudaErrorInvalidDevice);
    return nullptr;
}
static void last_error() {
    EXPECT(cudaFree(reinterpret_cast<void*>(16)) == cudaErrorInvalidValue);
    int value;
    CUDA(cudaGetDevice(&value));  // a call that succeeds does not clear it
    pthread_t other;
    EXPECT(pthread_create(&other, nullptr, other_thread, nullptr) == 0 && pthread_join(other, nullptr) == 0);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue && cudaPeekAtLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    // An error of the launch itself is not sticky.
    put<<<1, 2048>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaDeviceSynchronize());
    // Not ready is no error: it is not remembered, and does not hide one that is.
    cudaStream_t busy;
    cudaEvent_t done;
    CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&done));
    static std::atomic<bool> go{false};
    CUDA(cudaLaunchHostFunc(busy, [](void*) { while (!go.load()) sched_yield(); }, nullptr));
    CUDA(cudaEventRecord(done, busy));
    EXPECT(cudaStreamQuery(busy) == cudaErrorNotReady && cudaPeekAtLastError() == cudaSuccess);
    EXPECT(cudaEventQuery(done) == cudaErrorNotReady && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaFree(reinterpret_cast<void*>(16)) == cudaErrorInvalidValue);
    EXPECT(cudaStreamQuery(busy) == cudaErrorNotReady && cudaGetLastError() == cudaErrorInvalidValue);
    go = true;
    CUDA(cudaStreamSynchronize(busy));
    CUDA(cudaEventDestroy(done));
    CUDA(cudaStreamDestroy(busy));
    EXPECT(cudaGetLastError() == cudaSuccess);
}

int main() {
    alone(last_error);
    alone(reset);
    alone([] { sticky(cudaErrorIllegalAddress, [] { illegal<<<1, 1, 0, stream>>>(nullptr); }); });
    alone([] { sticky(cudaErrorIllegalAddress, [] { illegal<<<1, 1, 0, stream>>>(memory + (1ull << 34)); }); });
    alone([] {
        sticky(cudaErrorMisalignedAddress, [] { misaligned<<<1, 1, 0, stream>>>(reinterpret_cast<char*>(memory)); });
    });
    alone([] { sticky(cudaErrorLaunchFailure, [] { trap<<<1, 1, 0, stream>>>(); }); });
    alone([] { sticky(cudaErrorLaunchFailure, [] { breakpoint<<<1, 1, 0, stream>>>(); }); });  // and no debugger
    alone([] { sticky(cudaErrorAssert, [] { asserts<<<1, 1, 0, stream>>>(nullptr); }); });
    std::printf("sticky: ok\n");
}
