// SPDX-License-Identifier: MIT
// Ranks, translated by their groups.
#include "shim/mpi/world_ranks.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "shim/mpi/device_messages.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

bool translate(MPI_Group group, std::span<const int> ranks, std::span<int> found) noexcept {
    MPI_Group world{};
    if (functions.MPI_Comm_group(handles.world, &world) != MPI_SUCCESS) return false;
    const int result =
        functions.MPI_Group_translate_ranks(group, static_cast<int>(ranks.size()), ranks.data(), world, found.data());
    functions.MPI_Group_free(&world);
    return result == MPI_SUCCESS;
}

}  // namespace

int peer(MPI_Comm comm, int rank) noexcept {
    int initialized = 0, inter = 0;
    // Processes that began by sessions have no world.
    if (rank < 0 || comm == handles.no_comm || functions.MPI_Initialized(&initialized) != MPI_SUCCESS ||
        initialized == 0 || knows_cuda() || functions.MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) {
        return -1;
    }
    // A rank that there is not is MPI's to find, by the communicator's handler of errors.
    int ranks = 0;
    const int asked = inter != 0 ? functions.MPI_Comm_remote_size(comm, &ranks) : functions.MPI_Comm_size(comm, &ranks);
    if (asked != MPI_SUCCESS || rank >= ranks) return -1;
    if (comm == handles.world) return rank;
    MPI_Group group{};
    int found = -1;
    const int got = inter != 0 ? functions.MPI_Comm_remote_group(comm, &group) : functions.MPI_Comm_group(comm, &group);
    if (got != MPI_SUCCESS) return -1;
    const bool known = translate(group, {&rank, 1}, {&found, 1});
    functions.MPI_Group_free(&group);
    return known && found >= 0 ? found : -1;
}

bool peers(MPI_Comm comm, std::span<int> all) noexcept {
    MPI_Group group{};
    std::array<int, kMostPeers> ranks;
    if (all.size() > ranks.size() || functions.MPI_Comm_group(comm, &group) != MPI_SUCCESS) return false;
    std::iota(ranks.begin(), ranks.end(), 0);
    const bool known = translate(group, {ranks.data(), all.size()}, all);
    functions.MPI_Group_free(&group);
    return known && std::all_of(all.begin(), all.end(), [](int rank) { return rank >= 0; });
}

}  // namespace hpe::mpi::HPE_MPI_ABI
