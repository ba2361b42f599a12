// SPDX-License-Identifier: MIT
// Cases of MPI calls of all sorts, with host and device buffers (mpi_twins.h). Requests: mpi_requests.cpp,
// files: mpi_files.cpp. usage: mpi_calls CASE...; without a case prints all.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "mpi_twins.h"

namespace {

constexpr int kSmall = 100, kLarge = 300000;  // ints: below and above what MPI sends at once

int before(const Twins& w) { return (w.rank + w.ranks - 1) % w.ranks; }
int behind(const Twins& w) { return (w.rank + 1) % w.ranks; }

int class_of(int error) {
    int result = 0;
    MPI_Error_class(error, &result);
    return result;
}

// A message that is too long, alone and among others. What it leaves in its buffer is nobody's business.
void too_long(Twins& w) {
    Pair send(w, 8 * kSmall), receive(w, 8 * kSmall), good(w, 8 * kSmall);
    both(w, send, good, [&](MPI_Comm comm, char* s, char* g, Said& said) {
        char* const r = g == good.host() ? receive.host() : receive.device();
        for (MPI_Comm one : {comm, MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(one, MPI_ERRORS_RETURN);
        MPI_Request out[3], in[2];
        for (int i = 0; i < 3; ++i) MPI_Isend(s, 2 * kSmall, MPI_INT, behind(w), i, comm, &out[i]);
        said.push_back(class_of(MPI_Recv(r, kSmall, MPI_INT, before(w), 0, comm, MPI_STATUS_IGNORE)));
        MPI_Irecv(r, kSmall, MPI_INT, before(w), 1, comm, &in[0]);
        MPI_Irecv(g, 2 * kSmall, MPI_INT, before(w), 2, comm, &in[1]);
        MPI_Waitall(3, out, MPI_STATUSES_IGNORE);
#ifdef OPEN_MPI
        // Its waitall never returns from an error.
        said.push_back(class_of(MPI_Wait(&in[0], MPI_STATUS_IGNORE)));
        said.push_back(class_of(MPI_Wait(&in[1], MPI_STATUS_IGNORE)));
#else
        said.push_back(class_of(MPI_Waitall(2, in, MPI_STATUSES_IGNORE)));
        MPI_Wait(&in[1], MPI_STATUS_IGNORE);  // if the error came first
#endif
        said.push_back(class_of(MPI_Send(s, 1, MPI_INT, 12345, 0, comm)));
        said.push_back(class_of(MPI_Recv(g, -1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE)));
        for (MPI_Comm one : {comm, MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(one, MPI_ERRORS_ARE_FATAL);
    });
}

// One type names bytes of two objects and of the host, by addresses.
void addresses(Twins& w) {
    Pair send(w, 70000), receive(w, 70000), more(w, 70000);
    static int on_stack_of[2] = {0, 0};
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        const bool host = s == send.host();
        char* const third = host ? more.host() : more.device();
        int* const here = &on_stack_of[host];
        *here = 0;
        int mine = w.rank + 5;
        int lengths[3] = {1, 9000, 9000};
        MPI_Aint from[3], to[3];
        MPI_Get_address(&mine, &from[0]), MPI_Get_address(s + 4, &from[1]), MPI_Get_address(s + 33000, &from[2]);
        MPI_Get_address(here, &to[0]), MPI_Get_address(r + 12, &to[1]), MPI_Get_address(third + 8, &to[2]);
        MPI_Datatype types[2];
        MPI_Type_create_hindexed(3, lengths, from, MPI_INT, &types[0]);
        MPI_Type_create_hindexed(3, lengths, to, MPI_INT, &types[1]);
        for (auto& type : types) MPI_Type_commit(&type);
        lengths[1] = 4;  // the types have their own
        MPI_Sendrecv(MPI_BOTTOM, 1, types[0], behind(w), 1, MPI_BOTTOM, 1, types[1], before(w), 1, comm,
                     MPI_STATUS_IGNORE);
        said.push_back(*here);
        for (auto& type : types) MPI_Type_free(&type);
    });
    more.check("the second buffer");
}

// Short messages between work of the device and of the CPU on the same bytes, or with none in between.
void between_work(Twins& w) {
    for (const std::size_t bytes : {1, 700, 5000, 40000, 200000}) {
        Pair send(w, 3 * bytes), receive(w, 3 * bytes);
        const auto seed = w.own();
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
            const bool on_device = s == send.device() && w.device;
            std::mt19937 random(seed), same(static_cast<unsigned>(bytes));
            const auto set = [&](char* at) {
                const auto value = static_cast<int>(random() % 256);
                if (on_device)
                    cudaMemset(at, value, bytes / 2 + 1);
                else
                    std::memset(at, value, bytes / 2 + 1);
            };
            unsigned turn = 0;
            for (int round = 0; round < 60; ++round) {
                if (round % 12 == 0) turn = same() % 4;
                const auto from = random() % (2 * bytes), to = random() % (2 * bytes), there = random() % (3 * bytes);
                if (turn == 0 || turn == 1) set(s + from);
                if (turn == 1) set(r + to);
                if (turn == 2) {
                    s[there] = static_cast<char>(round);
                    said.push_back(r[there]);
                }
                const auto n = static_cast<int>(bytes);
                if (round % 2 == 0) {
                    MPI_Sendrecv(s + from, n, MPI_CHAR, behind(w), 1, r + to, n, MPI_CHAR, before(w), 1, comm,
                                 MPI_STATUS_IGNORE);
                    continue;
                }
                MPI_Request requests[2];
                MPI_Isend(s + from, n, MPI_CHAR, behind(w), 2, comm, &requests[0]);
                MPI_Irecv(r + to, n, MPI_CHAR, before(w), 2, comm, &requests[1]);
                MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
                MPI_Allreduce(MPI_IN_PLACE, r + to, 1, MPI_CHAR, MPI_BOR, comm);
            }
        });
    }
}

// Types that name addresses of the host alone, so far apart that all that is on the device lies between them.
void around_the_device(Twins& w) {
    Pair send(w, 4 * kSmall), receive(w, 4 * kSmall);
    constexpr std::uintptr_t kLow = 0x20000000;
    int* const low = static_cast<int*>(mmap(reinterpret_cast<void*>(kLow), 8 * kSmall, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    if (low == MAP_FAILED) return w.complain("no memory at a low address");
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        int high[2 * kSmall];
        MPI_Datatype types[2];
        for (int t = 0; t < 2; ++t) {
            const int lengths[2] = {kSmall, kSmall};
            MPI_Aint at[2];
            MPI_Get_address(low + t * kSmall, &at[0]), MPI_Get_address(high + t * kSmall, &at[1]);
            MPI_Type_create_hindexed(2, lengths, at, MPI_INT, &types[t]);
            MPI_Type_commit(&types[t]);
        }
        for (int i = 0; i < 2 * kSmall; ++i) low[i] = high[i] = w.rank * 1000 + i;
        MPI_Sendrecv(MPI_BOTTOM, 1, types[0], behind(w), 1, MPI_BOTTOM, 1, types[1], before(w), 1, comm,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(s, kSmall, MPI_INT, behind(w), 1, r, kSmall, MPI_INT, before(w), 1, comm, MPI_STATUS_IGNORE);
        said.insert(said.end(), low, low + 2 * kSmall), said.insert(said.end(), high, high + 2 * kSmall);
        MPI_Bcast(MPI_BOTTOM, 1, types[w.rank != 0], 0, comm);
        said.insert(said.end(), low, low + 2 * kSmall), said.insert(said.end(), high, high + 2 * kSmall);
        for (auto& type : types) MPI_Type_free(&type);
    });
    munmap(low, 8 * kSmall);
}

void buffered(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge);
    std::vector<char> attached(4 * kLarge + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Bsend(s, kLarge, MPI_INT, behind(w), 1, comm);
        s[0] ^= 1;  // it is the program's again
        MPI_Recv(r, kLarge, MPI_INT, before(w), 1, comm, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);
    });
    void* memory;
    int size;
    MPI_Buffer_detach(&memory, &size);
}

