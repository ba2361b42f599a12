// SPDX-License-Identifier: MIT
// Two processes on one device: memory of one is opened by the other, small and large, at most once per process; an
// interprocess event of each tells the other that its kernel is done. Handles of nobody are refused.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

constexpr int small = 1000, large = 1 << 20;

__global__ void fill(int* p, int n, int factor) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = i * factor;
}
__global__ void add(int* p, int n, int what) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] += what;
}

struct Message {
    cudaIpcMemHandle_t memory[2], inner;  // of an address inside of the second
    cudaIpcEventHandle_t filled;
};

template <class T>
void send(int file, const T& value) {
    EXPECT(write(file, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
}
template <class T>
T receive(int file) {
    T value;
    EXPECT(read(file, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
    return value;
}

static int importer(int in, int out) {
    const auto message = receive<Message>(in);
    int *p[2], *again;
    for (int i = 0; i < 2; i++)
        CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&p[i]), message.memory[i], cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), message.memory[0], cudaIpcMemLazyEnablePeerAccess));
    EXPECT(again == p[0]);
    cudaEvent_t filled, added;
    CUDA(cudaIpcOpenEventHandle(&filled, message.filled));
    CUDA(cudaEventCreateWithFlags(&added, cudaEventInterprocess | cudaEventDisableTiming));
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamWaitEvent(stream, filled, 0));
    add<<<4, 64, 0, stream>>>(p[0], small, 5);
    add<<<4, 64, 0, stream>>>(p[1], large, 7);
    CUDA(cudaEventRecord(added, stream));
    cudaIpcEventHandle_t handle;
    CUDA(cudaIpcGetEventHandle(&handle, added));
    send(out, handle);
    EXPECT(cudaFree(p[0]) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
    cudaIpcMemHandle_t none;
    std::memset(&none, 1, sizeof none);
    EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), none, 1) != cudaSuccess);
    cudaGetLastError();
    FAILS(cudaErrorInvalidValue, cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), message.memory[0], 0));
    CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), message.inner, cudaIpcMemLazyEnablePeerAccess));
    EXPECT(again == p[1]);  // of the whole
    CUDA(cudaIpcCloseMemHandle(again));
    FAILS(cudaErrorInvalidResourceHandle, cudaIpcGetEventHandle(&handle, filled));  // another's
    cudaIpcEventHandle_t zeros = {};
    cudaEvent_t plain;
    FAILS(cudaErrorMapBufferObjectFailed, cudaIpcOpenEventHandle(&plain, zeros));
    CUDA(cudaEventCreate(&plain));
    FAILS(cudaErrorInvalidResourceHandle, cudaIpcGetEventHandle(&handle, plain));
    receive<char>(in);  // the other process has seen the event
    std::vector<int> got(small);
    CUDA(cudaMemcpy(got.data(), p[0], small * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < small; i++) EXPECT(got[i] == i * 3 + 5);
    CUDA(cudaIpcCloseMemHandle(p[0]));
    CUDA(cudaMemcpy(got.data(), p[0], sizeof(int), cudaMemcpyDeviceToHost));  // it was opened twice
    CUDA(cudaIpcCloseMemHandle(p[0]));
    CUDA(cudaIpcCloseMemHandle(p[1]));
    EXPECT(cudaIpcCloseMemHandle(p[1]) == cudaErrorInvalidValue);
    CUDA(cudaEventDestroy(filled));
    send(out, 'x');
    return 0;
}

int main() {
    int to[2], from[2];
    EXPECT(pipe(to) == 0 && pipe(from) == 0);
    const pid_t child = fork();  // before either has used CUDA
    if (child == 0) return importer(to[0], from[1]);
    int *before, *p[2];
    CUDA(cudaMalloc(&before, 100));  // so that the small one does not start a page
    CUDA(cudaMalloc(&p[0], small * sizeof(int)));
    CUDA(cudaMalloc(&p[1], large * sizeof(int)));
    cudaEvent_t filled, added;
    CUDA(cudaEventCreateWithFlags(&filled, cudaEventInterprocess | cudaEventDisableTiming));
    fill<<<4, 64>>>(p[0], small, 3);
    fill<<<4, 64>>>(p[1], large, 2);
    CUDA(cudaEventRecord(filled));
    Message message;
    for (int i = 0; i < 2; i++) CUDA(cudaIpcGetMemHandle(&message.memory[i], p[i]));
    CUDA(cudaIpcGetMemHandle(&message.inner, p[1] + 1024));
    CUDA(cudaIpcGetEventHandle(&message.filled, filled));
    void* own = nullptr;
    EXPECT(cudaIpcOpenMemHandle(&own, message.memory[0], cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    cudaGetLastError();
    send(to[1], message);
    CUDA(cudaIpcOpenEventHandle(&added, receive<cudaIpcEventHandle_t>(from[0])));
    CUDA(cudaEventSynchronize(added));
    CUDA(cudaEventQuery(added));
    std::vector<int> got(large);
    CUDA(cudaMemcpy(got.data(), p[1], large * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < large; i++) EXPECT(got[i] == i * 2 + 7);
    send(to[1], 'x');
    EXPECT(receive<char>(from[0]) == 'x');
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CUDA(cudaFree(p[0]));
    CUDA(cudaFree(p[1]));
    std::printf("ipc: ok\n");
}
