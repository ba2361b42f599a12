// SPDX-License-Identifier: MIT
// Messages between two ranks whose bytes lie on the device, there and back several times, in GB/s of bytes that a message
// names: from the second trip on until a kernel could use what came back. One process for each rank:
//
//   mpirun -np 2 pack LAYOUT WAY BYTES [PIECE [ROUNDS]]
//   LAYOUT  vector      pieces of PIECE bytes (8, 16, 24; 8 if not given), one of four
//           subarray    the same, of every other row of planes
//           contiguous  one piece
//   WAY     direct  device pointers in MPI calls, under libhpe
//           span    by hand: the whole span by cudaMemcpy, MPI with the datatype on pinned host memory
//           rows    by hand: the pieces by cudaMemcpy2D (3D), MPI with contiguous bytes of pinned host memory
//
// Rank 0 prints one figure a round, after a round to warm up. Ranks use the devices in turn. Exits 1 if a byte is wrong,
// gaps included.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

namespace {

// Planes of rows of pieces; a piece is the first quarter of its place.
struct Shape {
    std::size_t piece, place, pieces, rows, row_pitch;
    std::size_t bytes() const { return piece * pieces * rows; }
    std::size_t span() const { return row_pitch * rows; }
    bool named(std::size_t at) const { return at % row_pitch < place * pieces && at % row_pitch % place < piece; }
};

__global__ void set(unsigned char* data, std::size_t n, unsigned key) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        data[i] = static_cast<unsigned char>(i * 7 + i / 251 + key);
    }
}
// What came is used, and becomes the device's newest; few bytes of it, so that the time is the messages'.
__global__ void add(unsigned char* data, std::size_t n) {
    if (threadIdx.x < n) data[threadIdx.x] += 1;
}

constexpr unsigned kTrips = 11, kUsed = 256;

class Bench {
public:
    Bench(const std::string& layout, std::string way, std::size_t bytes, std::size_t piece) : way_(std::move(way)) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        int devices = 0;
        CHECK(cudaGetDeviceCount(&devices));
        CHECK(cudaSetDevice(rank_ % devices));
        if (layout == "contiguous") {
            shape_ = {bytes, bytes, 1, 1, bytes};
        } else {
            const bool planes = layout == "subarray";
            const std::size_t in_row = planes ? 64 : bytes / piece, rows = planes ? bytes / piece / in_row : 1;
            shape_ = {piece, 4 * piece, in_row, rows, (planes ? 2 : 1) * 4 * piece * in_row};
        }
        make_type(layout == "subarray");
        CHECK(cudaMalloc(&device_, shape_.span()));
        CHECK(cudaMallocHost(&host_, shape_.span()));
    }
    ~Bench() {
        MPI_Type_free(&type_);
        cudaFree(device_);
        cudaFreeHost(host_);
    }

    // Returns seconds.
    double round(unsigned key) {
        set<<<264, 512>>>(device_, shape_.span(), key + static_cast<unsigned>(rank_));
        CHECK(cudaDeviceSynchronize());
        MPI_Barrier(MPI_COMM_WORLD);
        // The check of the round before has emptied the processor's caches.
        make_trip();
        const auto begin = std::chrono::steady_clock::now();
        for (unsigned trip = 1; trip < kTrips; ++trip) make_trip();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        check(key);
        return took.count() / (kTrips - 1);
    }
    double bytes() const { return static_cast<double>(shape_.bytes()); }
    int rank() const { return rank_; }