void packed(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge + 100);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        int at = 0;
        MPI_Pack(s + 40, 1000, MPI_DOUBLE, r, 4 * kLarge, &at, comm);
        MPI_Pack(s + 9000, 50, MPI_SHORT, r, 4 * kLarge, &at, comm);
        said.push_back(at);
        MPI_Sendrecv_replace(r, at, MPI_PACKED, behind(w), 1, before(w), 1, comm, MPI_STATUS_IGNORE);
        at = 0;
        MPI_Unpack(r, 4 * kLarge, &at, s + 100000, 1000, MPI_DOUBLE, comm);
        MPI_Reduce_local(s + 200000, r + 200000, 1000, MPI_INT, MPI_BXOR);
    });
}

// Elements of predefined pairs, with gaps, from anywhere to the host.
void pairs_of_types(Twins& w) {
    constexpr int kCount = 20000;
    Pair send(w, 3 * 16 * kCount), receive(w, 4);
    std::vector<char> came(3 * 16 * kCount);
    for (const MPI_Datatype type : {MPI_DOUBLE_INT, MPI_LONG_INT, MPI_SHORT_INT, MPI_2INT, MPI_C_LONG_DOUBLE_COMPLEX}) {
        MPI_Datatype gaps;
        MPI_Type_vector(type == MPI_C_LONG_DOUBLE_COMPLEX ? kCount / 2 : kCount, 1, 3, type, &gaps);
        MPI_Type_commit(&gaps);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char*, Said& said) {
            std::fill(came.begin(), came.end(), char{7});
            MPI_Status status;
            MPI_Sendrecv(s, 1, gaps, behind(w), 1, came.data(), 1, gaps, before(w), 1, comm, &status);
            say_status(said, status, gaps);
            // Of a long double MPI may leave out the six bytes that are not used.
            for (std::size_t i = 0; i < came.size(); i += 16) said.push_back(came[i]);
        });
        MPI_Type_free(&gaps);
    }
}

