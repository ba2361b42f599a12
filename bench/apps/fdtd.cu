// SPDX-License-Identifier: MIT
// A wave in a 3D volume by finite differences, as in seismic imaging: eighth order in space, second in time. The volume
// is cut in Y, a slab a rank, and neighbours exchange four planes every step while the middle of the slab is computed.
//
// usage: mpirun -np RANKS fdtd staged|direct NX NY NZ STEPS
//   staged: halos are copied to host memory, sent, and copied back, as programs do where the MPI knows nothing of CUDA
//   direct: MPI is given device pointers
// Prints a checksum of the wave, which depends on neither the form nor the number of ranks, and the time of a step:
// of the slowest rank, on the average after the first step.
//
// Source: Araya-Polo et al., "Assessing accelerator-based HPC reverse time migration", IEEE TPDS 22(1), 2011; the
// stencil: Micikevicius, "3D finite difference computation on GPUs using CUDA", GPGPU-2, 2009.
#include <cuda_runtime.h>
#define OMPI_SKIP_MPICXX 1  // the C++ bindings would want a library of their own
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

constexpr int kHalo = 4;  // points on each side that the stencil reads

static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "fdtd: %s: %s\n", what, cudaGetErrorString(error));
    MPI_Abort(MPI_COMM_WORLD, 2);
}
#define CHECK(call) check(call, #call)

// A slab with its halos. X is next to each other in memory, then Z; so planes of Y are contiguous.
struct Grid {
    int nx, ny, nz;
    __host__ __device__ std::size_t row() const { return nx + 2 * kHalo; }
    __host__ __device__ std::size_t plane() const { return row() * (nz + 2 * kHalo); }
    __host__ __device__ std::size_t at(int x, int y, int z) const {
        return (y + kHalo) * plane() + (z + kHalo) * row() + x + kHalo;
    }
    std::size_t points() const { return plane() * (ny + 2 * kHalo); }
};

// `next` has the step before `now`, and gets the step after it.
__global__ void stencil(Grid grid, float* next, const float* now, const float* velocity, int first_y) {
    const float c0 = -205.0f / 72, c[kHalo] = {8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};
    const int x = blockIdx.x * blockDim.x + threadIdx.x, z = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= grid.nx || z >= grid.nz) return;
    const std::size_t i = grid.at(x, first_y + blockIdx.z, z), row = grid.row(), plane = grid.plane();
    float sum = 3 * c0 * now[i];
    for (int k = 1; k <= kHalo; ++k) {
        sum += c[k - 1] * (now[i - k] + now[i + k] + now[i - k * row] + now[i + k * row] + now[i - k * plane] +
                           now[i + k * plane]);
    }
    next[i] = 2 * now[i] - next[i] + velocity[i] * sum;
}

static void propagate(const Grid& grid, float* next, const float* now, const float* velocity, int first_y, int planes,
                      cudaStream_t stream) {
    if (planes <= 0) return;
    const dim3 threads(32, 8), blocks((grid.nx + 31) / 32, (grid.nz + 7) / 8, planes);
    stencil<<<blocks, threads, 0, stream>>>(grid, next, now, velocity, first_y);
    CHECK(cudaGetLastError());
}

// What this rank sends to and gets from the rank below and the one above.
class Halos {
public:
    Halos(const Grid& grid, bool staged, int rank, int ranks)
        : planes_(static_cast<int>(kHalo * grid.plane())), staged_(staged) {
        sides_[0] = {rank > 0 ? rank - 1 : MPI_PROC_NULL, grid.at(-kHalo, 0, -kHalo), 0};
        sides_[1] = {rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL, grid.at(-kHalo, grid.ny - kHalo, -kHalo),
                     grid.at(-kHalo, grid.ny, -kHalo)};
        for (auto& side : sides_) {
            if (!staged) continue;
            side.out.resize(static_cast<std::size_t>(planes_)), side.in.resize(static_cast<std::size_t>(planes_));
        }
    }

    // `wave` is on the device, its outer planes are done.
    void exchange(float* wave) {
        MPI_Request requests[4];
        int n = 0;
        for (auto& side : sides_) {
            float* const to = staged_ ? side.in.data() : wave + side.halo;
            MPI_Irecv(to, planes_, MPI_FLOAT, side.rank, 0, MPI_COMM_WORLD, &requests[n++]);
        }
        for (auto& side : sides_) {
            float* from = wave + side.edge;
            if (staged_ && side.rank != MPI_PROC_NULL) {
                CHECK(cudaMemcpy(side.out.data(), from, planes_ * sizeof(float), cudaMemcpyDeviceToHost));
                from = side.out.data();
            }
            MPI_Isend(from, planes_, MPI_FLOAT, side.rank, 0, MPI_COMM_WORLD, &requests[n++]);
        }
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        for (auto& side : sides_) {
            if (!staged_ || side.rank == MPI_PROC_NULL) continue;
            CHECK(cudaMemcpy(wave + side.halo, side.in.data(), planes_ * sizeof(float), cudaMemcpyHostToDevice));
        }
    }

private:
    struct Side {
        int rank;
        std::size_t edge, halo;  // where the planes that are sent begin, and those that come
        std::vector<float> out, in;
    };
    const int planes_;  // in floats
    const bool staged_;
    Side sides_[2];
};

