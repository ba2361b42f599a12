// SPDX-License-Identifier: MIT
// Large messages of device memory between processes of one host, which libhpe moves from device to device, with what a
// program may do to its memory, streams and devices before, meanwhile and after. Every byte of the objects is checked,
// also those beside the messages. Other forms of messages: mpi_direct_forms.cpp. usage: mpi_direct CASE...; without a
// case prints all. Each rank prints how many bytes were wrong.
#include <cuda_runtime.h>
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "mpi_messages.h"

namespace {

void exchanged() {
    rounds([](const Memory& send, const Memory& receive, int) { send_receive(send.at(), receive.at(), kBytes); });
}

// Every other piece of 24 bytes, in the order in which they lie; half of them in the second message. The gaps stay.
void send_vectors(bool at_once) {
    constexpr int kPiece = 24, kPieces = kBytes / kPiece / 2;
    MPI_Datatype type;
    MPI_Type_vector(kPieces, kPiece, 2 * kPiece, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    const auto gaps = [](std::vector<unsigned char> all, const std::vector<unsigned char>& filled) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (i / kPiece % 2 != 0 || i / kPiece >= 2 * kPieces) all[i] = filled[i];
        }
        return all;
    };
    const std::vector<unsigned char> cleared(kBytes, 0xEE);
    rounds_of(
        [&](const Memory& send, const Memory& receive, int) {
            MPI_Request all[2];
            MPI_Status status;
            int bytes = 0;
            if (at_once) {
                MPI_Sendrecv(send.at(), 1, type, behind(), 1, receive.at(), 1, type, before(), 1, MPI_COMM_WORLD,
                             &status);
            } else {
                MPI_Irecv(receive.at(), 1, type, before(), 1, MPI_COMM_WORLD, &all[0]);
                MPI_Isend(send.at(), 1, type, behind(), 1, MPI_COMM_WORLD, &all[1]);
                MPI_Wait(&all[0], &status);
                MPI_Wait(&all[1], MPI_STATUS_IGNORE);
            }
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            wrong += bytes != kPiece * kPieces;
        },
        [&](int round) { return gaps(content(before(), round), cleared); }, 6);
    MPI_Type_free(&type);
}
void vectors() { send_vectors(true); }
void vectors_later() { send_vectors(false); }

// The CPU has written parts of what is sent, the last time just before.
void written() {
    rounds(
        [](const Memory& send, const Memory& receive, int round) {
            send.put(std::vector<unsigned char>(kBytes / 4));
            send.put({0}, kBytes - 1);
            const auto all = content(rank, round);
            std::memcpy(send.at(), all.data(), kBytes / 4);
            send.at()[kBytes - 1] = all[kBytes - 1];
            send_receive(send.at(), receive.at(), kBytes);
            wrong += receive.at()[7] != expected(before(), round, 7);  // the CPU reads what came
        },
        6);
}

