// SPDX-License-Identifier: MIT
// Ranks that give MPI the pointers that cudaMalloc returned: a ring of messages and a sum over all, of sizes below and
// above what MPI sends at once. Prints how many numbers are wrong.
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int before = (rank + ranks - 1) % ranks, behind = (rank + 1) % ranks;
    static const int sizes[] = {1, 1000, 65536, 4000000};
    long wrong = 0;
    for (int s = 0; s < 4; ++s) {
        const int n = sizes[s];
        int *out, *in;
        cudaMalloc((void**)&out, n * sizeof *out);
        cudaMalloc((void**)&in, n * sizeof *in);
        for (int round = 0; round < 3; ++round) {
            cudaMemset(out, rank * 3 + round, n * sizeof *out);
            cudaMemset(in, 0, n * sizeof *in);
            MPI_Request requests[2];
            MPI_Irecv(in, n, MPI_INT, before, round, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(out, n, MPI_INT, behind, round, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < n; ++i) wrong += in[i] != 0x01010101 * (before * 3 + round);
            cudaMemset(in, 1, n * sizeof *in);
            MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            for (int i = 0; i < n; ++i) wrong += in[i] != 0x01010101 * ranks;
        }
        cudaFree(out);
        cudaFree(in);
    }
    printf("rank %d: %ld wrong\n", rank, wrong);
    MPI_Finalize();
    return wrong != 0;
}