// A pulse in the middle of the volume, and rock that is faster below.
static void start(const Grid& grid, int first_y, int all_y, float* wave, float* velocity) {
    std::vector<float> pulse(grid.points()), rock(grid.points());
    for (int y = 0; y < grid.ny; ++y) {
        for (int z = 0; z < grid.nz; ++z) {
            for (int x = 0; x < grid.nx; ++x) {
                const int dx = x - grid.nx / 2, dy = y + first_y - all_y / 2, dz = z - grid.nz / 2;
                const auto i = grid.at(x, y, z);
                pulse[i] = 1.0f / static_cast<float>(1 + dx * dx + dy * dy + dz * dz);
                rock[i] = z < grid.nz / 3 ? 0.04f : 0.09f;
            }
        }
    }
    CHECK(cudaMemcpy(wave, pulse.data(), pulse.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(velocity, rock.data(), rock.size() * sizeof(float), cudaMemcpyHostToDevice));
}

// The same in whatever order it is added up: every bit of every point counts, and where the point lies.
static std::uint64_t checksum(const Grid& grid, int first_y, const float* wave) {
    std::vector<float> points(grid.points());
    CHECK(cudaMemcpy(points.data(), wave, points.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::uint64_t mine = 0, all = 0;
    for (int y = 0; y < grid.ny; ++y) {
        for (int z = 0; z < grid.nz; ++z) {
            for (int x = 0; x < grid.nx; ++x) {
                std::uint32_t bits;
                std::memcpy(&bits, &points[grid.at(x, y, z)], sizeof bits);
                const std::uint64_t place = (static_cast<std::uint64_t>(y + first_y) * grid.nz + z) * grid.nx + x;
                mine += (bits + 1ull) * (2 * place + 1) * 0x9E3779B97F4A7C15ull;
            }
        }
    }
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, devices = 0, local;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const bool staged = argc == 6 && std::strcmp(argv[1], "staged") == 0;
    const int all_y = argc == 6 ? std::atoi(argv[3]) : 0, steps = argc == 6 ? std::atoi(argv[5]) : 0;
    if (argc != 6 || (!staged && std::strcmp(argv[1], "direct") != 0) || all_y / ranks < kHalo || steps < 1) {
        if (rank == 0) std::fprintf(stderr, "usage: fdtd staged|direct NX NY NZ STEPS, NY at least 4 a rank\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    // The ranks of a host share its devices.
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(local % devices));

    const auto first_of = [&](int r) { return static_cast<int>(static_cast<long>(all_y) * r / ranks); };
    const int first_y = first_of(rank);
    const Grid grid{std::atoi(argv[2]), first_of(rank + 1) - first_y, std::atoi(argv[4])};
    float *next, *now, *velocity;
    for (float** each : {&next, &now, &velocity}) {
        CHECK(cudaMalloc(each, grid.points() * sizeof(float)));
        CHECK(cudaMemset(*each, 0, grid.points() * sizeof(float)));
    }
    start(grid, first_y, all_y, now, velocity);
    Halos halos(grid, staged, rank, ranks);
    halos.exchange(now);
    cudaStream_t middle;
    CHECK(cudaStreamCreateWithFlags(&middle, cudaStreamNonBlocking));

    double begun = 0;
    for (int step = 0; step < steps; ++step) {
        if (step <= 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            begun = MPI_Wtime();
        }
        // The outer planes first: they are sent while the middle is computed.
        const int upper = grid.ny > 2 * kHalo ? grid.ny - kHalo : kHalo;
        propagate(grid, next, now, velocity, 0, kHalo, cudaStreamLegacy);
        propagate(grid, next, now, velocity, upper, grid.ny - upper, cudaStreamLegacy);
        propagate(grid, next, now, velocity, kHalo, upper - kHalo, middle);
        CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        halos.exchange(next);
        CHECK(cudaDeviceSynchronize());
        std::swap(next, now);
    }
    double mine = (MPI_Wtime() - begun) / (steps > 1 ? steps - 1 : 1), slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    const std::uint64_t sum = checksum(grid, first_y, now);
    if (rank == 0) {
        std::printf("checksum %016llx\n%.6f ms a step, halos of %zu bytes\n", static_cast<unsigned long long>(sum),
                    slowest * 1e3, kHalo * grid.plane() * sizeof(float));
    }
    CHECK(cudaStreamDestroy(middle));
    for (float* each : {next, now, velocity}) CHECK(cudaFree(each));
    MPI_Comm_free(&host);
    MPI_Finalize();
    return 0;
}
