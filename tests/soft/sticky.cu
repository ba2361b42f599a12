// SPDX-License-Identifier: MIT
// Errors that a kernel leaves behind: every later call answers the same, in every thread and stream, until the primary
// context is reset; what may still be asked; and the last error, which is each thread's own.
#include <pthread.h>

#include <cassert>

#include "driver.h"

__global__ void illegal(int* p) { *p = 1; }
__global__ void misaligned(char* p) { *reinterpret_cast<int*>(p + 1) = 1; }
__global__ void trap() { asm volatile("trap;"); }
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
    DRIVER_FUNCTION(cuDevicePrimaryCtxGetState, 7000)
};

static int* memory;
static cudaStream_t stream;
static cudaEvent_t event;

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
}

template <class Launch>
static void sticky(const Driver& d, cudaError_t error, Launch launch) {
    set_up();
    launch();
    EXPECT(cudaStreamSynchronize(stream) == error);
    EXPECT(cudaPeekAtLastError() == error && cudaGetLastError() == error && cudaGetLastError() == cudaSuccess);
    same_everywhere(d, error);
    Thread thread{&d, error};
    pthread_t other;
    EXPECT(pthread_create(&other, nullptr, thread_main, &thread) == 0 && pthread_join(other, nullptr) == 0);
    const int* const old = memory;
    const cudaStream_t old_stream = stream;
    CUDA(cudaDeviceReset());
    EXPECT(cudaGetLastError() == cudaSuccess);
    set_up();
    if (memory != old) EXPECT(cudaFree(const_cast<int*>(old)) == cudaErrorInvalidValue && cudaGetLastError() != cudaSuccess);
    if (stream != old_stream)
        EXPECT(cudaStreamSynchronize(old_stream) != cudaSuccess && cudaGetLastError() != cudaSuccess);
    put<<<1, 1, 0, stream>>>(memory, 42);
    int got = 0;
    CUDA(cudaMemcpy(&got, memory, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 42);
    CUDA(cudaDeviceReset());
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
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CUDA(cudaDeviceSynchronize());
    // Not ready is no error.
    EXPECT(cudaGetLastError() == cudaSuccess);
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    last_error();
    sticky(d, cudaErrorIllegalAddress, [] { illegal<<<1, 1, 0, stream>>>(nullptr); });
    sticky(d, cudaErrorIllegalAddress, [] { illegal<<<1, 1, 0, stream>>>(memory + (1 << 20)); });
    sticky(d, cudaErrorMisalignedAddress, [] { misaligned<<<1, 1, 0, stream>>>(reinterpret_cast<char*>(memory)); });
    sticky(d, cudaErrorLaunchFailure, [] { trap<<<1, 1, 0, stream>>>(); });
    sticky(d, cudaErrorAssert, [] { asserts<<<1, 1, 0, stream>>>(nullptr); });
    std::printf("sticky: ok\n");
}