// Arguments that mean something to the root alone are anything elsewhere: nowhere, or memory that is not to change.
void insignificant(Twins& w) {
    constexpr int n = kSmall;
    const auto bytes = static_cast<std::size_t>(4 * n * w.ranks);
    Pair send(w, bytes), receive(w, bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        void* const nowhere = reinterpret_cast<void*>(16);
        const auto* const no_counts = static_cast<int*>(nowhere);
        std::vector<int> counts(static_cast<std::size_t>(w.ranks), n), places;
        for (int i = 0; i < w.ranks; ++i) places.push_back(i * n);
        for (int root = 0; root < w.ranks; ++root) {
            const bool here = w.rank == root;
            MPI_Gather(s, n, MPI_INT, here ? r : nowhere, here ? n : -1, here ? MPI_INT : MPI_DATATYPE_NULL, root,
                       comm);
            MPI_Scatter(here ? s : nowhere, here ? n : -1, here ? MPI_INT : MPI_DATATYPE_NULL, r, n, MPI_INT, root,
                        comm);
            const int* const counts_here = here ? counts.data() : no_counts;
            const int* const places_here = here ? places.data() : no_counts;
            MPI_Gatherv(s, n, MPI_INT, here ? r : nowhere, counts_here, places_here, here ? MPI_INT : MPI_DATATYPE_NULL,
                        root, comm);
            MPI_Scatterv(here ? s : nowhere, counts_here, places_here, here ? MPI_INT : MPI_DATATYPE_NULL, r, n,
                         MPI_INT, root, comm);
            MPI_Reduce(s, here ? r : nowhere, n, MPI_INT, MPI_SUM, root, comm);
            MPI_Gather(s, n, MPI_INT, here ? r : s + 4, n, MPI_INT, root, comm);
            MPI_Reduce(s, here ? r : s + 4, n, MPI_INT, MPI_MAX, root, comm);
        }
    });
}

// Between two halves of the ranks.
void intercommunicator(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        const bool first = w.rank < (w.ranks + 1) / 2;
        MPI_Comm half, inter;
        MPI_Comm_split(comm, first, w.rank, &half);
        MPI_Intercomm_create(half, 0, comm, first ? (w.ranks + 1) / 2 : 0, 1, &inter);
        int rank;
        MPI_Comm_rank(half, &rank);
        const int n = 1000, root = !first ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
        MPI_Bcast(r, n, MPI_INT, root, inter);
        MPI_Gather(s, n, MPI_INT, r + 4 * n, n, MPI_INT, root, inter);
        MPI_Scatter(s + 400, n, MPI_INT, r + 40 * n, n, MPI_INT, root, inter);
        MPI_Allgather(s, n, MPI_INT, r + 50 * n, n, MPI_INT, inter);
        MPI_Allreduce(s, r + 90 * n, n, MPI_INT, MPI_SUM, inter);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    });
}

// A receive that was freed is known to be done by a later message, while another thread completes messages of its own.
void freed_among_threads(Twins& w) {
    constexpr int kRounds = 300, n = 500;
    Pair send(w, 4 * (n + kRounds)), receive(w, 4 * n);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        MPI_Comm own;
        MPI_Comm_dup(MPI_COMM_SELF, &own);
        std::atomic<bool> ended{false};
        std::thread other([&] {
            for (int from = 0, to = 0; !ended;)
                MPI_Sendrecv(&from, 1, MPI_INT, 0, 1, &to, 1, MPI_INT, 0, 1, own, MPI_STATUS_IGNORE);
        });
        for (int i = 0; i < kRounds; ++i) {
            MPI_Request in;
            MPI_Irecv(r, n, MPI_INT, before(w), 1, comm, &in);
            MPI_Request_free(&in);
            MPI_Barrier(comm);
            MPI_Send(s + 4 * i, n, MPI_INT, behind(w), 1, comm);
            MPI_Sendrecv(nullptr, 0, MPI_INT, behind(w), 2, nullptr, 0, MPI_INT, before(w), 2, comm, MPI_STATUS_IGNORE);
            said.push_back(r[4 * n - 1]);
        }
        ended = true;
        other.join();
        MPI_Comm_free(&own);
    });
}

