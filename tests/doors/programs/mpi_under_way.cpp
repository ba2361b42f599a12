// SPDX-License-Identifier: MIT
// Many messages of device memory under way at a time, from every other rank to the next, whose device is idle but for
// what comes. Every byte is checked. usage: mpi_under_way CASE...; without a case prints all.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <atomic>
#include <cstring>
#include <thread>

#include "mpi_messages.h"

namespace {

bool sends() { return rank % 2 == 0; }
int partner() { return rank ^ 1; }

void fill(const Memory& memory, int round) {
    if (sends()) {
        memory.put(content(rank, round));
    } else {
        memory.clear();
    }
    cudaDeviceSynchronize();
}

void begin(unsigned char* part, int bytes, MPI_Request* request) {
    if (sends()) {
        MPI_Isend(part, bytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD, request);
    } else {
        MPI_Irecv(part, bytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD, request);
    }
}

// Parts of one object at once; the sender changes them as soon as they are sent.
void window() {
    constexpr int kMessages = 6, kPart = kBytes / kMessages;
    const Memory memory;
    for (int round = 0; round < 5 && partner() < ranks; ++round) {
        fill(memory, round);
        MPI_Request all[kMessages];
        for (int i = 0; i < kMessages; ++i) begin(memory.at(static_cast<std::size_t>(i) * kPart), kPart, &all[i]);
        for (auto& one : all) MPI_Wait(&one, MPI_STATUS_IGNORE);
        if (sends()) {
            memory.clear();
        } else {
            memory.check(content(partner(), round));
        }
    }
}

// The next but one is begun when one has ended, while that between them is still on its way.
void ring() {
    constexpr int kMessages = 8, kPart = kBytes / kMessages;
    const Memory memory;
    if (partner() >= ranks) return;
    fill(memory, 0);
    MPI_Request two[2];
    for (int i = 0; i < kMessages + 2; ++i) {
        if (i >= 2) MPI_Wait(&two[i % 2], MPI_STATUS_IGNORE);
        if (i < kMessages) begin(memory.at(static_cast<std::size_t>(i) * kPart), kPart, &two[i % 2]);
    }
    if (!sends()) memory.check(content(partner(), 0));
}

// All messages are there when the receives are posted: each may begin its copy before the next is posted.
void posted_late() {
    constexpr int kMessages = 8, kPart = kBytes / kMessages;
    const Memory memory;
    if (partner() >= ranks) return;
    fill(memory, 0);
    MPI_Request all[kMessages];
    const auto begin_all = [&] {
        for (int i = 0; i < kMessages; ++i) begin(memory.at(static_cast<std::size_t>(i) * kPart), kPart, &all[i]);
    };
    // Messages keep their order, so this one is behind the others.
    char sent = 0;
    if (sends()) begin_all();
    MPI_Sendrecv_replace(&sent, 1, MPI_CHAR, partner(), 2, partner(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!sends()) begin_all();
    MPI_Waitall(kMessages, all, MPI_STATUSES_IGNORE);
    if (!sends()) memory.check(content(partner(), 0));
}

// The CPU uses blocks that a message will come to before any of it does, and a second thread those beside it all the
// time; the receiver gives its device no work meanwhile.
void used_meanwhile() {
    constexpr std::size_t kAt = 4097 + 33, kBeside = 100000;
    for (int round = 0; round < 5 && partner() < ranks; ++round) {
        char go = 0;
        const Memory memory(kAt + kBytes + kBeside);
        memory.clear();
        if (sends()) {
            memory.put(content(rank, round), kAt);
            MPI_Recv(&go, 1, MPI_CHAR, partner(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(memory.at(kAt), kBytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD);
            continue;
        }
        MPI_Request request;
        MPI_Irecv(memory.at(kAt), kBytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD, &request);
        std::atomic<bool> here{false}, over{false};
        std::thread other([&] {
            volatile unsigned char* const beside = memory.at(kAt + kBytes);
            for (unsigned turn = 0; !over || turn == 0; ++turn) {
                for (std::size_t i = 0; i < kBeside; i += 1024) beside[i] = 0xEE;
                here = true;
            }
        });
        std::memset(memory.at(), 0xEE, kAt);
        while (!here) std::this_thread::yield();
        MPI_Send(&go, 1, MPI_CHAR, partner(), 2, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        over = true;
        other.join();
        const auto came = content(partner(), round);
        const unsigned char* const bytes = memory.at(kAt);
        for (std::size_t i = 0; i < came.size(); ++i) wrong += bytes[i] != came[i];
        memory.check(came, kAt);
    }
}

// From each rank in turn, to all others.
void broadcast() {
    const Memory memory;
    for (int root = 0; root < ranks; ++root) {
        if (rank == root) {
            memory.put(content(root, 0));
        } else {
            memory.clear();
        }
        cudaDeviceSynchronize();
        MPI_Bcast(memory.at(), kBytes, MPI_BYTE, root, MPI_COMM_WORLD);
        memory.check(content(root, 0));
    }
}

const std::map<std::string, void (*)()> kCases = {{"window", window},
                                                  {"ring", ring},
                                                  {"posted_late", posted_late},
                                                  {"broadcast", broadcast},
                                                  {"used_meanwhile", used_meanwhile}};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, kCases); }
