// SPDX-License-Identifier: MIT
// Kernels without arguments: they find their objects through __device__ and __constant__ variables that hold pointers.
// No launch says which objects it reads and writes.
#include "app.h"

struct Task {
    const unsigned* from;
    unsigned* to;
    unsigned key;
};

constexpr int task_count = 3;
__device__ Task tasks[task_count];
__constant__ std::size_t elements;
__constant__ unsigned keys[task_count] = {3, 5, 7};
__device__ unsigned launches = 100;
__device__ unsigned* first_target;
__device__ unsigned** indirect = &first_target;  // the address of a variable, filled in when the program is loaded

__global__ void run_tasks() {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i == 0) ++launches;
    if (i >= elements) return;
    for (int t = 0; t < task_count; ++t) {
        tasks[t].to[i] = tasks[t].from[i] * keys[t] + tasks[t].key;
    }
}

__global__ void mark() {
    const unsigned i = threadIdx.x;
    (*indirect)[i] ^= 0xffu;
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 7001);
    Object<unsigned> in = allocate<unsigned>(n), out[task_count];
    Task described[task_count];
    for (int t = 0; t < task_count; ++t) {
        out[t] = allocate<unsigned>(n);
        described[t] = Task{in.gpu, out[t].gpu, static_cast<unsigned>(t)};
    }
    CHECK(cudaMemcpyToSymbol(tasks, described, sizeof described));
    CHECK(cudaMemcpyToSymbol(elements, &n, sizeof n));
    CHECK(cudaMemcpyToSymbol(first_target, &out[1].gpu, sizeof(unsigned*)));
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned>(i * 3);

    Checksum checksum;
    for (unsigned round = 0; round < 4; ++round) {
        to_gpu(in);
        run_tasks<<<blocks_for(n, 128), 128>>>();
        mark<<<1, 64>>>();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        for (const Object<unsigned>& o : out) {
            to_cpu(o);
            checksum.add(o.cpu, n * sizeof(unsigned));
        }
        for (std::size_t i = round; i < n; i += 11) in[i] ^= out[round % task_count][i];

        // The next round works the other way round, for one task.
        const unsigned key = round * 1000;
        CHECK(cudaMemcpyToSymbol(tasks, &key, sizeof key, sizeof(Task) + offsetof(Task, key)));
        const unsigned new_keys[task_count] = {round, 2 * round + 1, 9};
        CHECK(cudaMemcpyToSymbol(keys, new_keys, sizeof new_keys));
    }

    unsigned count = 0;
    CHECK(cudaMemcpyFromSymbol(&count, launches, sizeof count));
    void* address = nullptr;
    std::size_t size = 0;
    CHECK(cudaGetSymbolAddress(&address, tasks));
    CHECK(cudaGetSymbolSize(&size, tasks));
    Task read_back[task_count];
    CHECK(cudaMemcpy(read_back, address, size, cudaMemcpyDeviceToHost));
    const bool kept = read_back[2].to == out[2].gpu && read_back[1].key == 3000;
    std::printf("linked_globals n=%zu launches=%u size=%zu kept=%d\n", n, count, size, kept);
    checksum.print();
    release(in);
    for (Object<unsigned>& o : out) release(o);
    return !kept;
}
