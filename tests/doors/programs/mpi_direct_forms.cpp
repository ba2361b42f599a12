// SPDX-License-Identifier: MIT
// Messages as in mpi_direct.cpp, in the forms that a program may give them: calls, sizes, pieces, partners that have
// host memory or are nobody, communicators. usage: mpi_direct_forms CASE...; without a case prints all. Each rank
// prints how many bytes were wrong.
#include <cuda_runtime.h>
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>
#include <vector>

#include "mpi_messages.h"

namespace {

void blocking() {
    rounds([](const Memory& send, const Memory& receive, int) {
        for (int turn = 0; turn < 2; ++turn) {
            if (turn == rank % 2) {
                MPI_Send(send.at(), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD);
            } else {
                MPI_Recv(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    });
}

// Of which an MPI may carry some itself.
void sized(int round, std::size_t bytes, bool by_cpu) {
    static const Memory send, receive;
    const auto sent = content(rank, round), got = content(before(), round);
    send.put(sent);
    receive.clear();
    const auto offset = static_cast<std::size_t>(round) * 4096 + 8;
    if (by_cpu) send.at()[offset] ^= sent[offset] ^ sent[offset + 1];
    send_receive(send.at(offset), receive.at(offset), static_cast<int>(bytes));
    std::vector<unsigned char> wanted(got.begin() + static_cast<long>(offset),
                                      got.begin() + static_cast<long>(offset + bytes));
    if (by_cpu) {
        wanted[0] = wanted[1];
        wrong += receive.at()[offset] != wanted[0];
    }
    receive.check(wanted, offset);
}

void short_alike() {
    for (int round = 0; round < 12; ++round) sized(round, 16384, false);
}

void short_mixed() {
    for (int round = 0; round < 60; ++round) {
        constexpr std::size_t sizes[] = {61440, 8192, 30000, 4097, 65535, 12289, 8191};
        sized(round, sizes[round % 7], round % 11 == 10);
    }
}

void later() {
    rounds([](const Memory& send, const Memory& receive, int) {
        MPI_Request all[4];
        constexpr int kHalf = kBytes / 2;
        MPI_Irecv(receive.at(), kHalf, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
        MPI_Irecv(receive.at(kHalf), kHalf, MPI_BYTE, before(), 2, MPI_COMM_WORLD, &all[1]);
        MPI_Isend(send.at(kHalf), kHalf, MPI_BYTE, behind(), 2, MPI_COMM_WORLD, &all[2]);
        MPI_Issend(send.at(), kHalf, MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &all[3]);
        MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
    });
}

void persistent() {
    const Memory send, receive;
    MPI_Request all[2];
    MPI_Recv_init(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
    MPI_Send_init(send.at(), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &all[1]);
    for (int round = 0; round < 5; ++round) {
        send.put(content(rank, round));
        if (round % 2 != 0) std::memcpy(send.at(), content(rank, round).data(), 100000);
        receive.clear();
        MPI_Startall(2, all);
        MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
        receive.check(content(before(), round));
    }
    for (auto& request : all) MPI_Request_free(&request);
}

// Shorter than the receive has room for; of any length, learnt by a probe.
void shorter() {
    const Memory send, receive;
    for (int round = 0; round < 6; ++round) {
        const int bytes = kBytes - 70001 * (round + 1);
        send.put(content(rank, round));
        receive.clear();
        MPI_Request request;
        MPI_Isend(send.at(), bytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &request);
        MPI_Status status;
        int got = 0, room = kBytes;
        if (round % 2 != 0) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &room);
            wrong += room != bytes;
        }
        MPI_Recv(receive.at(), room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        wrong += got != bytes || status.MPI_SOURCE != before();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        receive.check(content(before(), round, static_cast<std::size_t>(bytes)));
    }
}

// The other side has ordinary memory, now and then.
void one_sided() {
    const Memory device;
    std::vector<unsigned char> host(kBytes);
    for (int round = 0; round < 9; ++round) {
        const bool device_sends = round % 3 != 1, device_receives = round % 3 != 2;
        const Memory other;
        const auto all = content(rank, round);
        if (device_sends) device.put(all);
        other.clear();
        send_receive(device_sends ? device.at() : all.data(), device_receives ? other.at() : host.data(), kBytes);
        if (device_receives)
            other.check(content(before(), round));
        else
            for (std::size_t i = 0; i < kBytes; ++i) wrong += host[i] != expected(before(), round, i);
    }
}

// The receiver has it apart, in every other kilobyte of its memory: ordinary memory, then an object.
void spread() {
    MPI_Datatype every_other;
    MPI_Type_vector(kBytes / 1024, 1024, 2048, MPI_BYTE, &every_other);
    MPI_Type_commit(&every_other);
    const Memory send, receive, wide(2 * kBytes);
    std::vector<unsigned char> host(2 * kBytes);
    for (int round = 0; round < 6; ++round) {
        send.put(content(rank, round));
        receive.clear();
        const auto exchange = [&](void* to, int count, MPI_Datatype type) {
            MPI_Sendrecv(send.at(), kBytes, MPI_BYTE, behind(), 1, to, count, type, before(), 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        };
        exchange(receive.at(), kBytes, MPI_BYTE);
        receive.check(content(before(), round));
        exchange(round % 2 != 0 ? wide.at() : host.data(), 1, every_other);
        if (round % 2 != 0) cudaMemcpy(host.data(), wide.at(), host.size(), cudaMemcpyDeviceToHost);
        for (std::size_t i = 0; i < kBytes; ++i)
            wrong += host[i / 1024 * 2048 + i % 1024] != expected(before(), round, i);
    }
    MPI_Type_free(&every_other);
}

// Ranks have other numbers in other communicators.
void communicators() {
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    int mine;
    MPI_Comm_rank(turned, &mine);
    const Memory send, receive;
    for (int round = 0; round < 4; ++round) {
        for (int hop = 1; hop <= ranks; ++hop) {  // the last one to itself
            send.put(content(rank, round + hop));
            receive.clear();
            const int to = (mine + hop) % ranks, from = (mine + hop * (ranks - 1)) % ranks;
            MPI_Sendrecv(send.at(), kBytes, MPI_BYTE, to, 1, receive.at(), kBytes, MPI_BYTE, from, 1, turned,
                         MPI_STATUS_IGNORE);
            receive.check(content(ranks - 1 - from, round + hop));
        }
    }
    // A communicator may be freed while a message is under way.
    const Memory fresh;
    MPI_Request all[2];
    fresh.put(content(rank, 99));
    receive.clear();
    MPI_Irecv(receive.at(), kBytes, MPI_BYTE, (mine + 1) % ranks, 1, turned, &all[0]);
    MPI_Isend(fresh.at(), kBytes, MPI_BYTE, (mine + ranks - 1) % ranks, 1, turned, &all[1]);
    MPI_Comm_free(&turned);
    MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
    receive.check(content(ranks - 1 - (mine + 1) % ranks, 99));
}

// A buffered send reads its buffer at once; a collective call may pass on what came.
void copied() {
    std::vector<char> buffer(2 * kBytes + 2 * MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(buffer.data(), static_cast<int>(buffer.size()));
    rounds([](const Memory& send, const Memory& receive, int round) {
        if (round < 2) return send_receive(send.at(), receive.at(), kBytes);
        MPI_Request request;
        MPI_Irecv(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &request);
        MPI_Bsend(send.at(), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    void* back;
    int size;
    MPI_Buffer_detach(&back, &size);
    const Memory all;
    for (int round = 0; round < 3; ++round) {
        all.clear();
        if (rank == round % ranks) all.put(content(rank, round));
        MPI_Bcast(all.at(), kBytes, MPI_BYTE, round % ranks, MPI_COMM_WORLD);
        all.check(content(round % ranks, round));
    }
}

// Ranks at a border exchange with nobody.
void nobody() {
    constexpr int kNobody = MPI_PROC_NULL;
    const Memory send, receive;
    send.put(content(rank, 1));
    receive.clear();
    MPI_Request all[4];
    MPI_Status status;
    int got = -1;
    MPI_Irecv(receive.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD, &all[0]);
    MPI_Isend(send.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD, &all[1]);
    MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
    MPI_Send(send.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD);
    MPI_Recv(receive.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    wrong += got != 0 || status.MPI_SOURCE != kNobody;
    MPI_Sendrecv(send.at(), kBytes, MPI_BYTE, kNobody, 1, receive.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD,
                 &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    wrong += got != 0 || status.MPI_SOURCE != kNobody;
    MPI_Sendrecv_replace(receive.at(), kBytes, MPI_BYTE, kNobody, 1, kNobody, 1, MPI_COMM_WORLD, &status);
    MPI_Send_init(send.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD, &all[2]);
    MPI_Recv_init(receive.at(), kBytes, MPI_BYTE, kNobody, 1, MPI_COMM_WORLD, &all[3]);
    for (int round = 0; round < 2; ++round) {
        MPI_Startall(2, all + 2);
        MPI_Waitall(2, all + 2, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&all[2]);
    MPI_Request_free(&all[3]);
    receive.check({});
    send.check(content(rank, 1));
}

// A chain without ends that meet: the first rank receives from nobody, the last one sends to nobody.
void chain() {
    const Memory send, receive;
    for (int round = 0; round < 4; ++round) {
        send.put(content(rank, round));
        receive.clear();
        const int to = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL, from = rank > 0 ? rank - 1 : MPI_PROC_NULL;
        if (round % 2 == 0) {
            MPI_Sendrecv(send.at(), kBytes, MPI_BYTE, to, 1, receive.at(), kBytes, MPI_BYTE, from, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            receive.check(rank > 0 ? content(rank - 1, round) : std::vector<unsigned char>());
        } else {
            MPI_Sendrecv_replace(send.at(), kBytes, MPI_BYTE, to, 1, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            send.check(content(rank > 0 ? rank - 1 : rank, round));
        }
    }
}

const std::map<std::string, void (*)()> kCases = {
    {"blocking", blocking},   {"later", later},   {"persistent", persistent},       {"shorter", shorter},
    {"one_sided", one_sided}, {"spread", spread}, {"communicators", communicators}, {"copied", copied},
    {"nobody", nobody},       {"chain", chain},   {"short_alike", short_alike},     {"short_mixed", short_mixed},
};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, kCases); }
