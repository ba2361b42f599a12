// SPDX-License-Identifier: MIT
// Messages of contiguous device memory between two ranks. One process for each rank:
//
//   mpirun -np 2 messages WORK WAY [ROUNDS]
//   WORK  large    one way, 256 MiB: GB/s
//         window   64 messages of 1 MiB under way at a time, one way: GB/s
//         pingpong 1 MiB there and back: GB/s
//         latency  8 bytes there and back: microseconds one way
//         self     8 bytes from a rank to itself: microseconds of a call, of MPI_Irecv, MPI_Send and MPI_Wait
//         exchange 32 KiB each way, between a kernel that makes them and one that reads them: microseconds
//         allreduce  the sum of 64 Mi floats, in place, on any number of ranks: GB/s of one rank's floats
//         copy     the direct copy of 256 MiB between the ranks' devices, without MPI: GB/s; one process
//   WAY   direct   device pointers in MPI calls, under libhpe
//         pageable by hand: cudaMemcpy to ordinary memory, and MPI with that
//         pinned   the same with pinned memory
//         host     MPI alone, with ordinary memory that no device uses
//
// Rank 0 prints one figure a round, after two rounds to warm up. Exits 1 if a byte is wrong.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

namespace {

__global__ void set(unsigned char* data, std::size_t n, unsigned key) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        data[i] = static_cast<unsigned char>(i * 7 + i / 251 + key);
    }
}
__global__ void differ(const unsigned char* data, std::size_t n, unsigned key, unsigned long long* count) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        if (data[i] != static_cast<unsigned char>(i * 7 + i / 251 + key)) atomicAdd(count, 1ull);
    }
}

// Small whole numbers, so that their sums are exact in any order.
__device__ float number(std::size_t i, unsigned key, int of_rank) {
    return static_cast<float>((i + key + 7u * static_cast<unsigned>(of_rank)) % 1024);
}
__global__ void set_numbers(float* data, std::size_t n, unsigned key, int rank) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        data[i] = number(i, key, rank);
    }
}
__global__ void differ_from_sum(const float* data, std::size_t n, unsigned key, int ranks, unsigned long long* count) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += number(i, key, rank);
        if (data[i] != sum) atomicAdd(count, 1ull);
    }
}

int rank, ranks;
std::string way;

class Side {
public:
    explicit Side(std::size_t bytes) : bytes_(bytes) {
        CHECK(cudaMalloc(&device_, bytes));
        CHECK(cudaMalloc(&count_, sizeof *count_));
        if (way == "pinned") {
            CHECK(cudaMallocHost(&host_, bytes));
        } else {
            host_ = static_cast<unsigned char*>(std::malloc(bytes));
            std::memset(host_, 1, bytes);
        }
    }
    void fill(unsigned key) const {
        set<<<264, 512>>>(device_, bytes_, key);
        CHECK(cudaDeviceSynchronize());
    }
    // Of the first half.
    void fill_later(unsigned key) const { set<<<64, 256>>>(device_, bytes_ / 2, key); }
    void read_later(unsigned key, std::size_t at) const { differ<<<64, 256>>>(device_ + at, bytes_ - at, key, count_); }
    void fill_numbers(unsigned key) const {
        set_numbers<<<264, 512>>>(numbers(), bytes_ / sizeof(float), key, rank);
        CHECK(cudaDeviceSynchronize());
    }
    void check(unsigned key, std::size_t at = 0) const {
        count_wrong([&] { differ<<<264, 512>>>(device_ + at, bytes_ - at, key, count_); });
    }
    void check_sum(unsigned key) const {
        count_wrong([&] { differ_from_sum<<<264, 512>>>(numbers(), bytes_ / sizeof(float), key, ranks, count_); });
    }
    template <class Differ>
    void count_wrong(Differ&& differ) const {
        if (way == "host") return;
        unsigned long long count = 0;
        CHECK(cudaMemset(count_, 0, sizeof *count_));
        differ();
        CHECK(cudaMemcpy(&count, count_, sizeof count, cudaMemcpyDeviceToHost));
        if (count != 0) {
            std::fprintf(stderr, "rank %d: %llu of %zu bytes are wrong\n", rank, count, bytes_);
            std::exit(1);
        }
    }
    // The message's bytes as MPI gets them, and their way back to the device.
    unsigned char* to_send(std::size_t at, std::size_t bytes) const {
        if (way == "direct") return device_ + at;
        if (way != "host") CHECK(cudaMemcpy(host_ + at, device_ + at, bytes, cudaMemcpyDeviceToHost));
        return host_ + at;
    }
    unsigned char* to_receive(std::size_t at) const { return (way == "direct" ? device_ : host_) + at; }
    void received(std::size_t at, std::size_t bytes) const {
        if (way == "direct" || way == "host") return;
        CHECK(cudaMemcpy(device_ + at, host_ + at, bytes, cudaMemcpyHostToDevice));
    }

private:
    float* numbers() const { return reinterpret_cast<float*>(device_); }

    const std::size_t bytes_;
    unsigned char *device_ = nullptr, *host_ = nullptr;
    unsigned long long* count_ = nullptr;
};

