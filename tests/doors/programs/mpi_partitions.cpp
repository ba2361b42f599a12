// SPDX-License-Identifier: MIT
// Partitioned messages, with host and device buffers (mpi_twins.h).
// usage: mpi_partitions CASE...; without a case prints all, which are none where MPI has no such messages. Open MPI 5.0
// has them, but brings other bytes than were sent.
#include <functional>
#include <numeric>
#include <thread>

#include "mpi_twins.h"

#if MPI_VERSION >= 4
namespace {

constexpr int kParts = 8, kRounds = 3;

int before(const Twins& w) { return (w.rank + w.ranks - 1) % w.ranks; }
int behind(const Twins& w) { return (w.rank + 1) % w.ranks; }

char value(int rank, int round, int part) { return static_cast<char>(1 + 50 * rank + 10 * round + part); }

// A partition is filled after the request was started, by the device, by the CPU or by both.
void fill(const Twins& w, bool on_device, char* at, std::size_t bytes, int round, int part) {
    const char byte = value(w.rank, round, part);
    const auto by_device = !on_device || !w.device ? 0 : part % 3 == 0 ? bytes : part % 3 == 1 ? bytes / 2 : 0;
    if (by_device != 0) cudaMemset(at, byte, by_device);
    std::memset(at + by_device, byte, bytes - by_device);
}

// Makes the partitions known that are filled; `first` of 0, 4 and 6.
using Ready = std::function<void(MPI_Request, int first, int count)>;

void one_by_one(MPI_Request request, int first, int count) {
    for (int i = count - 1; i >= 0; --i) MPI_Pready(first + i, request);
}
void by_range(MPI_Request request, int first, int count) { MPI_Pready_range(first, first + count - 1, request); }
void by_list(MPI_Request request, int first, int count) {
    std::vector<int> list(static_cast<std::size_t>(count));
    std::iota(list.rbegin(), list.rend(), first);
    MPI_Pready_list(count, list.data(), request);
}

// What came is there as soon as MPI says so, partition by partition: each holds the bytes of two of the sender's.
void look(Twins& w, MPI_Request in, char* r, std::size_t bytes, int round, bool all) {
    for (int part = 0; part < kParts / 2; ++part) {
        int flag = 0;
        do MPI_Parrived(in, part, &flag);
        while (all && !flag);
        for (int i = 0; flag && i < 2; ++i) {
            const char* const at = r + (2 * static_cast<std::size_t>(part) + static_cast<std::size_t>(i)) * bytes;
            const char wanted = value(before(w), round, 2 * part + i);
            if (at[0] == wanted && at[bytes / 2] == wanted && at[bytes - 1] == wanted) continue;
            w.complain("a partition that has arrived is not there");
        }
    }
}

void ready(Twins& w, const Ready& make_ready) {
    for (const int n : {100, 100000}) {
        const auto bytes = 4 * static_cast<std::size_t>(n);
        Pair send(w, kParts * bytes), receive(w, kParts * bytes + 64);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
            MPI_Request in, out;
            MPI_Precv_init(r, kParts / 2, 2 * n, MPI_INT, before(w), 1, comm, MPI_INFO_NULL, &in);
            MPI_Psend_init(s, kParts, n, MPI_INT, behind(w), 1, comm, MPI_INFO_NULL, &out);
            for (int round = 0; round < kRounds; ++round) {
                MPI_Request* const order[2] = {round == 1 ? &out : &in, round == 1 ? &in : &out};
                for (MPI_Request* request : order) MPI_Start(request);
                for (const auto& [first, count] : {std::pair{4, 2}, {0, 4}, {6, 2}}) {
                    for (int part = first; part < first + count; ++part)
                        fill(w, s != send.host(), s + static_cast<std::size_t>(part) * bytes, bytes, round, part);
                    make_ready(out, first, count);
                    look(w, in, r, bytes, round, false);
                }
                if (round != 2) look(w, in, r, bytes, round, true);
                int done = 0;
                if (round == 1) {
                    while (!done) MPI_Test(&in, &done, MPI_STATUS_IGNORE);
                    MPI_Wait(&out, MPI_STATUS_IGNORE);
                } else {
                    MPI_Request requests[2] = {in, out};
                    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
                }
                // Inactive: it is the program's again, and nothing is to be written.
                r[round] ^= 5;
                s[round] ^= 5;
                MPI_Wait(&in, MPI_STATUS_IGNORE);
                said.push_back(r[round]);
            }
            MPI_Request_free(&in);
            MPI_Request_free(&out);
            said.push_back(in == MPI_REQUEST_NULL && out == MPI_REQUEST_NULL);
        });
    }
}

