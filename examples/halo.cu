// SPDX-License-Identifier: MIT
// An ordinary MPI program with CUDA: heat in a plate that is cut into rows, a band of rows a rank. Neighbours exchange
// their outer rows, and MPI is given device pointers. An MPI that knows nothing of CUDA dies of them; under
// LD_PRELOAD=libhpe.so the program is right.
//   mpirun -np 4 -x LD_PRELOAD=libhpe.so ./halo         (Open MPI)
//   mpirun -np 4 -env LD_PRELOAD libhpe.so ./halo       (MPICH)
#include <mpi.h>

#include <cstdio>
#include <utility>

const int width = 512, height = 240;

__global__ void spread(float* next, const float* now, int rows) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y + 1;
    if (x == 0 || x >= width - 1 || y > rows) return;
    const int i = y * width + x;
    next[i] = 0.25f * (now[i - 1] + now[i + 1] + now[i - width] + now[i + width]);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, devices;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    cudaGetDeviceCount(&devices);
    cudaSetDevice(rank % devices);
    const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    const int first = height * rank / ranks, rows = height * (rank + 1) / ranks - first;

    // Row 0 is the neighbour's above, row rows + 1 the neighbour's below.
    float *now, *next;
    const int bytes = (rows + 2) * width * static_cast<int>(sizeof(float));
    cudaMalloc(&now, bytes);
    cudaMalloc(&next, bytes);
    for (int y = 0; y < rows + 2; ++y) {
        const float heat = (first + y) % 60 < 20 ? 100.0f : 0.0f;
        for (int x = 0; x < width; ++x) now[y * width + x] = next[y * width + x] = heat;
    }

    for (int step = 0; step < 50; ++step) {
        MPI_Sendrecv(now + width, width, MPI_FLOAT, above, 0, now + (rows + 1) * width, width, MPI_FLOAT, below, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Request both[2];
        MPI_Irecv(now, width, MPI_FLOAT, above, 1, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(now + rows * width, width, MPI_FLOAT, below, 1, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        spread<<<dim3((width + 127) / 128, rows), 128>>>(next, now, rows);
        cudaDeviceSynchronize();
        std::swap(now, next);
    }

    double heat = 0, all = 0;
    for (int i = width; i < (rows + 1) * width; ++i) heat += now[i];
    MPI_Reduce(&heat, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) std::printf("heat of %d x %d points: %.3f\n", width, height, all);
    cudaFree(now);
    cudaFree(next);
    MPI_Finalize();
}