void send(const Side& side, std::size_t at, std::size_t bytes) {
    MPI_Send(side.to_send(at, bytes), static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
}
void receive(const Side& side, std::size_t at, std::size_t bytes) {
    MPI_Recv(side.to_receive(at), static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    side.received(at, bytes);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// From the first call until the last byte is on the receiver's device, which says so.
double one_way(const Side& side, std::size_t bytes, std::size_t piece) {
    constexpr int kTag = 1;
    const auto pieces = bytes / piece;
    std::vector<MPI_Request> all(pieces);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < pieces; ++i) {
        const auto at = i * piece;
        if (rank == 0)
            MPI_Isend(side.to_send(at, piece), static_cast<int>(piece), MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &all[i]);
        else
            MPI_Irecv(side.to_receive(at), static_cast<int>(piece), MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &all[i]);
    }
    MPI_Waitall(static_cast<int>(pieces), all.data(), MPI_STATUSES_IGNORE);
    if (rank == 1) {
        for (std::size_t i = 0; i < pieces; ++i) side.received(i * piece, piece);
        CHECK(cudaDeviceSynchronize());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds_since(begin);
}

double there_and_back(const Side& side, std::size_t bytes, int times) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
        if (rank == 0) {
            send(side, 0, bytes);
            receive(side, 0, bytes);
        } else {
            receive(side, 0, bytes);
            send(side, 0, bytes);
        }
    }
    return seconds_since(begin) / (2 * times);
}

double to_itself(const Side& side, std::size_t bytes, int times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
        MPI_Request request;
        MPI_Irecv(side.to_receive(bytes), static_cast<int>(bytes), MPI_BYTE, 0, 1, MPI_COMM_SELF, &request);
        MPI_Send(side.to_send(0, bytes), static_cast<int>(bytes), MPI_BYTE, 0, 1, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        side.received(bytes, bytes);
    }
    return seconds_since(begin) / (3 * times);
}

// MPI is to know nothing of streams: what it is given is on the device, or on the host, by then.
double exchanged(const Side& side, std::size_t bytes, unsigned key, int times) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
        side.fill_later(key);
        if (way == "direct") CHECK(cudaDeviceSynchronize());
        MPI_Request requests[2];
        MPI_Irecv(side.to_receive(bytes), static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(side.to_send(0, bytes), static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        side.received(bytes, bytes);
        side.read_later(key, bytes);
    }
    CHECK(cudaDeviceSynchronize());
    return seconds_since(begin) / times;
}

// Until all ranks have the sum on their devices.
double reduced(const Side& side, std::size_t bytes) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    auto* const numbers = side.to_send(0, bytes);
    MPI_Allreduce(MPI_IN_PLACE, numbers, static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    side.received(0, bytes);
    CHECK(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds_since(begin);
}

double copied(std::size_t bytes) {
    unsigned char *from = nullptr, *to = nullptr;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaMalloc(&from, bytes));
    if (devices > 1) {
        static const bool reach_each_other = [] {
            CHECK(cudaDeviceEnablePeerAccess(1, 0));
            CHECK(cudaSetDevice(1));
            CHECK(cudaDeviceEnablePeerAccess(0, 0));
            return true;
        }();
        CHECK(cudaSetDevice(reach_each_other ? 1 : 0));
    }
    CHECK(cudaMalloc(&to, bytes));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    const double took = seconds_since(begin);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return took;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string work = argv[1];
    way = argv[2];
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 10;
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(rank % devices));
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const bool sums = work == "allreduce";
    const std::size_t bytes = work == "large" || work == "copy" || sums ? 256 * kMiB
                              : work == "window"                        ? 64 * kMiB
                              : work == "latency"                       ? 8
                              : work == "self"                          ? 16
                              : work == "exchange"                      ? 2 * 32 * std::size_t{1024}
                                                                        : kMiB;
    const Side side(bytes);
    for (int round = 0; round < rounds + 2; ++round) {
        const auto key = static_cast<unsigned>(round);
        if (sums)
            side.fill_numbers(key);
        else
            side.fill(rank == 0 ? key : key + 100);
        double seconds = 0;
        if (sums) seconds = reduced(side, bytes);
        if (work == "copy") seconds = copied(bytes);
        if (work == "large") seconds = one_way(side, bytes, bytes);
        if (work == "window") seconds = one_way(side, bytes, kMiB);
        if (work == "pingpong") seconds = there_and_back(side, bytes, 50);
        if (work == "latency") seconds = there_and_back(side, bytes, 500);
        if (work == "self") seconds = to_itself(side, bytes / 2, 20000);
        if (work == "exchange") seconds = exchanged(side, bytes / 2, key, 200);
        if (sums) side.check_sum(key);
        if (work == "exchange") side.check(key, bytes / 2);
        if (work != "copy" && work != "exchange" && !sums && (rank == 1 || work == "pingpong" || work == "latency"))
            side.check(key);
        if (rank != 0 || round < 2) continue;
        const bool is_time = work == "latency" || work == "self" || work == "exchange";
        std::printf("%.4f\n", is_time ? seconds * 1e6 : static_cast<double>(bytes) / seconds / 1e9);
    }
    MPI_Finalize();
    return 0;
}
