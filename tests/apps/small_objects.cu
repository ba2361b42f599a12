// SPDX-License-Identifier: MIT
// Ten thousand objects of odd sizes, reached by the kernel through a table of pointers. Every third one is never
// touched by the CPU before the kernel, every fifth one not after it.
#include <vector>

#include "app.h"

struct Entry {
    unsigned char* data;
    unsigned size;
    unsigned filled;  // by the CPU; otherwise by the kernel
};

__global__ void mix(const Entry* entries, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Entry e = entries[i];
    unsigned char carry = static_cast<unsigned char>(i);
    for (unsigned k = 0; k < e.size; ++k) {
        const unsigned char old = e.filled ? e.data[k] : static_cast<unsigned char>(17 * k);
        carry = static_cast<unsigned char>(carry * 5 + old);
        e.data[k] = carry;
    }
}

int main(int argc, char** argv) {
    const unsigned count = static_cast<unsigned>(size_argument(argc, argv, 10000));
    Random random(5);
    std::vector<Object<unsigned char>> objects;
    Object<Entry> entries = allocate<Entry>(count);
    std::size_t bytes = 0;
    for (unsigned i = 0; i < count; ++i) {
        const unsigned size = 1 + random.below(i % 100 == 0 ? 9000 : 61);
        objects.push_back(allocate<unsigned char>(size));
        bytes += size;
        entries[i] = Entry{objects[i].gpu, size, i % 3 != 0};
        if (i % 3 == 0) continue;
        for (unsigned k = 0; k < size; ++k) objects[i][k] = static_cast<unsigned char>(i + k * k);
        to_gpu(objects[i]);
    }
    to_gpu(entries);
    mix<<<blocks_for(count, 64), 64>>>(entries.gpu, count);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    Checksum checksum;
    for (unsigned i = 0; i < count; ++i) {
        if (i % 5 == 0) continue;
        to_cpu(objects[i]);
        checksum.add(objects[i].cpu, objects[i].count);
    }
    // Freed in an order that has nothing to do with that of allocation.
    for (unsigned i = 0; i < count; ++i) release(objects[static_cast<std::size_t>(i) * 7919 % count]);
    release(entries);
    std::printf("small_objects count=%u bytes=%zu\n", count, bytes);
    checksum.print();
    return 0;
}
