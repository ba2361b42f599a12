// SPDX-License-Identifier: MIT
// Device memory of MPI test programs that send large messages, what a rank puts there, rounds of messages around a
// ring, and running the cases that are named: without a name prints all. Each rank prints how many bytes were wrong.
#pragma once

#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int kBytes = 3 << 20;
int rank, ranks;
long wrong;

// What a rank sends in a round.
unsigned char expected(int from, int round, std::size_t i) {
    return static_cast<unsigned char>((i * 2654435761u >> 11) + static_cast<unsigned>(from * 17 + round * 31));
}

std::vector<unsigned char> content(int from, int round, std::size_t bytes = kBytes) {
    std::vector<unsigned char> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = expected(from, round, i);
    return all;
}

class Memory {
public:
    explicit Memory(std::size_t bytes = kBytes, bool pool = false) : bytes_(bytes), pool_(pool) {
        const auto made = pool ? cudaMallocAsync(&at_, bytes, cudaStreamLegacy) : cudaMalloc(&at_, bytes);
        if (made != cudaSuccess) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    ~Memory() { pool_ ? cudaFreeAsync(at_, cudaStreamLegacy) : cudaFree(at_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    unsigned char* at(std::size_t offset = 0) const { return at_ + offset; }
    // On the device alone.
    void put(const std::vector<unsigned char>& all, std::size_t offset = 0) const {
        cudaMemcpy(at_ + offset, all.data(), all.size(), cudaMemcpyHostToDevice);
    }
    void clear() const { cudaMemset(at_, 0xEE, bytes_); }
    // As the device has it.
    void check(const std::vector<unsigned char>& all, std::size_t offset = 0) const {
        std::vector<unsigned char> got(bytes_);
        cudaMemcpy(got.data(), at_, bytes_, cudaMemcpyDeviceToHost);
        for (std::size_t i = 0; i < bytes_; ++i) {
            const bool inside = i >= offset && i - offset < all.size();
            wrong += got[i] != (inside ? all[i - offset] : 0xEE);
        }
    }

private:
    unsigned char* at_ = nullptr;
    const std::size_t bytes_;
    const bool pool_;
};

int behind() { return (rank + 1) % ranks; }
int before() { return (rank + ranks - 1) % ranks; }

// Sends what was put there to the next rank, and receives from the one before.
using Way = std::function<void(const Memory& send, const Memory& receive, int round)>;
using Arrives = std::function<std::vector<unsigned char>(int round)>;
void rounds_of(const Way& way, const Arrives& arrives, int count) {
    const Memory send, receive;
    for (int round = 0; round < count; ++round) {
        send.put(content(rank, round));
        receive.clear();
        way(send, receive, round);
        receive.check(arrives(round));
        send.check(content(rank, round));
    }
}
void rounds(const Way& way, int count = 4) {
    rounds_of(
        way, [](int round) { return content(before(), round); }, count);
}

void send_receive(const void* from, void* to, int bytes, int tag = 1) {
    MPI_Sendrecv(from, bytes, MPI_BYTE, behind(), tag, to, bytes, MPI_BYTE, before(), tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int run_cases(int argc, char** argv, const std::map<std::string, void (*)()>& cases, int level = MPI_THREAD_SINGLE) {
    if (argc < 2) {
        for (const auto& [name, run] : cases) std::printf("%s\n", name.c_str());
        return 0;
    }
    int provided = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::string bad;
    for (int i = 1; i < argc; ++i) {
        const long so_far = wrong;
        cases.at(argv[i])();
        if (wrong != so_far) bad += std::string(" ") + argv[i];
        MPI_Barrier(MPI_COMM_WORLD);
    }
    std::printf("rank %d:%s %ld wrong\n", rank, bad.c_str(), wrong);
    MPI_Finalize();
    return 0;
}

}  // namespace