// Beside the messages, in the same blocks, the CPU reads and writes while they are under way.
void beside() {
    constexpr std::size_t kAt = 4097 + 33;
    const Memory send(kBytes + 100000), receive(kBytes + 100000);
    for (int round = 0; round < 5; ++round) {
        send.clear();
        send.put(content(rank, round), kAt);
        receive.clear();
        MPI_Request all[2];
        MPI_Irecv(receive.at(kAt), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
        std::memset(receive.at(), 0xEE, kAt);
        MPI_Isend(send.at(kAt), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &all[1]);
        std::memset(send.at(kAt + kBytes), 0xEE, 100);
        wrong += receive.at()[kAt + kBytes] != 0xEE;
        std::memset(receive.at(kAt + kBytes), 0xEE, 64);
        MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
        // In blocks that the CPU used before the message came.
        const auto came = content(before(), round);
        wrong += receive.at()[kAt] != came.front();
        wrong += receive.at()[kAt + kBytes - 1] != came.back();
        receive.check(content(before(), round), kAt);
        send.check(content(rank, round), kAt);
    }
}

// Objects come and go, at the same addresses too.
void renewed() {
    std::vector<const void*> addresses;
    for (int round = 0; round < 8; ++round) {
        const Memory send(kBytes + static_cast<std::size_t>(round % 3) * 65536), receive;
        addresses.push_back(send.at());
        for (int again = 0; again < 3; ++again) {
            send.put(content(rank, round + again));
            receive.clear();
            send_receive(send.at(), receive.at(), kBytes);
            receive.check(content(before(), round + again));
        }
    }
}

// Device work is under way when the message comes; its stream waits for the host until the message is there.
void busy() {
    const Memory send, receive, other;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int round = 0; round < 4; ++round) {
        send.put(content(rank, round));
        receive.clear();
        cudaDeviceSynchronize();
        MPI_Request all[2];
        if (round % 2 == 0) MPI_Irecv(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
        MPI_Isend(send.at(), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &all[1]);
        cudaMemsetAsync(other.at(), round, kBytes, stream);
        if (round % 2 != 0) MPI_Irecv(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
        MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
        receive.check(content(before(), round));
    }
    cudaStreamDestroy(stream);
}

// The device is still writing what is sent, and where messages come to, in a stream that no call has waited for.
void unfinished() {
    const Memory send, receive;
    unsigned char* pinned = nullptr;
    cudaStream_t stream;
    if (cudaMallocHost(&pinned, kBytes) != cudaSuccess) MPI_Abort(MPI_COMM_WORLD, 1);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int round = 0; round < 3; ++round) {
        const auto mine = content(rank, round);
        std::memcpy(pinned, mine.data(), kBytes);
        for (int i = 0; i < 10; ++i) cudaMemsetAsync(receive.at(), i, kBytes, stream);
        cudaMemcpyAsync(send.at(), pinned, kBytes, cudaMemcpyHostToDevice, stream);
        MPI_Sendrecv(send.at(), kBytes, MPI_BYTE, behind(), 1, receive.at(), kBytes, MPI_BYTE, before(), 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        receive.check(content(before(), round));
    }
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
}

// The program has exported its memory to another process, whose it is, too: all sizes, vectors and a reduction.
void exported() {
    const Memory send, receive;
    cudaIpcMemHandle_t handle;
    for (auto* const memory : {send.at(), receive.at()}) {
        if (cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int round = 0;
    for (const int bytes : {8, 3000, 70000, 600000, kBytes}) {
        send.put(content(rank, ++round));
        receive.clear();
        send_receive(send.at(), receive.at(), bytes);
        receive.check(content(before(), round, static_cast<std::size_t>(bytes)));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Datatype rows;
    MPI_Type_vector(200, 40, 100, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    receive.clear();
    MPI_Sendrecv(send.at(), 1, rows, behind(), 1, receive.at(), 8000, MPI_BYTE, before(), 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    const auto whole = content(before(), round);
    std::vector<unsigned char> packed;
    for (std::size_t row = 0; row < 200; ++row) {
        packed.insert(packed.end(), &whole[row * 100], &whole[row * 100 + 40]);
    }
    receive.check(packed);
    receive.clear();
    MPI_Allreduce(send.at(), receive.at(), kBytes, MPI_UNSIGNED_CHAR, MPI_BXOR, MPI_COMM_WORLD);
    std::vector<unsigned char> sum(kBytes);
    for (int r = 0; r < ranks; ++r) {
        const auto one = content(r, round);
        for (std::size_t i = 0; i < kBytes; ++i) sum[i] ^= one[i];
    }
    receive.check(sum);
    MPI_Type_free(&rows);
}

// In several pieces, and the CPU's bytes beside them in the same blocks.
void large() {
    constexpr std::size_t kLarge = (std::size_t{21} << 20) + 777, kAt = 4099;
    const Memory send(kLarge + 2 * kAt), receive(kLarge + 2 * kAt);
    for (int round = 0; round < 3; ++round) {
        send.clear();
        send.put(content(rank, round, kLarge), kAt);
        receive.clear();
        MPI_Request all[2];
        MPI_Irecv(receive.at(kAt), static_cast<int>(kLarge), MPI_BYTE, before(), 1, MPI_COMM_WORLD, &all[0]);
        MPI_Isend(send.at(kAt), static_cast<int>(kLarge), MPI_BYTE, behind(), 1, MPI_COMM_WORLD, &all[1]);
        std::memset(send.at(), 0xEE, 5);
        MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
        receive.check(content(before(), round, kLarge), kAt);
        send.check(content(rank, round, kLarge), kAt);
    }
}

// One buffer to all others at once, and parts of it that overlap; each send ends when its own receiver has it.
void to_all() {
    constexpr int kPart = kBytes - 300000;
    const Memory send;
    std::vector<std::unique_ptr<Memory>> receive;
    for (int i = 0; i < 3 * ranks; ++i) receive.push_back(std::make_unique<Memory>());
    for (int round = 0; round < 5; ++round) {
        send.put(content(rank, round));
        std::vector<MPI_Request> all;
        const auto at = [&](int other, int part) -> Memory& {
            return *receive[static_cast<std::size_t>(3 * other + part)];
        };
        for (int other = 0; other < ranks; ++other) {
            for (int part = 0; part < 3; ++part) {
                at(other, part).clear();
                if (other == rank) continue;
                all.push_back({});
                MPI_Irecv(at(other, part).at(), kBytes, MPI_BYTE, other, part, MPI_COMM_WORLD, &all.back());
            }
        }
        for (int hop = 1; hop < ranks; ++hop) {
            for (int part = 0; part < 3; ++part) {
                all.push_back({});
                MPI_Isend(send.at(static_cast<std::size_t>(part) * 150000), part == 0 ? kBytes : kPart, MPI_BYTE,
                          (rank + hop) % ranks, part, MPI_COMM_WORLD, &all.back());
            }
        }
        MPI_Waitall(static_cast<int>(all.size()), all.data(), MPI_STATUSES_IGNORE);
        for (int other = 0; other < ranks; ++other) {
            const auto bytes = content(other, round);
            for (int part = 0; part < 3 && other != rank; ++part) {
                const auto from = bytes.begin() + part * 150000;
                at(other, part).check({from, from + (part == 0 ? kBytes : kPart)});
            }
        }
        send.check(content(rank, round));
    }
}

// The object goes when the send is over, perhaps before the receiver's device has all of it; a new one has its place.
void gone() {
    const Memory receive;
    for (int round = 0; round < 6; ++round) {
        auto send = std::make_unique<Memory>();
        for (int again = 0; again < 3; ++again) {
            send->put(content(rank, round + again));
            receive.clear();
            MPI_Request request;
            MPI_Irecv(receive.at(), kBytes, MPI_BYTE, before(), 1, MPI_COMM_WORLD, &request);
            MPI_Send(send->at(), kBytes, MPI_BYTE, behind(), 1, MPI_COMM_WORLD);
            if (again == 2) {
                send.reset();
                Memory().clear();
            } else {
                send->put(std::vector<unsigned char>(kBytes, 7));
            }
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            receive.check(content(before(), round + again));
        }
    }
}

// Of pools, whose memory CUDA shares in another way.
void pools() {
    for (int turn = 0; turn < 3; ++turn) {
        const Memory send(kBytes, true), receive(kBytes, true);
        for (int round = 0; round < 4; ++round) {
            send.put(content(rank, round));
            receive.clear();
            send_receive(send.at(), receive.at(), kBytes);
            receive.check(content(before(), round));
        }
    }
}

// The device is reset while others know it.
void reset() {
    for (int round = 0; round < 3; ++round) {
        {
            const Memory send, receive;
            for (int again = 0; again < 3; ++again) {
                send.put(content(rank, round + again));
                receive.clear();
                send_receive(send.at(), receive.at(), kBytes);
                receive.check(content(before(), round + again));
            }
        }
        if (round == rank % 2) cudaDeviceReset();
    }
}

// The receiver's memory is on one of its devices, then on another, which may not reach the sender's.
void devices() {
    int count = 0;
    cudaGetDeviceCount(&count);
    const Memory send;
    send.at()[0] = 1;  // from now on its pages are closed while the device has the newest bytes
    for (int round = 0; round < 6; ++round) {
        send.put(content(rank, round));
        cudaSetDevice(round / 2 % count);
        {
            const Memory receive;
            receive.clear();
            send_receive(send.at(), receive.at(), kBytes);
            receive.check(content(before(), round));
        }
        cudaSetDevice(0);
    }
}

// Every rank follows what all ranks do to their objects, and so knows what must be in its own: they are written by the
// CPU and by copies, read, freed and made anew, while messages of any size and place go to and fro.
void random() {
    constexpr std::size_t kObjects = 3, kSize = 1 << 20;
    std::mt19937 generator(static_cast<unsigned>(ranks));
    const auto pick = [&](std::size_t below) {
        return std::uniform_int_distribution<std::size_t>(0, below - 1)(generator);
    };
    std::vector<std::vector<unsigned char>> known(static_cast<std::size_t>(ranks) * kObjects);
    std::vector<std::unique_ptr<Memory>> own(kObjects);
    const auto of = [&](int r, std::size_t object) -> auto& {
        return known[static_cast<std::size_t>(r) * kObjects + object];
    };
    const auto renew = [&](int r, std::size_t object) {
        of(r, object) = content(r, static_cast<int>(pick(250)), kSize);
        if (r != rank) return;
        own[object] = nullptr;
        own[object] = std::make_unique<Memory>(kSize);
        own[object]->put(of(r, object));
    };
    for (int r = 0; r < ranks; ++r)
        for (std::size_t object = 0; object < kObjects; ++object) renew(r, object);
    for (int round = 0; round < 150; ++round) {
        for (int r = 0; r < ranks; ++r) {
            const auto object = pick(kObjects), at = pick(kSize), bytes = 1 + pick(kSize - at), what = pick(8);
            const auto value = static_cast<int>(pick(256));
            if (what == 0) renew(r, object);
            if (what != 1 && what != 2 && what != 3) continue;
            if (what != 3) std::memset(&of(r, object)[at], value, bytes);
            if (r != rank) continue;
            if (what == 1) cudaMemset(own[object]->at(at), value, bytes);
            if (what == 2) std::memset(own[object]->at(at), value, bytes);
            if (what == 3) wrong += std::memcmp(own[object]->at(at), &of(r, object)[at], bytes) != 0;
        }
        // Each rank sends out of one object to two ranks, and receives into the two others.
        std::vector<MPI_Request> requests;
        const auto hop = static_cast<int>(pick(static_cast<std::size_t>(ranks)));
        auto after = known;
        const auto from = pick(kObjects);
        for (int r = 0; r < ranks; ++r) {
            for (std::size_t n = 1; n < kObjects; ++n) {
                const auto to = (from + n) % kObjects;
                const int receiver = (r + hop + static_cast<int>(n)) % ranks;
                const auto bytes = pick(3) == 0 ? 1 + pick(100000) : 1 + pick(kSize / 2);
                const auto out = pick(kSize - bytes), in = pick(kSize - bytes);
                std::memcpy(&after[static_cast<std::size_t>(receiver) * kObjects + to][in], &of(r, from)[out], bytes);
                const int tag = static_cast<int>(n) + 10 * r, count = static_cast<int>(bytes);
                if (receiver == rank)
                    MPI_Irecv(own[to]->at(in), count, MPI_BYTE, r, tag, MPI_COMM_WORLD, &requests.emplace_back());
                if (r == rank)
                    MPI_Isend(own[from]->at(out), count, MPI_BYTE, receiver, tag, MPI_COMM_WORLD,
                              &requests.emplace_back());
            }
        }
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
        known = std::move(after);
    }
    for (std::size_t object = 0; object < kObjects; ++object) own[object]->check(of(rank, object));
}

// A message comes out of memory that the receiver has read before, into its host memory, when nothing of the sender's
// is open there any more.
void nothing_open(bool resets) {
    const int other = rank ^ 1;
    if (other >= ranks) return;
    auto own = std::make_unique<Memory>();
    const auto message = [&](const Memory& memory, int round) {
        if (rank % 2 == 0) {
            memory.put(content(rank, round));
            MPI_Send(memory.at(), kBytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
        } else {
            memory.clear();
            MPI_Recv(memory.at(), kBytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            memory.check(content(other, round));
        }
    };
    for (int round = 0; round < 3; ++round) message(*own, round);
    if (resets && rank % 2 == 1) {
        own.reset();
        cudaDeviceReset();
    }
    // More ends of others than the receiver is told of one by one.
    {
        std::vector<std::unique_ptr<Memory>> others;
        for (int round = 0; round < 70 && !resets; ++round) {
            others.push_back(std::make_unique<Memory>(kBytes));
            message(*others.back(), round);
        }
    }
    if (rank % 2 == 0) return message(*own, 9);
    std::vector<unsigned char> host(kBytes);
    MPI_Recv(host.data(), kBytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += host != content(other, 9);
}

const std::map<std::string, void (*)()> kCases = {{"vectors", vectors},
                                                  {"vectors_later", vectors_later},
                                                  {"exchanged", exchanged},
                                                  {"random", random},
                                                  {"written", written},
                                                  {"beside", beside},
                                                  {"renewed", renewed},
                                                  {"large", large},
                                                  {"to_all", to_all},
                                                  {"gone", gone},
                                                  {"pools", pools},
                                                  {"reset", reset},
                                                  {"devices", devices},
                                                  {"busy", busy},
                                                  {"unfinished", unfinished},
                                                  {"exported", exported},
                                                  {"all_freed", [] { nothing_open(false); }},
                                                  {"all_reset", [] { nothing_open(true); }}};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, kCases); }
