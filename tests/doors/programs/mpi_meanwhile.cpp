// SPDX-License-Identifier: MIT
// What a program may do while messages are under way, or between two of them: export and free memory, ask for a request
// from two threads, flush a window. From rank 0 to rank 1. usage: mpi_meanwhile CASE...; without a case prints all.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "mpi_messages.h"

namespace {

constexpr int kTag = 1, kGoOn = 2;

void go_on(int to) { MPI_Send(nullptr, 0, MPI_BYTE, to, kGoOn, MPI_COMM_WORLD); }
void wait_for(int from) { MPI_Recv(nullptr, 0, MPI_BYTE, from, kGoOn, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
// By the CPU, byte by byte: a memset of so much the device would make.
void fill(const Memory& memory, unsigned char value, int bytes = kBytes) {
    volatile unsigned char* const all = memory.at();
    for (int i = 0; i < bytes; ++i) all[i] = value;
}
int last_byte(const Memory& memory, int bytes = kBytes) {
    return static_cast<volatile unsigned char*>(memory.at())[bytes - 1];
}

// What is being sent is exported, and memory for the CPU allocated.
void exported() {
    constexpr int kWhole = 4 << 20;  // of the size that host copies are recycled in
    const Memory memory(kWhole);
    if (rank == 0) {
        fill(memory, 1, kWhole);
        MPI_Request request;
        MPI_Isend(memory.at(), kWhole, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
        cudaIpcMemHandle_t handle;
        wrong += cudaIpcGetMemHandle(&handle, memory.at()) != cudaSuccess;
        const Memory next(kWhole);
        fill(next, 2, kWhole);
        go_on(1);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        std::vector<unsigned char> got(kWhole);
        wait_for(0);
        MPI_Recv(got.data(), kWhole, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += kWhole - std::count(got.begin(), got.end(), 1);
    }
}

// So that what is allocated next gets other memory at the same address.
void take_memory() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle taken;
    constexpr std::size_t kMost = std::size_t{4} << 20;
    if (cuMemCreate(&taken, kMost, &properties, 0) != CUDA_SUCCESS) std::abort();
}

// The memory is freed between messages, in one form by who has exported it, and there is new memory in its place.
template <class Send, class Receive>
void anew(bool exports, Send&& send, Receive&& receive) {
    unsigned char* memory = nullptr;
    std::vector<unsigned char> got(kBytes);
    for (int round = 0; round < 8; ++round) {
        if (round == 0 || (round == 4 && rank == 0)) {
            cudaIpcMemHandle_t handle;
            if (exports && round != 0) wrong += cudaIpcGetMemHandle(&handle, memory) != cudaSuccess;
            cudaFree(memory);
            if (round != 0) take_memory();
            if (cudaMalloc(&memory, kBytes) != cudaSuccess) std::abort();
        }
        cudaMemset(memory, rank == 0 ? 10 + round : 0xEE, kBytes);
        if (rank == 0) send(memory);
        if (rank != 1) continue;
        receive(memory);
        cudaMemcpy(got.data(), memory, kBytes, cudaMemcpyDeviceToHost);
        wrong += kBytes - std::count(got.begin(), got.end(), 10 + round);
    }
    cudaFree(memory);
}
void receive(void* to) { MPI_Recv(to, kBytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

void anew_exported() {
    anew(
        true, [](const void* from) { MPI_Send(from, kBytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD); }, receive);
}
void anew_persistent() {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto send = [&](const void* from) {
        if (request == MPI_REQUEST_NULL) MPI_Send_init(from, kBytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    };
    anew(false, send, receive);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

// A receive is freed, and another one, of host memory, or a barrier says that its bytes are there.
void freed() {
    constexpr int kShort = 1000;
    const Memory memory(kShort);
    for (int way = 0; way < 7; ++way) {
        const auto sent = static_cast<unsigned char>(way + 1);
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        fill(memory, rank == 0 ? sent : 0, kShort);
        MPI_Request of_host = MPI_REQUEST_NULL;
        if (rank == 1) {
            MPI_Request request;
            MPI_Irecv(memory.at(), kShort, MPI_BYTE, 0, kTag, comm, &request);
            MPI_Request_free(&request);
            if (way < 5) MPI_Irecv(nullptr, 0, MPI_BYTE, 0, kGoOn, comm, &of_host);
        }
        PMPI_Barrier(comm);
        if (rank == 0) {
            MPI_Ssend(memory.at(), kShort, MPI_BYTE, 1, kTag, comm);
            if (way < 5) MPI_Ssend(nullptr, 0, MPI_BYTE, 1, kGoOn, comm);
        }
        int done = 0, index = 0;
        switch (way) {
            case 0: MPI_Wait(&of_host, MPI_STATUS_IGNORE); break;
            case 1: MPI_Waitall(1, &of_host, MPI_STATUSES_IGNORE); break;
            case 2: MPI_Waitany(1, &of_host, &index, MPI_STATUS_IGNORE); break;
            case 3: MPI_Waitsome(1, &of_host, &done, &index, MPI_STATUSES_IGNORE); break;
            case 4:
                while (done == 0) MPI_Test(&of_host, &done, MPI_STATUS_IGNORE);
                break;
            case 5: MPI_Barrier(comm); break;
            default: break;
        }
        if (way < 6)
            MPI_Comm_free(&comm);
        else
            MPI_Comm_disconnect(&comm);
        if (rank == 1) wrong += last_byte(memory, kShort) != sent;
    }
}

// The same of a call that was waiting before the receive was made.
void freed_by_another() {
    constexpr int kShort = 1000, kFreed = 3;
    const Memory memory(kShort);
    for (int round = 1; round <= 5; ++round) {
        fill(memory, rank == 0 ? static_cast<unsigned char>(round) : 0, kShort);
        if (rank == 0) {
            wait_for(1);
            MPI_Ssend(memory.at(), kShort, MPI_BYTE, 1, kFreed, MPI_COMM_WORLD);
            MPI_Ssend(nullptr, 0, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Request of_host;
            MPI_Irecv(nullptr, 0, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &of_host);
            std::thread other([&] {
                MPI_Request request;
                MPI_Irecv(memory.at(), kShort, MPI_BYTE, 0, kFreed, MPI_COMM_WORLD, &request);
                MPI_Request_free(&request);
                go_on(0);
            });
            MPI_Wait(&of_host, MPI_STATUS_IGNORE);
            wrong += last_byte(memory, kShort) != round;
            other.join();
        }
    }
}

// A message that is too long leaves the buffer as it was, also where it is there already.
void too_long() {
    constexpr int kShort = 1000;
    const Memory memory(kShort);
    const std::vector<unsigned char> sent(2 * kShort, 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int freed = 0; freed < 2; ++freed) {
        fill(memory, 0, kShort);
        if (rank == 0) {
            MPI_Send(sent.data(), 2 * kShort, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
            go_on(1);
            go_on(1);
        } else if (rank == 1) {
            wait_for(0);
            MPI_Request request;
            MPI_Irecv(memory.at(), kShort, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
            if (freed != 0)
                MPI_Request_free(&request);
            else
                wrong += MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
            wait_for(0);
            wrong += last_byte(memory, kShort) != 0;
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// Two threads ask whether one message is there, and look at it.
void asked_by_two() {
    constexpr int kLong = 16 << 20;  // to store it takes a while
    const Memory memory(kLong);
    for (int round = 1; round <= 20; ++round) {
        const auto sent = static_cast<unsigned char>(round);
        fill(memory, rank == 0 ? sent : 0, kLong);
        if (rank == 0) {
            wait_for(1);
            MPI_Send(memory.at(), kLong, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Request request;
            MPI_Irecv(memory.at(), kLong, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
            std::atomic<int> old{0};
            const auto look = [&] {
                for (int here = 0; here == 0;) MPI_Request_get_status(request, &here, MPI_STATUS_IGNORE);
                old += last_byte(memory, kLong) != sent;
            };
            std::thread other(look);
            go_on(0);
            look();
            other.join();
            wrong += old;
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
}

// One thread waits for a request of a window, another flushes the window, which completes the same call.
void flushed_by_another() {
    const Memory memory;
    std::vector<unsigned char> shared(kBytes);
    MPI_Win window;
    MPI_Win_create(shared.data(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 1; round <= 40; ++round) {
        std::fill(shared.begin(), shared.end(), static_cast<unsigned char>(round));
        fill(memory, 0);
        MPI_Win_fence(0, window);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
            MPI_Request request;
            MPI_Rget(memory.at(), kBytes, MPI_BYTE, 0, 0, kBytes, MPI_BYTE, window, &request);
            std::thread waits([&] { MPI_Wait(&request, MPI_STATUS_IGNORE); });
            MPI_Win_flush(0, window);
            wrong += last_byte(memory) != round;
            waits.join();
            MPI_Win_unlock(0, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
}

const std::map<std::string, void (*)()> kCases = {{"exported", exported},
                                                  {"anew_exported", anew_exported},
                                                  {"anew_persistent", anew_persistent},
                                                  {"freed", freed},
                                                  {"freed_by_another", freed_by_another},
                                                  {"too_long", too_long},
                                                  {"asked_by_two", asked_by_two},
                                                  {"flushed_by_another", flushed_by_another}};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_MULTIPLE); }