private:
    void make_type(bool planes) {
        const auto n = [](std::size_t count) { return static_cast<int>(count); };
        if (shape_.pieces == 1 && shape_.rows == 1) {
            MPI_Type_contiguous(n(shape_.bytes() / 8), MPI_DOUBLE, &type_);
        } else if (planes) {
            const int sizes[] = {n(shape_.rows), 2, n(shape_.pieces), n(shape_.place / 8)};
            const int parts[] = {n(shape_.rows), 1, n(shape_.pieces), n(shape_.piece / 8)}, starts[] = {0, 0, 0, 0};
            MPI_Type_create_subarray(4, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type_);
        } else {
            MPI_Type_vector(n(shape_.pieces), n(shape_.piece / 8), n(shape_.place / 8), MPI_DOUBLE, &type_);
        }
        MPI_Type_commit(&type_);
    }
    void make_trip() {
        if (rank_ == 0) {
            send(1);
            receive(1);
        } else {
            receive(0);
            add<<<1, kUsed>>>(device_, kUsed);
            send(0);
        }
    }
    void copy_rows(unsigned char* to, bool to_host) const {
        cudaMemcpy3DParms all{};
        const auto packed = make_cudaPitchedPtr(to_host ? to : host_, shape_.piece, shape_.piece, shape_.pieces);
        const auto placed = make_cudaPitchedPtr(device_, shape_.place, shape_.piece, shape_.row_pitch / shape_.place);
        all.srcPtr = to_host ? placed : packed;
        all.dstPtr = to_host ? packed : placed;
        all.extent = make_cudaExtent(shape_.piece, shape_.pieces, shape_.rows);
        all.kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&all));
    }
    void send(int to) {
        if (way_ == "direct") {
            MPI_Send(device_, 1, type_, to, 0, MPI_COMM_WORLD);
        } else if (way_ == "span") {
            CHECK(cudaMemcpy(host_, device_, shape_.span(), cudaMemcpyDeviceToHost));
            MPI_Send(host_, 1, type_, to, 0, MPI_COMM_WORLD);
        } else {
            copy_rows(host_, true);
            MPI_Send(host_, static_cast<int>(shape_.bytes()), MPI_BYTE, to, 0, MPI_COMM_WORLD);
        }
    }
    void receive(int from) {
        if (way_ == "direct") {
            MPI_Recv(device_, 1, type_, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (way_ == "span") {
            // The gaps come back as they were.
            if (shape_.pieces * shape_.rows > 1) {
                CHECK(cudaMemcpy(host_, device_, shape_.span(), cudaMemcpyDeviceToHost));
            }
            MPI_Recv(host_, 1, type_, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(cudaMemcpy(device_, host_, shape_.span(), cudaMemcpyHostToDevice));
        } else {
            MPI_Recv(host_, static_cast<int>(shape_.bytes()), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            copy_rows(host_, false);
        }
    }
    // What rank 0 sent came to rank 1 and back; the first bytes are one more with each trip, and on rank 1 also those
    // that no message names.
    void check(unsigned key) const {
        std::vector<unsigned char> now(shape_.span());
        CHECK(cudaMemcpy(now.data(), device_, now.size(), cudaMemcpyDeviceToHost));
        for (std::size_t i = 0; i < now.size(); ++i) {
            const auto set = key + (shape_.named(i) ? 0u : static_cast<unsigned>(rank_));
            const auto more = i < kUsed && (shape_.named(i) || rank_ == 1) ? kTrips : 0u;
            if (now[i] == static_cast<unsigned char>(i * 7 + i / 251 + set + more)) continue;
            std::fprintf(stderr, "rank %d: byte %zu is wrong\n", rank_, i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }

    const std::string way_;
    int rank_ = 0;
    Shape shape_{};
    MPI_Datatype type_{};
    unsigned char *device_ = nullptr, *host_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    MPI_Init(&argc, &argv);
    {
        Bench bench(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10),
                    argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 8);
        const int rounds = argc > 5 ? std::atoi(argv[5]) : 10;
        for (int round = 0; round <= rounds; ++round) {
            const double seconds = bench.round(static_cast<unsigned>(round) * 31);
            if (round != 0 && bench.rank() == 0) std::printf("%.3f\n", 2 * bench.bytes() / seconds / 1e9);
        }
    }
    MPI_Finalize();
    return 0;
}
