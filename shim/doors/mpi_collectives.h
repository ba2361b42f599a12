// SPDX-License-Identifier: MIT
// Which arguments of collective calls are buffers, and how much of them matters on this rank: named to the CallBuffers,
// which changes them, and before it to a Look, which spares a call with host memory the CallBuffers. Arguments that do
// not matter here are `rest`.
//
// Source: MPI 4.1, chapters 6 (collectives, intercommunicators, MPI_IN_PLACE) and 8.6 (neighbourhoods).
//
// What MPI leaves as it was in place must come back as it was: such a buffer is updated. What is not significant on
// this rank, and the part of a missing neighbour, is the program's own meanwhile, and is not named. Counts in elements,
// displacements in extents, those of w-forms in bytes.
//
// Threads, ownership and errors: mpi/call_buffers.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shim/doors/mpi_door.h"
#include "shim/mpi/call_buffers.h"
#include "shim/mpi/reductions.h"

namespace hpe::doors::HPE_MPI_ABI {

using namespace hpe::mpi::HPE_MPI_ABI;

inline bool in_place(const void* at) noexcept { return at == MPI_IN_PLACE; }

// No communicator is an error, which MPI shall tell once. Of those that most calls name MPI need not be asked.
inline bool is_inter(MPI_Comm comm) noexcept {
    int flag = 0;
    if (comm == handles.world || comm == handles.self) return false;
    return comm != handles.no_comm && functions.MPI_Comm_test_inter(comm, &flag) == MPI_SUCCESS && flag != 0;
}
// That of MPI_COMM_WORLD is asked for once.
inline int local_size(MPI_Comm comm) noexcept {
    static constinit std::atomic<int> of_world{0};
    const bool is_world = comm == handles.world;
    int size = is_world ? of_world.load(std::memory_order_relaxed) : 0;
    if (size != 0 || comm == handles.no_comm) return size;
    functions.MPI_Comm_size(comm, &size);
    if (is_world) of_world.store(size, std::memory_order_relaxed);
    return size;
}
inline int own_rank(MPI_Comm comm) noexcept {
    int rank = -1;
    if (comm != handles.no_comm) functions.MPI_Comm_rank(comm, &rank);
    return rank;
}
// With how many ranks data are exchanged.
inline int others(MPI_Comm comm) noexcept {
    int size = 0;
    if (!is_inter(comm)) return local_size(comm);
    functions.MPI_Comm_remote_size(comm, &size);
    return size;
}

// What this rank is in a call with a root.
struct Part {
    bool root = true, member = true;
    Part() noexcept = default;
    Part(int root_rank, MPI_Comm comm) noexcept {
        if (is_inter(comm)) {
            root = root_rank == MPI_ROOT;
            member = !root && root_rank != MPI_PROC_NULL;
        } else {
            root = own_rank(comm) == root_rank;
            member = true;
        }
    }
};
inline Part part_of(const CallBuffers&, int root, MPI_Comm comm) noexcept { return Part(root, comm); }
// A Look does not ask: it looks at all buffers, significant or not. Not so where there are arrays of counts: what is
// insignificant may point nowhere.
inline Part part_of(Look& look, int, MPI_Comm) noexcept {
    look.may_be_insignificant();
    return {};
}

// Calls each(address, count, type, shape) for each rank's part that is not empty.
template <class Counts, class Places, class Each>
void for_ranks(const void* at, Counts counts, Places places, MPI_Datatype type, int ranks, Each&& each) noexcept {
    const Shape shape(type);
    for (int i = 0; i < ranks; ++i) {
        const auto offset = static_cast<MPI_Count>(places[i]) * shape.extent();
        const auto count = counts[i];
        if (count > 0) each(address(at) + static_cast<std::uintptr_t>(offset), count, type, shape);
    }
}
// A type for each.
template <class Counts, class Places, class Each>
void for_ranks(const void* at, Counts counts, Places places, const MPI_Datatype* types, int ranks,
               Each&& each) noexcept {
    for (int i = 0; i < ranks; ++i) {
        const auto offset = static_cast<std::uintptr_t>(static_cast<MPI_Count>(places[i]));
        const auto count = counts[i];
        if (count > 0) each(address(at) + offset, count, types[i], Shape(types[i]));
    }
}
template <class Counts, class Places, class Types>
Parts parts(const CallBuffers&, const void* at, Counts counts, Places places, Types types, int ranks) noexcept {
    Parts all(static_cast<std::size_t>(ranks));
    for_ranks(at, counts, places, types, ranks,
              [&](auto begin, auto count, auto type, const Shape& shape) { all.add(begin, count, type, shape); });
    return all;
}
template <class Counts, class Places, class Types>
Span parts(const Look&, const void* at, Counts counts, Places places, Types types, int ranks) noexcept {
    Span all;
    for_ranks(at, counts, places, types, ranks,
              [&](auto begin, auto count, auto, const Shape& shape) { all.join(shape.span(begin, count)); });
    return all;
}

template <class Buffers, class... Rest>
void no_buffers(Buffers&, Rest&...) noexcept {}

template <class Buffers, class Count, class... Rest>
void broadcast(Buffers& buffers, void*& at, Count count, MPI_Datatype type, int root, MPI_Comm comm,
               Rest&...) noexcept {
    const Part part = part_of(buffers, root, comm);
    if (part.root)
        buffers.reads(at, count, type);
    else if (part.member)
        buffers.writes(at, count, type);
}

// What arrives at the root, or everywhere.
template <class Buffers, class Count>
void collects(Buffers& buffers, bool keeps, void*& to, Count count, MPI_Datatype type, int ranks) noexcept {
    const auto all = static_cast<MPI_Count>(count) * ranks;
    if (keeps)
        buffers.updates(to, all, type);
    else
        buffers.writes(to, all, type);
}
template <class Buffers, class Counts, class Places, class Types>
void collects(Buffers& buffers, bool keeps, void*& to, Counts counts, Places places, Types types, int ranks) noexcept {
    if (keeps)
        buffers.updates(to, parts(buffers, to, counts, places, types, ranks));
    else
        buffers.writes(to, parts(buffers, to, counts, places, types, ranks));
}

template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void gather(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room, MPI_Datatype to_type,
            int root, MPI_Comm comm, Rest&...) noexcept {
    const Part part = part_of(buffers, root, comm);
    const bool keeps = in_place(from);
    if (part.member && !keeps) buffers.reads(from, count, type);
    if (part.root) collects(buffers, keeps, to, room, to_type, others(comm));
}
template <class Buffers, class Pointer, class Count, class Counts, class Places, class... Rest>
void gather_v(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Counts counts, Places places,
              MPI_Datatype to_type, int root, MPI_Comm comm, Rest&...) noexcept {
    const Part part(root, comm);
    const bool keeps = in_place(from);
    if (part.member && !keeps) buffers.reads(from, count, type);
    if (part.root) collects(buffers, keeps, to, counts, places, to_type, others(comm));
}

template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void scatter(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
             MPI_Datatype to_type, int root, MPI_Comm comm, Rest&...) noexcept {
    const Part part = part_of(buffers, root, comm);
    if (part.root) buffers.reads(from, static_cast<MPI_Count>(count) * others(comm), type);
    if (part.member && !in_place(to)) buffers.writes(to, room, to_type);
}
template <class Buffers, class Pointer, class Counts, class Places, class Room, class... Rest>
void scatter_v(Buffers& buffers, Pointer& from, Counts counts, Places places, MPI_Datatype type, void*& to, Room room,
               MPI_Datatype to_type, int root, MPI_Comm comm, Rest&...) noexcept {
    const Part part(root, comm);
    if (part.root) buffers.reads(from, parts(buffers, from, counts, places, type, others(comm)));
    if (part.member && !in_place(to)) buffers.writes(to, room, to_type);
}

template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void all_gather(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, count, type);
    collects(buffers, keeps, to, room, to_type, others(comm));
}
template <class Buffers, class Pointer, class Count, class Counts, class Places, class... Rest>
void all_gather_v(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Counts counts,
                  Places places, MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, count, type);
    collects(buffers, keeps, to, counts, places, to_type, others(comm));
}

