// SPDX-License-Identifier: MIT
// Four streams that hand an object around with events, and host code that runs in stream order: host functions and
// callbacks read and change the object between kernels.
#include "app.h"

__global__ void advance(unsigned* data, std::size_t n, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = data[i] * 1103515245u + key;
}

__global__ void gather(const unsigned* from, unsigned* sums, std::size_t n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (std::size_t k = i; k < n; k += static_cast<std::size_t>(gridDim.x) * blockDim.x) sum += from[k];
    sums[i] = sum;
}

struct Visit {
    Object<unsigned> data;
    unsigned turn;
    Checksum* checksum;
    unsigned calls;
};

// Runs on a thread of the driver, where no CUDA function may be called.
static void CUDART_CB look(void* argument) {
    Visit& visit = *static_cast<Visit*>(argument);
    ++visit.calls;
    for (std::size_t i = visit.turn; i < visit.data.count; i += 101) {
        visit.checksum->add(visit.data[i]);
        visit.data[i] += visit.turn;
    }
}

static void CUDART_CB look_with_status(cudaStream_t, cudaError_t status, void* argument) {
    if (status == cudaSuccess) look(argument);
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 6007);
    constexpr int stream_count = 4, turns = 8;
    constexpr unsigned sum_count = 128;
    Object<unsigned> data = allocate<unsigned>(n, HostMemory::Pinned);
    Object<unsigned> sums = allocate<unsigned>(sum_count, HostMemory::Pinned);
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned>(i * i);
    to_gpu(data);

    cudaStream_t streams[stream_count];
    cudaEvent_t done[turns], started, finished;
    for (int s = 0; s < stream_count; ++s) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], s % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    }
    CHECK(cudaEventCreate(&started));
    CHECK(cudaEventCreate(&finished));
    Checksum checksum;
    Visit visits[turns];
    CHECK(cudaEventRecord(started, streams[0]));
    for (int t = 0; t < turns; ++t) {
        cudaStream_t stream = streams[t % stream_count];
        CHECK(cudaEventCreateWithFlags(&done[t], cudaEventDisableTiming));
        if (t > 0) CHECK(cudaStreamWaitEvent(stream, done[t - 1], 0));
        visits[t] = Visit{data, static_cast<unsigned>(t), &checksum, 0};
        advance<<<blocks_for(n, 128), 128, 0, stream>>>(data.gpu, n, static_cast<unsigned>(t));
        CHECK(cudaGetLastError());
        to_cpu(data, stream);
        if (t % 2 == 0) {
            CHECK(cudaLaunchHostFunc(stream, look, &visits[t]));
        } else {
            CHECK(cudaStreamAddCallback(stream, look_with_status, &visits[t], 0));
        }
        to_gpu(data, stream);
        CHECK(cudaEventRecord(done[t], stream));
    }
    cudaStream_t last = streams[(turns - 1) % stream_count];
    gather<<<sum_count / 32, 32, 0, last>>>(data.gpu, sums.gpu, n);
    CHECK(cudaGetLastError());
    to_cpu(sums, last);
    CHECK(cudaEventRecord(finished, last));
    CHECK(cudaEventSynchronize(finished));
    checksum.add(sums.cpu, sum_count * sizeof(unsigned));
    to_cpu(data);
    checksum.add(data.cpu, n * sizeof(unsigned));

    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, started, finished));
    unsigned calls = 0;
    for (const Visit& v : visits) calls += v.calls;
    const bool idle = cudaStreamQuery(last) == cudaSuccess && cudaEventQuery(done[turns - 1]) == cudaSuccess;
    std::printf("streams_events n=%zu calls=%u timed=%d idle=%d\n", n, calls, milliseconds >= 0, idle);
    checksum.print();
    for (cudaEvent_t e : done) CHECK(cudaEventDestroy(e));
    for (cudaStream_t s : streams) CHECK(cudaStreamDestroy(s));
    CHECK(cudaEventDestroy(started));
    CHECK(cudaEventDestroy(finished));
    release(data);
    release(sums);
    return 0;
}
