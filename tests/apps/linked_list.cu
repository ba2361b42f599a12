// SPDX-License-Identifier: MIT
// Lists whose nodes lie scattered in device memory and hold device pointers. The CPU builds them, a kernel walks and
// reverses them, the CPU walks them again and moves every second node to the list beside it, a kernel adds them up.
#include "app.h"

struct Node {
    Node* next;
    int value;
    int position;
};

__global__ void reverse(Node** heads, int lists) {
    const int list = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (list >= lists) return;
    Node* done = nullptr;
    int position = 0;
    for (Node* node = heads[list]; node != nullptr;) {
        Node* next = node->next;
        node->next = done;
        node->value += 3 * position;
        node->position = position++;
        done = node;
        node = next;
    }
    heads[list] = done;
}

__global__ void add_up(Node* const* heads, int lists, long long* sums) {
    const int list = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (list >= lists) return;
    long long sum = 0;
    for (const Node* node = heads[list]; node != nullptr; node = node->next) sum = sum * 7 + node->value;
    sums[list] = sum;
}

int main(int argc, char** argv) {
    const int lists = static_cast<int>(size_argument(argc, argv, 61)), length = 40;
    const std::size_t count = static_cast<std::size_t>(lists) * length;
    Object<Node> nodes = allocate<Node>(count);
    Object<Node*> heads = allocate<Node*>(lists);
    Object<long long> sums = allocate<long long>(lists);

    // The k-th node of a list is somewhere in the object: 7919 is a prime, so each place is taken once.
    const auto place = [&](int list, int k) { return (static_cast<std::size_t>(k) * lists + list) * 7919 % count; };
    for (int list = 0; list < lists; ++list) {
        heads[list] = nodes.gpu + place(list, 0);
        for (int k = 0; k < length; ++k) {
            Node* next = k + 1 < length ? nodes.gpu + place(list, k + 1) : nullptr;
            nodes[place(list, k)] = Node{next, 100 * list + k, -1};
        }
    }
    to_gpu(nodes);
    to_gpu(heads);
    reverse<<<blocks_for(lists, 32), 32>>>(heads.gpu, lists);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    to_cpu(nodes);
    to_cpu(heads);

    Checksum checksum;
    int walked = 0;
    for (int list = 0; list < lists; ++list) {
        for (Node* node = heads[list]; node != nullptr; ++walked) {
            const Node& n = *on_cpu(nodes, node);
            checksum.add(n.value);
            checksum.add(n.position);
            node = n.next;
        }
    }
    for (int list = 0; list + 1 < lists; list += 2) {
        for (Node* node = heads[list]; node != nullptr;) {
            Node& n = *on_cpu(nodes, node);
            Node* moved = n.next;
            if (moved == nullptr) break;
            n.next = on_cpu(nodes, moved)->next;
            on_cpu(nodes, moved)->next = heads[list + 1];
            heads[list + 1] = moved;
            node = n.next;
        }
    }
    to_gpu(nodes);
    to_gpu(heads);
    add_up<<<blocks_for(lists, 32), 32>>>(heads.gpu, lists, sums.gpu);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    to_cpu(sums);
    checksum.add(sums.cpu, static_cast<std::size_t>(lists) * sizeof(long long));

    std::printf("linked_list lists=%d walked=%d\n", lists, walked);
    checksum.print();
    release(nodes);
    release(heads);
    release(sums);
    return walked != static_cast<int>(count);
}