// Threads with communicators of their own, and requests that come and go.
void threads(Twins& w) {
    constexpr int kThreads = 3, kRounds = 40;
    std::vector<MPI_Comm> comms(kThreads);
    for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    std::vector<std::thread> all;
    std::vector<long> wrong(kThreads);
    for (int t = 0; t < kThreads; ++t) {
        all.emplace_back([&, t] {
            const int n = t == 0 ? kLarge / 4 : kSmall;
            const auto comm = comms[static_cast<std::size_t>(t)];
            std::vector<int> host(static_cast<std::size_t>(3 * n));
            void* memory = host.data();
            if (w.device && cudaMalloc(&memory, static_cast<std::size_t>(n) * 12) != cudaSuccess) std::abort();
            int* const ints = static_cast<int*>(memory);
            for (int round = 0; round < kRounds; ++round) {
                for (int i = 0; i < n; ++i) ints[i] = i + round + w.rank, ints[n + i] = ints[2 * n + i] = -1;
                MPI_Request requests[3];
                MPI_Irecv(ints + n, n, MPI_INT, before(w), 1, comm, &requests[0]);
                MPI_Isend(ints, n, MPI_INT, behind(w), 1, comm, &requests[1]);
                MPI_Iallreduce(ints, ints + 2 * n, n, MPI_INT, MPI_MAX, comm, &requests[2]);
                MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
                for (int i = 0; i < n; ++i) {
                    wrong[static_cast<std::size_t>(t)] +=
                        ints[n + i] != i + round + before(w) || ints[2 * n + i] != i + round + w.ranks - 1;
                }
            }
            if (w.device) cudaFree(memory);
        });
    }
    for (auto& thread : all) thread.join();
    for (long n : wrong) {
        if (n != 0) w.complain(std::to_string(n) + " ints in threads");
    }
    for (auto& comm : comms) MPI_Comm_free(&comm);
    ++w.calls;
}

// The receive is cancelled after its object is gone: a mistake that must not end the process.
void gone(Twins& w) {
    if (w.device) {
        for (const int stride : {1, 2}) {
            void* memory;
            MPI_Datatype type;
            MPI_Type_vector(kSmall, 1, stride, MPI_INT, &type);
            MPI_Type_commit(&type);
            cudaMalloc(&memory, 8 * kSmall);
            MPI_Request in;
            MPI_Irecv(memory, 1, type, w.rank, 1, w.device_comm, &in);
            cudaFree(memory);
            std::vector<int> data(kSmall);
            MPI_Send(data.data(), kSmall, MPI_INT, w.rank, 1, w.device_comm);
            MPI_Wait(&in, MPI_STATUS_IGNORE);
            MPI_Type_free(&type);
        }
    }
    ++w.calls;
}

// A child has no device and no MPI; the parent goes on.
void child(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Request in;
        MPI_Irecv(r, kLarge, MPI_INT, before(w), 1, comm, &in);
        const pid_t pid = fork();
        if (pid == 0) _exit(0);
        waitpid(pid, nullptr, 0);
        MPI_Send(s, 1, MPI_INT, behind(w), 2, comm);
        MPI_Recv(r, 1, MPI_INT, before(w), 2, comm, MPI_STATUS_IGNORE);
        MPI_Request out;
        MPI_Isend(s, kLarge, MPI_INT, behind(w), 1, comm, &out);
        MPI_Wait(&in, MPI_STATUS_IGNORE);
        MPI_Wait(&out, MPI_STATUS_IGNORE);
    });
}