template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void all_to_all(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    const int ranks = others(comm);
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, static_cast<MPI_Count>(count) * ranks, type);
    collects(buffers, keeps, to, room, to_type, ranks);
}
// Types: one, or an array of them.
template <class Buffers, class Pointer, class Counts, class Places, class Types, class Rooms, class ToPlaces,
          class ToTypes, class... Rest>
void all_to_all_v(Buffers& buffers, Pointer& from, Counts counts, Places places, Types types, void*& to, Rooms rooms,
                  ToPlaces to_places, ToTypes to_types, MPI_Comm comm, Rest&...) noexcept {
    const int ranks = others(comm);
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, parts(buffers, from, counts, places, types, ranks));
    collects(buffers, keeps, to, rooms, to_places, to_types, ranks);
}

template <class Buffers, class Pointer, class Count, class... Rest>
void reduce(Buffers& buffers, Pointer& from, void*& to, Count count, MPI_Datatype type, MPI_Op, int root, MPI_Comm comm,
            Rest&...) noexcept {
    const Part part = part_of(buffers, root, comm);
    const bool keeps = in_place(from);
    if (part.member && !keeps) buffers.reads(from, count, type);
    if (part.root) collects(buffers, keeps, to, count, type, 1);
}
template <class Buffers, class Pointer, class Count, class... Rest>
void all_reduce(Buffers& buffers, Pointer& from, void*& to, Count count, MPI_Datatype type, Rest&...) noexcept {
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, count, type);
    collects(buffers, keeps, to, count, type, 1);
}
// Unless the devices make it.
template <std::size_t row, class Function>
struct AllReduces;
template <std::size_t row, class Count>
struct AllReduces<row, int(const void*, void*, Count, MPI_Datatype, MPI_Op, MPI_Comm)> {
    [[gnu::flatten]] static int door(const void* from, void* to, Count count, MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm) {
        if (reductions::is_large(count, type)) [[unlikely]] {
            const auto made = reductions::all_reduce(from, to, count, type, op, comm);
            if (made) return *made == reductions::kFailed ? cannot() : *made;
        }
        const auto real = own<int(const void*, void*, Count, MPI_Datatype, MPI_Op, MPI_Comm)>(row);
        using Treatment = decltype([](auto&... a) noexcept -> decltype(all_reduce(a...)) { all_reduce(a...); });
        return treated<Kind::Whole, Treatment>(real, __builtin_return_address(0), from, to, count, type, op, comm);
    }
};
// What arrives is not significant on the first rank.
inline bool is_first(const CallBuffers&, MPI_Comm comm) noexcept { return Part(0, comm).root; }
inline bool is_first(const Look&, MPI_Comm) noexcept { return false; }
template <class Buffers, class Pointer, class Count, class... Rest>
void scan_before(Buffers& buffers, Pointer& from, void*& to, Count count, MPI_Datatype type, MPI_Op, MPI_Comm comm,
                 Rest&...) noexcept {
    const bool keeps = in_place(from);
    if (!keeps) buffers.reads(from, count, type);
    if (keeps || !is_first(buffers, comm)) collects(buffers, keeps, to, count, type, 1);
}
template <class Buffers, class Pointer, class Counts, class... Rest>
void reduce_scatter(Buffers& buffers, Pointer& from, void*& to, Counts counts, MPI_Datatype type, MPI_Op, MPI_Comm comm,
                    Rest&...) noexcept {
    MPI_Count all = 0;
    for (int i = 0, ranks = local_size(comm); i < ranks; ++i) all += counts[i];
    if (in_place(from)) {
        buffers.updates(to, all, type);
    } else {
        buffers.reads(from, all, type);
        buffers.writes(to, counts[std::max(own_rank(comm), 0)], type);
    }
}
template <class Buffers, class Pointer, class Count, class... Rest>
void reduce_scatter_block(Buffers& buffers, Pointer& from, void*& to, Count count, MPI_Datatype type, MPI_Op,
                          MPI_Comm comm, Rest&...) noexcept {
    const auto all = static_cast<MPI_Count>(count) * local_size(comm);
    if (in_place(from)) {
        buffers.updates(to, all, type);
    } else {
        buffers.reads(from, all, type);
        buffers.writes(to, count, type);
    }
}

