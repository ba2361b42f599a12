// SPDX-License-Identifier: MIT
// A rank is killed while messages of device memory are on their way to and from it, and the others wait for them.
// usage: mpi_killed device|host
#define OMPI_SKIP_MPICXX 1
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    constexpr int kInts = 2 << 20;  // far beyond what MPI sends at once
    int* ints = nullptr;
    if (std::strcmp(argv[1], "device") == 0) {
        if (cudaMalloc(reinterpret_cast<void**>(&ints), 8ul * kInts) != cudaSuccess) return 2;
        cudaMemset(ints, rank, 8ul * kInts);
    } else {
        ints = static_cast<int*>(std::calloc(2 * kInts, 4));
    }
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int round = 0;; ++round) {
        MPI_Request both[2];
        int done = 0;
        MPI_Irecv(ints, kInts, MPI_INT, from, 1, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(ints + kInts, kInts, MPI_INT, to, 1, MPI_COMM_WORLD, &both[1]);
        if (rank == ranks - 1 && round == 3) {
            MPI_Testall(2, both, &done, MPI_STATUSES_IGNORE);
            std::printf("rank %d is killed\n", rank);
            std::fflush(stdout);
            raise(SIGKILL);
        }
        const int result = MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        if (result == MPI_SUCCESS) continue;
        std::printf("rank %d has an error\n", rank);
        std::fflush(stdout);
        _Exit(3);
    }
}