// As MPI 4 has them, and Open MPI 4 by other names.
#if MPI_VERSION >= 4
#define NAME(name) MPI_##name
#else
extern "C" {
#define NAME(name) MPIX_##name
int MPIX_Allreduce_init(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*);
int MPIX_Bcast_init(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*);
int MPIX_Gather_init(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*);
}
#endif
void persistent_collectives(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 8 * kLarge);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        MPI_Request all[2];
        NAME(Allreduce_init)(s, r, kLarge, MPI_INT, MPI_BXOR, comm, MPI_INFO_NULL, &all[0]);
        NAME(Bcast_init)(r + 4 * kLarge, kSmall, MPI_INT, 1, comm, MPI_INFO_NULL, &all[1]);
        for (int round = 0; round < 3; ++round) {
            s[round] = static_cast<char>(round * w.rank);
            MPI_Startall(2, all);
            MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
            said.push_back(r[round]);
            r[round] ^= 5;
            MPI_Waitall(2, all, MPI_STATUSES_IGNORE);  // inactive: nothing is to be written
        }
        for (auto& request : all) MPI_Request_free(&request);
        // MPICH 4.0 reads some buffers when the request is made.
        for (int root = 0; root < w.ranks; ++root) {
            const bool here = root == w.rank;
            const void* const from = here ? MPI_IN_PLACE : s + 4 * root;
            char* const to = r + 8 * kSmall * w.ranks * (root + 1);
            NAME(Gather_init)(from, kSmall, MPI_INT, to, kSmall, MPI_INT, root, comm, MPI_INFO_NULL, &all[0]);
            MPI_Start(&all[0]);
            MPI_Wait(&all[0], MPI_STATUS_IGNORE);
            MPI_Request_free(&all[0]);
        }
    });
}

#if MPI_VERSION >= 4
void large_counts(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Request in;
        MPI_Irecv_c(r, kLarge, MPI_INT, before(w), 1, comm, &in);
        MPI_Send_c(s, kLarge / 2, MPI_INT, behind(w), 1, comm);
        MPI_Wait(&in, MPI_STATUS_IGNORE);
        MPI_Allreduce_c(MPI_IN_PLACE, r, kLarge / 2, MPI_INT, MPI_BXOR, comm);
        MPI_Isendrecv(s, 10, MPI_INT, behind(w), 1, r, 20, MPI_INT, before(w), 1, comm, &in);
        MPI_Wait(&in, MPI_STATUS_IGNORE);
    });
}
#endif

// Elements with gaps in memory without a host copy, which the CPU does not access here. The last one comes in part.
void gaps_of_exported(Twins& w) {
    constexpr int kPieces = 1000, kElements = 3, kCame = 25000;
    MPI_Datatype gaps;
    MPI_Type_vector(kPieces, 10, 20, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    std::vector<int> mine(kCame), twin(kElements * kPieces * 20), now(twin.size());
    for (auto& number : mine) number = static_cast<int>(w.own());
    for (auto& number : twin) number = static_cast<int>(w.own());
    const auto bytes = twin.size() * sizeof(int);
    void* memory = nullptr;
    cudaIpcMemHandle_t handle;
    if (cudaMalloc(&memory, bytes) != cudaSuccess || cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) std::abort();
    cudaMemcpy(memory, twin.data(), bytes, cudaMemcpyHostToDevice);
    for (void* const to : {memory, static_cast<void*>(twin.data())}) {
        MPI_Sendrecv(mine.data(), kCame, MPI_INT, behind(w), 1, to, kElements, gaps, before(w), 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    cudaMemcpy(now.data(), memory, bytes, cudaMemcpyDeviceToHost);
    if (now != twin) w.complain("came wrong");
    std::vector<int> of_twin(kElements * kPieces * 10), of_memory(of_twin.size());
    for (auto& [from, to] : {std::pair<void*, std::vector<int>*>(memory, &of_memory), {twin.data(), &of_twin}}) {
        MPI_Sendrecv(from, kElements, gaps, behind(w), 2, to->data(), static_cast<int>(to->size()), MPI_INT, before(w),
                     2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (of_memory != of_twin) w.complain("sent wrong");
    cudaFree(memory);
    MPI_Type_free(&gaps);
    ++w.calls;
}

// Not among those that other ranks make with them.
const Cases alone = {{"gaps_of_exported", gaps_of_exported}};

const Cases cases = {
    {"too_long", too_long},
    {"addresses", addresses},
    {"between_work", between_work},
    {"around_the_device", around_the_device},
    {"buffered", buffered},
    {"packed", packed},
    {"pairs_of_types", pairs_of_types},
    {"insignificant", insignificant},
    {"intercommunicator", intercommunicator},
    {"threads", threads},
    {"freed_among_threads", freed_among_threads},
    {"gone", gone},
    {"child", child},
    {"persistent_collectives", persistent_collectives},
#if MPI_VERSION >= 4
    {"large_counts", large_counts},
#endif
};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, cases, 7, MPI_THREAD_MULTIPLE, 1, alone); }