// How many neighbours a rank receives from and sends to.
struct Neighbours {
    int in = 0, out = 0;
    explicit Neighbours(MPI_Comm comm) noexcept : comm_(comm) {
        int kind = MPI_UNDEFINED, weighted = 0;
        if (comm != handles.no_comm) functions.MPI_Topo_test(comm, &kind);
        if (kind == MPI_CART) {
            functions.MPI_Cartdim_get(comm, &in);
            out = in *= 2;
            is_grid_ = true;
        } else if (kind == MPI_GRAPH) {
            int rank = 0;
            functions.MPI_Comm_rank(comm, &rank);
            functions.MPI_Graph_neighbors_count(comm, rank, &in);
            out = in;
        } else if (kind == MPI_DIST_GRAPH) {
            functions.MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
        }
    }
    // Behind the edge of a grid there is none: the part of the buffer that is meant for it is the program's own.
    bool is_there(int neighbour) const noexcept {
        if (!is_grid_) return true;
        int before = 0, behind = 0;
        functions.MPI_Cart_shift(comm_, neighbour / 2, 1, &before, &behind);
        return (neighbour % 2 == 0 ? before : behind) != MPI_PROC_NULL;
    }
    bool are_there() const noexcept {
        for (int i = 0; i < in; ++i) {
            if (!is_there(i)) return false;
        }
        return true;
    }

private:
    const MPI_Comm comm_;
    bool is_grid_ = false;
};
// Arrays of counts and displacements. A Look does not ask who is there: it looks at all.
template <class Counts>
struct CountsOf {
    const Neighbours& neighbours;
    Counts counts;
    MPI_Count operator[](int i) const noexcept { return neighbours.is_there(i) ? counts[i] : 0; }
};
template <class Counts>
CountsOf(const Neighbours&, Counts) -> CountsOf<Counts>;
// One behind the other.
struct SameCounts {
    MPI_Count count;
    MPI_Count operator[](int) const noexcept { return count; }
};
struct Behind {
    MPI_Count count;
    MPI_Count operator[](int i) const noexcept { return count * i; }
};
template <class Counts>
auto there(const CallBuffers&, const Neighbours& neighbours, Counts counts) noexcept {
    return CountsOf{neighbours, counts};
}
template <class Counts>
Counts there(const Look&, const Neighbours&, Counts counts) noexcept {
    return counts;
}
inline void arrive(Look& look, void*& to, MPI_Count count, MPI_Datatype type, const Neighbours& all) noexcept {
    look.writes(to, count * all.in, type);
}
inline void arrive(CallBuffers& buffers, void*& to, MPI_Count count, MPI_Datatype type,
                   const Neighbours& all) noexcept {
    if (all.are_there()) {
        buffers.writes(to, count * all.in, type);
    } else {
        buffers.writes(to, parts(buffers, to, CountsOf{all, SameCounts{count}}, Behind{count}, type, all.in));
    }
}

