// SPDX-License-Identifier: MIT
// malloc, free, new and delete in kernels: memory that outlives the kernel, distinct and aligned pieces, NULL when the
// heap of cudaLimitMallocHeapSize is full, and all of it usable again after free.
#include <cstdint>
#include <vector>

#include "check.h"

struct Node {
    int value;
    Node* next;
};

__global__ void make(Node** lists, int length) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    Node* list = nullptr;
    for (int i = 0; i < length; i++) {
        Node* node = new Node;
        node->value = t * 100 + i;
        node->next = list;
        list = node;
    }
    lists[t] = list;
}

__global__ void consume(Node** lists, int* sums, unsigned* misaligned) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (Node* node = lists[t]; node != nullptr;) {
        Node* next = node->next;
        if (reinterpret_cast<std::uintptr_t>(node) % 16 != 0) atomicAdd(misaligned, 1u);
        sums[t] += node->value;
        delete node;
        node = next;
    }
}

// One thread takes blocks of 64 KiB until there are no more, then gives them back.
__global__ void fill(int* count) {
    void** last = nullptr;
    int n = 0;
    while (void* block = malloc(64 << 10)) {
        *static_cast<void**>(block) = last;
        last = static_cast<void**>(block);
        n++;
    }
    while (last != nullptr) {
        void** before = static_cast<void**>(*last);
        free(last);
        last = before;
    }
    free(nullptr);
    *count = n;
}

int main() {
    constexpr std::size_t heap = 4 << 20;
    CUDA(cudaDeviceSetLimit(cudaLimitMallocHeapSize, heap));
    constexpr int threads = 256, length = 20;
    Buffer<Node*> lists(threads);
    Buffer<int> sums(threads), count(1);
    Buffer<unsigned> misaligned(1);
    make<<<4, threads / 4>>>(lists.p, length);
    consume<<<2, threads / 2>>>(lists.p, sums.p, misaligned.p);
    CUDA(cudaDeviceSynchronize());
    std::vector<int> got(threads);
    sums.get(got.data());
    for (int t = 0; t < threads; t++) EXPECT(got[t] == length * t * 100 + length * (length - 1) / 2);
    unsigned wrong = 1;
    misaligned.get(&wrong);
    EXPECT(wrong == 0);

    int blocks[2];
    for (int& n : blocks) {
        fill<<<1, 1>>>(count.p);
        count.get(&n);
    }
    // How much is lost to bookkeeping is the implementation's business.
    EXPECT(blocks[0] > 32 && blocks[0] <= 64 && blocks[1] == blocks[0]);
    std::printf("device memory: ok\n");
}
