// SPDX-License-Identifier: MIT
// Parts of collective calls' buffers that lie elsewhere, and parts that are not MPI's while the call is under way.
// usage: mpi_collectives CASE...; without a case prints all.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <algorithm>
#include <cstring>

#include "mpi_messages.h"

namespace {

constexpr int kSmall = 1000, kCount = 100000;

unsigned char of(int from, int to) { return static_cast<unsigned char>(10 + 16 * from + to); }

// Of each rank's parts those of odd ranks lie in host memory, and have absolute addresses.
class Apart {
public:
    explicit Apart(int parts) : device_(bytes(parts)), host_(bytes(parts), 0xEE) { device_.clear(); }
    unsigned char* at(int part) {
        return part % 2 == 0 ? device_.at(static_cast<std::size_t>(part) * kSmall)
                             : &host_[static_cast<std::size_t>(part) * kSmall];
    }
    MPI_Aint address(int part) {
        MPI_Aint found = 0;
        MPI_Get_address(at(part), &found);
        return found;
    }
    void put(int part, unsigned char value) {
        if (part % 2 == 0)
            cudaMemset(at(part), value, kSmall);
        else
            std::memset(at(part), value, kSmall);
    }
    void check(int part, unsigned char value) {
        std::vector<unsigned char> got(kSmall);
        cudaMemcpy(got.data(), at(part), kSmall, cudaMemcpyDefault);
        wrong += kSmall - std::count(got.begin(), got.end(), value);
    }

private:
    static std::size_t bytes(int parts) { return static_cast<std::size_t>(parts) * kSmall; }
    const Memory device_;
    std::vector<unsigned char> host_;
};

template <class Call>
void to_all(Call&& call) {
    const auto size = static_cast<std::size_t>(ranks);
    Apart send(ranks), receive(ranks);
    std::vector<int> counts(size, 1), places(size, 0), length(1, kSmall);
    std::vector<MPI_Datatype> from(size), to(size);
    for (int i = 0; i < ranks; ++i) {
        send.put(i, of(rank, i));
        for (auto [type, all] : {std::pair<MPI_Datatype*, Apart*>(&from[static_cast<std::size_t>(i)], &send),
                                 {&to[static_cast<std::size_t>(i)], &receive}}) {
            const MPI_Aint at = all->address(i);
            MPI_Type_create_hindexed(1, length.data(), &at, MPI_BYTE, type);
            MPI_Type_commit(type);
        }
    }
    call(counts.data(), places.data(), from.data(), to.data());
    for (int i = 0; i < ranks; ++i) {
        receive.check(i, of(i, rank));
        MPI_Type_free(&from[static_cast<std::size_t>(i)]);
        MPI_Type_free(&to[static_cast<std::size_t>(i)]);
    }
}
void apart() {
    to_all([](const int* counts, const int* places, const MPI_Datatype* from, const MPI_Datatype* to) {
        MPI_Alltoallw(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to, MPI_COMM_WORLD);
    });
    to_all([](const int* counts, const int* places, const MPI_Datatype* from, const MPI_Datatype* to) {
        MPI_Request request;
        MPI_Ialltoallw(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
}

MPI_Comm line_of_ranks(int wraps) {
    MPI_Comm line;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &wraps, 0, &line);
    return line;
}

void neighbours_apart() {
    MPI_Comm ring = line_of_ranks(1);
    Apart send(2), receive(2);
    for (int i = 0; i < 2; ++i) send.put(i, of(rank, i));
    const MPI_Aint from[] = {send.address(0), send.address(1)}, to[] = {receive.address(0), receive.address(1)};
    const int counts[] = {kSmall, kSmall};
    const MPI_Datatype types[] = {MPI_BYTE, MPI_BYTE};
    MPI_Neighbor_alltoallw(MPI_BOTTOM, counts, from, types, MPI_BOTTOM, counts, to, types, ring);
    receive.check(0, of(before(), 1));
    receive.check(1, of(behind(), 0));
    MPI_Comm_free(&ring);
}

// The first rank sets what an exclusive scan does not give it.
void first_of_scan() {
    constexpr std::size_t kBytes = kCount * sizeof(int);
    const Memory send(kBytes), receive(kBytes);
    std::vector<int> mine(kCount, rank + 1), got(kCount);
    cudaMemcpy(send.at(), mine.data(), kBytes, cudaMemcpyHostToDevice);
    receive.clear();
    MPI_Request request;
    MPI_Iexscan(send.at(), receive.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == 0) cudaMemcpy(receive.at(), mine.data(), kBytes, cudaMemcpyHostToDevice);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    cudaMemcpy(got.data(), receive.at(), kBytes, cudaMemcpyDeviceToHost);
    wrong += kCount - std::count(got.begin(), got.end(), rank == 0 ? 1 : rank * (rank + 1) / 2);
}

// The ranks at the ends set the part of the neighbour that they do not have.
template <class Call>
void at_edges(Call&& call) {
    constexpr unsigned char kEdge = 5;
    MPI_Comm line = line_of_ranks(0);
    const Memory send(2 * kSmall), receive(2 * kSmall);
    for (int i = 0; i < 2; ++i) cudaMemset(send.at(static_cast<std::size_t>(i) * kSmall), of(rank, i), kSmall);
    receive.clear();
    MPI_Request request;
    call(send.at(), receive.at(), line, &request);
    if (rank == 0) cudaMemset(receive.at(), kEdge, kSmall);
    if (rank == ranks - 1) cudaMemset(receive.at(kSmall), kEdge, kSmall);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    std::vector<unsigned char> got(2 * kSmall);
    cudaMemcpy(got.data(), receive.at(), got.size(), cudaMemcpyDeviceToHost);
    const auto first = got.begin(), middle = first + kSmall;
    wrong += kSmall - std::count(first, middle, rank == 0 ? kEdge : of(rank - 1, 1));
    wrong += kSmall - std::count(middle, got.end(), rank == ranks - 1 ? kEdge : of(rank + 1, 0));
    MPI_Comm_free(&line);
}
void edges() {
    at_edges([](const void* from, void* to, MPI_Comm line, MPI_Request* request) {
        MPI_Ineighbor_alltoall(from, kSmall, MPI_BYTE, to, kSmall, MPI_BYTE, line, request);
    });
    at_edges([](const void* from, void* to, MPI_Comm line, MPI_Request* request) {
        static const int counts[] = {kSmall, kSmall}, places[] = {0, kSmall};
        MPI_Ineighbor_alltoallv(from, counts, places, MPI_BYTE, to, counts, places, MPI_BYTE, line, request);
    });
}

// The program's handler is told of an error once.
int told = 0;
void count_error(MPI_Comm*, int*, ...) { ++told; }
void no_communicator() {
    MPI_Errhandler handler, before[2];
    MPI_Comm_create_errhandler(count_error, &handler);
    const MPI_Comm comms[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    for (int i = 0; i < 2; ++i) {
        MPI_Comm_get_errhandler(comms[i], &before[i]);
        MPI_Comm_set_errhandler(comms[i], handler);
    }
    const Memory send(kSmall), receive(kSmall);
    const int counts[] = {1, 1, 1, 1};
    void* const from = send.at();
    void* const to = receive.at();
    const auto once = [](auto&& call) {
        told = 0;
        call();
        wrong += told != 1;
    };
    once([&] { MPI_Send(from, 1, MPI_BYTE, 0, 0, MPI_COMM_NULL); });
    once([&] { MPI_Bcast(from, 1, MPI_BYTE, 0, MPI_COMM_NULL); });
    once([&] { MPI_Gather(from, 1, MPI_BYTE, to, 1, MPI_BYTE, 0, MPI_COMM_NULL); });
    once([&] { MPI_Exscan(from, to, 1, MPI_BYTE, MPI_SUM, MPI_COMM_NULL); });
    once([&] { MPI_Reduce_scatter(from, to, counts, MPI_BYTE, MPI_SUM, MPI_COMM_NULL); });
    for (int i = 0; i < 2; ++i) {
        MPI_Comm_set_errhandler(comms[i], before[i]);
        MPI_Errhandler_free(&before[i]);
    }
    MPI_Errhandler_free(&handler);
}

const std::map<std::string, void (*)()> kCases = {{"apart", apart},
                                                  {"neighbours_apart", neighbours_apart},
                                                  {"first_of_scan", first_of_scan},
                                                  {"edges", edges},
                                                  {"no_communicator", no_communicator}};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, kCases); }