template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void neighbours_gather(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                       MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    buffers.reads(from, count, type);
    arrive(buffers, to, room, to_type, Neighbours(comm));
}
template <class Buffers, class Pointer, class Count, class Counts, class Places, class... Rest>
void neighbours_gather_v(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Counts counts,
                         Places places, MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    const Neighbours neighbours(comm);
    buffers.reads(from, count, type);
    buffers.writes(to, parts(buffers, to, there(buffers, neighbours, counts), places, to_type, neighbours.in));
}
template <class Buffers, class Pointer, class Count, class Room, class... Rest>
void neighbours_exchange(Buffers& buffers, Pointer& from, Count count, MPI_Datatype type, void*& to, Room room,
                         MPI_Datatype to_type, MPI_Comm comm, Rest&...) noexcept {
    const Neighbours neighbours(comm);
    buffers.reads(from, static_cast<MPI_Count>(count) * neighbours.out, type);
    arrive(buffers, to, room, to_type, neighbours);
}
template <class Buffers, class Pointer, class Counts, class Places, class Types, class Rooms, class ToPlaces,
          class ToTypes, class... Rest>
void neighbours_exchange_v(Buffers& buffers, Pointer& from, Counts counts, Places places, Types types, void*& to,
                           Rooms rooms, ToPlaces to_places, ToTypes to_types, MPI_Comm comm, Rest&...) noexcept {
    const Neighbours neighbours(comm);
    buffers.reads(from, parts(buffers, from, there(buffers, neighbours, counts), places, types, neighbours.out));
    buffers.writes(to, parts(buffers, to, there(buffers, neighbours, rooms), to_places, to_types, neighbours.in));
}

}  // namespace hpe::doors::HPE_MPI_ABI
