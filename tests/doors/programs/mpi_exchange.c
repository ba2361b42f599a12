// SPDX-License-Identifier: MIT
// Device memory sent in a ring, by MPI functions that were found in several ways. A program, or with -DLIBRARY a library
// that a program opens which has no MPI.
// usage: mpi_exchange linked|table|searched|next|asked
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

typedef int Sendrecv(const void*, int, MPI_Datatype, int, int, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status*);
static Sendrecv* const table[] = {MPI_Sendrecv, PMPI_Sendrecv};
// A tool that stands in front of MPI says what it was given.
extern const void* tool_saw __attribute__((weak));
extern int MPIX_Query_cuda_support(void) __attribute__((weak));

int exchange(const char* how) {
    enum { N = 300000 };
    MPI_Init(NULL, NULL);
    int rank, ranks, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(how, "asked") == 0) {
        wrong = MPIX_Query_cuda_support == NULL || MPIX_Query_cuda_support() != 1;
        int (*found)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
        wrong += found == NULL || found() != 1;
        // Nothing of CUDA was used yet: the driver says so.
        CUdeviceptr none;
        wrong += cuMemAlloc(&none, 4 << 20) != CUDA_ERROR_NOT_INITIALIZED;
    }
    int *out, *in;
    cudaMalloc((void**)&out, N * sizeof *out);
    cudaMalloc((void**)&in, N * sizeof *in);
    for (int round = 0; round < 2; ++round) {
        cudaMemset(out, rank + round, N * sizeof *out);
        cudaMemset(in, 100, N * sizeof *in);
        Sendrecv* call = table[round];
        if (strcmp(how, "linked") == 0) call = NULL;
        if (strcmp(how, "searched") == 0) call = (Sendrecv*)dlsym(RTLD_DEFAULT, round == 0 ? "MPI_Sendrecv" : "PMPI_Sendrecv");
        if (strcmp(how, "next") == 0) call = (Sendrecv*)dlsym(RTLD_NEXT, "MPI_Sendrecv");
        const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
        if (call == NULL) MPI_Sendrecv(out, N, MPI_INT, to, 0, in, N, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else call(out, N, MPI_INT, to, 0, in, N, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < N; ++i) wrong += in[i] != (from + round) * 0x01010101;
    }
    if (&tool_saw != NULL && tool_saw != out) ++wrong;
    // A trial whether MPI takes device memory, as some programs make it.
    cudaMemset(in, 0, 8);
    MPI_Allreduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    cudaFree(out);
    cudaFree(in);
    printf("rank %d: %d wrong\n", rank, wrong);
    fflush(stdout);
    MPI_Finalize();
    return wrong != 0;
}

#ifndef LIBRARY
int main(int argc, char** argv) { return exchange(argv[argc - 1]); }
#endif