// Elements with gaps, of a type that the program has freed; the gaps are left alone.
void gaps(Twins& w) {
    const int ints = 30000;
    MPI_Datatype type, part;
    MPI_Type_vector(ints / 3, 2, 3, MPI_INT, &type);
    MPI_Type_create_resized(type, 0, 4 * ints, &part);
    Pair send(w, 4ul * ints * kParts), receive(w, 4ul * ints * kParts);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Request both[2];
        MPI_Datatype mine;
        MPI_Type_dup(part, &mine);
        MPI_Type_commit(&mine);
        MPI_Precv_init(r, kParts, 1, mine, before(w), 1, comm, MPI_INFO_NULL, &both[0]);
        MPI_Psend_init(s, kParts, 1, mine, behind(w), 1, comm, MPI_INFO_NULL, &both[1]);
        MPI_Type_free(&mine);
        for (int round = 0; round < kRounds; ++round) {
            MPI_Startall(2, both);
            for (int i = 0; i < kParts; ++i) s[4 * ints * i + round] = static_cast<char>(w.rank + round + i);
            MPI_Pready_range(0, kParts - 1, both[1]);
            int arrived = 0;
            while (!arrived) MPI_Parrived(both[0], 3, &arrived);
            MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        }
        for (auto& request : both) MPI_Request_free(&request);
    });
    for (MPI_Datatype* each : {&type, &part}) MPI_Type_free(each);
}

// Every partition has a thread that makes it ready, and another one that waits for it; a further one completes the
// send.
void threads(Twins& w) {
    const std::size_t n = 30000, bytes = 4 * n;
    Pair send(w, kParts * bytes), receive(w, kParts * bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Request in, out;
        MPI_Precv_init(r, kParts, n, MPI_INT, before(w), 1, comm, MPI_INFO_NULL, &in);
        MPI_Psend_init(s, kParts, n, MPI_INT, behind(w), 1, comm, MPI_INFO_NULL, &out);
        for (int round = 0; round < kRounds; ++round) {
            MPI_Start(&in);
            MPI_Start(&out);
            std::vector<int> wrong(kParts);
            std::vector<std::thread> all;
            for (int part = 0; part < kParts; ++part) {
                all.emplace_back([&, part] {
                    fill(w, s != send.host(), s + static_cast<std::size_t>(part) * bytes, bytes, round, part);
                    MPI_Pready(part, out);
                });
                all.emplace_back([&, part] {
                    for (int flag = 0; !flag; std::this_thread::yield()) MPI_Parrived(in, part / 2, &flag);
                    for (std::size_t at = 0; at < bytes; ++at) {
                        wrong[static_cast<std::size_t>(part)] +=
                            r[static_cast<std::size_t>(part / 2) * bytes + at] != value(before(w), round, part / 2);
                    }
                });
            }
            all.emplace_back([&] {
                for (int done = 0; !done; std::this_thread::yield()) MPI_Test(&out, &done, MPI_STATUS_IGNORE);
            });
            for (auto& thread : all) thread.join();
            for (const int bad : wrong) {
                if (bad != 0) w.complain(std::to_string(bad) + " bytes of a partition that has arrived");
            }
            MPI_Wait(&in, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&in);
        MPI_Request_free(&out);
    });
}

// Requests of host memory beside those of objects, with handles that MPI gives out again, and one to and from nobody.
void mixed(Twins& w) {
    Pair send(w, 4000), receive(w, 4000);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        std::vector<char> host_send(4000, static_cast<char>(w.rank + 1)), host_receive(4000);
        for (int round = 0; round < 2 * kRounds; ++round) {
            const bool host = round % 2 == 0;
            MPI_Request all[4];
            MPI_Precv_init(host ? host_receive.data() : r, 4, 250, MPI_INT, before(w), 1, comm, MPI_INFO_NULL, &all[0]);
            MPI_Psend_init(host ? host_send.data() : s, 2, 500, MPI_INT, behind(w), 1, comm, MPI_INFO_NULL, &all[1]);
            MPI_Send_init(s, 10, MPI_INT, MPI_PROC_NULL, 1, comm, &all[2]);
            MPI_Recv_init(r, 10, MPI_INT, MPI_PROC_NULL, 1, comm, &all[3]);
            MPI_Startall(4, all);
            s[round] = static_cast<char>(round);
            MPI_Pready_range(0, 1, all[1]);
            MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
            said.push_back(host_receive[77]);
            said.push_back(r[round]);
            for (auto& request : all) MPI_Request_free(&request);
        }
    });
}

const Cases cases = {
    {"one_by_one", [](Twins& w) { ready(w, one_by_one); }},
    {"by_range", [](Twins& w) { ready(w, by_range); }},
    {"by_list", [](Twins& w) { ready(w, by_list); }},
    {"gaps", gaps},
    {"threads", threads},
    {"mixed", mixed},
};

}  // namespace
#else
namespace {
const Cases cases;
}
#endif

int main(int argc, char** argv) { return run_cases(argc, argv, cases, 13, MPI_THREAD_MULTIPLE); }
