// SPDX-License-Identifier: MIT
// Random datatypes, counts, ways to send and collective calls, with host and device buffers (mpi_twins.h).
// usage: mpi_random SEED ROUNDS
#include <utility>

#include "mpi_twins.h"

namespace {

struct Type {
    MPI_Datatype type = MPI_DATATYPE_NULL, base = MPI_DATATYPE_NULL;
    int bases = 1;  // how many it names
    MPI_Aint begin = 0, end = 0, extent = 0;
    std::string name;
};

Type measured(Type t) {
    MPI_Type_commit(&t.type);
    MPI_Aint lower = 0, size = 0;
    MPI_Type_get_extent(t.type, &lower, &t.extent);
    MPI_Type_get_true_extent(t.type, &t.begin, &size);
    t.end = t.begin + size;
    return t;
}

Type random_type(Twins& w) {
    const MPI_Datatype bases[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_SHORT};
    Type t;
    t.base = bases[w.pick(4)];
    int base_bytes = 0;
    MPI_Type_size(t.base, &base_bytes);
    switch (w.pick(7)) {
        case 0: MPI_Type_dup(t.base, &t.type), t.name = "basic"; break;
        case 1: t.bases = 1 + w.pick(20), MPI_Type_contiguous(t.bases, t.base, &t.type), t.name = "contiguous"; break;
        case 2: {
            const int blocks = 1 + w.pick(5), length = 1 + w.pick(4), stride = length + w.pick(6);
            t.bases = blocks * length, t.name = "vector";
            MPI_Type_vector(blocks, length, w.pick(3) == 0 ? -stride : stride, t.base, &t.type);
            break;
        }
        case 3: {
            int lengths[3], places[3] = {w.pick(4) - 6, 4 + w.pick(3), 12 + w.pick(5)};
            if (w.pick(2) == 0) std::swap(places[0], places[2]);
            t.bases = 0, t.name = "indexed";
            for (int& length : lengths) t.bases += length = 1 + w.pick(3);
            MPI_Type_indexed(3, lengths, places, t.base, &t.type);
            break;
        }
        case 4: {
            int lengths[2] = {1 + w.pick(3), 1 + w.pick(3)};
            MPI_Aint places[2] = {8 * (w.pick(5) - 4), 32 + 8 * w.pick(4)};
            MPI_Datatype types[2] = {t.base, t.base};
            t.bases = lengths[0] + lengths[1], t.name = "struct";
            MPI_Type_create_struct(2, lengths, places, types, &t.type);
            break;
        }
        case 5: {
            MPI_Datatype inner;
            MPI_Type_vector(2, 1, 3, t.base, &inner);
            t.bases = 2, t.name = "resized";
            MPI_Type_create_resized(inner, -8 * w.pick(3), 48 + 8 * w.pick(3), &t.type);
            MPI_Type_free(&inner);
            break;
        }
        default: {
            MPI_Datatype inner;
            MPI_Type_create_hvector(3, 2, 40 + base_bytes, t.base, &inner);
            t.bases = 12, t.name = "nested";
            MPI_Type_create_hvector(2, 1, 400, inner, &t.type);
            MPI_Type_free(&inner);
            break;
        }
    }
    return measured(t);
}

Type contiguous_twin(const Type& t) {
    Type c;
    c.base = t.base, c.bases = t.bases, c.name = "as contiguous";
    MPI_Type_contiguous(t.bases, t.base, &c.type);
    return measured(c);
}

// Where elements begin in a buffer, and how large it must be.
struct Room {
    std::size_t offset, bytes;
    Room(const Type& t, int count) {
        const MPI_Aint last = (count > 0 ? count - 1 : 0) * t.extent;
        const MPI_Aint lowest = t.begin + (last < 0 ? last : 0), highest = t.end + (last > 0 ? last : 0);
        const MPI_Aint margin = 64;
        offset = static_cast<std::size_t>(lowest < 0 ? -lowest : 0) / 64 * 64 + 128;
        bytes = offset + static_cast<std::size_t>(highest > 0 ? highest : 0) + margin;
    }
};

void receive_in_some_way(int how, MPI_Comm comm, void* at, int count, const Type& t, int from, int tag,
                         MPI_Request* sends, Said& said) {
    MPI_Status status;
    if (how == 0) {
        MPI_Recv(at, count, t.type, from, tag, comm, &status);
    } else if (how == 1) {
        MPI_Message message;
        MPI_Mprobe(from, tag, comm, &message, &status);
        MPI_Mrecv(at, count, t.type, &message, &status);
    } else if (how == 2) {
        MPI_Recv(at, count, t.type, from, tag, comm, MPI_STATUS_IGNORE);
        MPI_Wait(sends, MPI_STATUS_IGNORE);
        return;
    }
    say_status(said, status, t.type);
    MPI_Wait(sends, MPI_STATUS_IGNORE);
}

void message(Twins& w) {
    const Type t = random_type(w);
    const Type sent = w.pick(3) == 0 ? contiguous_twin(t) : t;
    const int sizes[] = {0, 1, 3, 50, 2000, 60000};
    int count = sizes[w.pick(6)];
    if (t.bases * count > 400000) count /= 10;
    const int receive_count = count + w.pick(3);
    const bool partial = w.pick(4) == 0 && count > 0;  // the last element comes in part
    const int mode = w.pick(4), how = w.pick(6), tag = w.pick(1000);
    const int before = (w.rank + w.ranks - 1) % w.ranks, behind = (w.rank + 1) % w.ranks;
    w.what = t.name + " x" + std::to_string(count) + (partial ? " partly" : "") + ", sent as " + sent.name + ", mode " +
             std::to_string(mode) + ", received " + std::to_string(how);
    const Room out(sent, count), in(t, receive_count);
    Pair send(w, out.bytes), receive(w, in.bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        s += out.offset, r += in.offset;
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Status statuses[2];
        if (how >= 3) MPI_Irecv(r, receive_count, t.type, before, tag, comm, &requests[0]);
        if (how >= 3 && mode == 3) MPI_Barrier(comm);
        // Of basic elements any number is a beginning.
        const MPI_Datatype type = partial ? sent.base : sent.type;
        const bool plain = sent.name == "basic" || sent.name == "contiguous" || sent.name == "as contiguous";
        const int n = partial && plain ? sent.bases * count - 1 : count;
        const MPI_Datatype as = partial && plain ? type : sent.type;
        if (mode == 0) MPI_Isend(s, n, as, behind, tag, comm, &requests[1]);
        if (mode == 1) MPI_Issend(s, n, as, behind, tag, comm, &requests[1]);
        if (mode == 2 || (mode == 3 && how < 3)) MPI_Isend(s, n, as, behind, tag, comm, &requests[1]);
        if (mode == 3 && how >= 3) MPI_Irsend(s, n, as, behind, tag, comm, &requests[1]);
        if (how < 3) {
            receive_in_some_way(how, comm, r, receive_count, t, before, tag, &requests[1], said);
        } else if (how == 3) {
            MPI_Waitall(2, requests, statuses);
            say_status(said, statuses[0], t.type);
        } else if (how == 4) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else {
            int done = 0;
            while (!done) MPI_Test(&requests[0], &done, &statuses[0]);
            say_status(said, statuses[0], t.type);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        }
    });
    MPI_Datatype type = t.type, other = sent.type;
    if (other != type) MPI_Type_free(&other);
    MPI_Type_free(&type);
}

void exchange(Twins& w) {
    const Type t = random_type(w);
    const int count = 1 + w.pick(3000) / t.bases, rounds = 1 + w.pick(3), how = w.pick(4);
    const int before = (w.rank + w.ranks - 1) % w.ranks, behind = (w.rank + 1) % w.ranks;
    w.what = t.name + " x" + std::to_string(count) + " exchanged " + std::to_string(how);
    const Room room(t, count);
    Pair send(w, room.bytes), receive(w, room.bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        s += room.offset, r += room.offset;
        MPI_Status status;
        if (how == 0) {
            MPI_Sendrecv(s, count, t.type, behind, 5, r, count, t.type, before, 5, comm, &status);
            say_status(said, status, t.type);
        } else if (how == 1) {
            MPI_Sendrecv_replace(r, count, t.type, behind, 5, before, 5, comm, &status);
            say_status(said, status, t.type);
        } else if (how == 2) {
            MPI_Sendrecv(s, count, t.type, MPI_PROC_NULL, 5, r, count, t.type, MPI_PROC_NULL, 5, comm, &status);
            say_status(said, status, t.type);
        } else {
            MPI_Request both_ways[2];
            MPI_Recv_init(r, count, t.type, before, 6, comm, &both_ways[0]);
            MPI_Send_init(s, count, t.type, behind, 6, comm, &both_ways[1]);
            for (int i = 0; i < rounds; ++i) {
                s[t.begin] = static_cast<char>(i);
                MPI_Startall(2, both_ways);
                MPI_Waitall(2, both_ways, MPI_STATUSES_IGNORE);
                MPI_Wait(&both_ways[0], &status);  // inactive: an empty status
                said.push_back(r[t.begin]);
            }
            MPI_Request_free(&both_ways[0]);
            MPI_Request_free(&both_ways[1]);
        }
    });
    MPI_Datatype type = t.type;
    MPI_Type_free(&type);
}

void add_pairs(void* in, void* inout, int* count, MPI_Datatype*) {
    // Two ints, with a gap between.
    for (int i = 0; i < *count; ++i) {
        static_cast<int*>(inout)[3 * i] += static_cast<int*>(in)[3 * i];
        static_cast<int*>(inout)[3 * i + 2] ^= static_cast<int*>(in)[3 * i + 2];
    }
}

void reduction(Twins& w, MPI_Datatype pairs, MPI_Op add) {
    const bool own_type = w.pick(3) == 0, in_place = w.pick(2) == 0, later = w.pick(2) == 0;
    const int call = w.pick(6), count = 1 + w.pick(w.pick(2) == 0 ? 20 : 30000), root = w.pick(w.ranks);
    const MPI_Datatype type = own_type ? pairs : MPI_INT;
    const MPI_Op op = own_type ? add : MPI_SUM;
    w.what = "reduction " + std::to_string(call) + (own_type ? " of pairs x" : " x") + std::to_string(count) +
             (in_place ? " in place" : "") + (later ? " later" : "");
    const std::size_t bytes = static_cast<std::size_t>(count) * 12 * static_cast<std::size_t>(w.ranks) + 64;
    Pair send(w, bytes), receive(w, bytes);
    std::vector<int> counts(static_cast<std::size_t>(w.ranks), count);
    counts[0] = count / 2;
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        MPI_Request request = MPI_REQUEST_NULL;
        // (MPICH 4.0 itself dies of a reduction to a root in place, of a type with gaps.)
        const bool here = in_place && (call != 0 || (w.rank == root && !own_type));
        const void* const from = here ? MPI_IN_PLACE : s;
        switch (call) {
            case 0:
                if (later)
                    MPI_Ireduce(from, r, count, type, op, root, comm, &request);
                else
                    MPI_Reduce(from, r, count, type, op, root, comm);
                break;
            case 1:
                if (later)
                    MPI_Iallreduce(from, r, count, type, op, comm, &request);
                else
                    MPI_Allreduce(from, r, count, type, op, comm);
                break;
            case 2:
                if (later)
                    MPI_Iscan(from, r, count, type, op, comm, &request);
                else
                    MPI_Scan(from, r, count, type, op, comm);
                break;
            case 3:
                if (later)
                    MPI_Iexscan(from, r, count, type, op, comm, &request);
                else
                    MPI_Exscan(from, r, count, type, op, comm);
                break;
            case 4:
                if (later)
                    MPI_Ireduce_scatter(s, r, counts.data(), type, op, comm, &request);
                else
                    MPI_Reduce_scatter(s, r, counts.data(), type, op, comm);
                break;
            default:
                if (later)
                    MPI_Ireduce_scatter_block(s, r, count, type, op, comm, &request);
                else
                    MPI_Reduce_scatter_block(s, r, count, type, op, comm);
                break;
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
}

void movement(Twins& w) {
    const Type t = random_type(w);
    const bool in_place = w.pick(3) == 0, later = w.pick(2) == 0;
    const int call = w.pick(9), count = 1 + w.pick(w.pick(2) == 0 ? 4 : 2000) / t.bases, root = w.pick(w.ranks);
    w.what = "movement " + std::to_string(call) + " of " + t.name + " x" + std::to_string(count) +
             (in_place ? " in place" : "") + (later ? " later" : "");
    const auto n = static_cast<std::size_t>(w.ranks);
    const Room room(t, (count + 1) * w.ranks);
    Pair send(w, room.bytes), receive(w, room.bytes);
    // To and from each as much, with a gap of one element.
    std::vector<int> counts(n, count), places(n), bytes(n);
    std::vector<MPI_Datatype> types(n, t.type);
    for (std::size_t i = 0; i < n; ++i) {
        places[i] = static_cast<int>(i) * (count + 1);
        bytes[i] = places[i] * static_cast<int>(t.extent);
    }
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        s += room.offset, r += room.offset;
        const auto type = t.type;
        MPI_Request request = MPI_REQUEST_NULL;
        const bool rooted = w.rank == root;
        const int *c = counts.data(), *p = places.data(), *b = bytes.data();
        const MPI_Datatype* ts = types.data();
        const void* const from = in_place ? MPI_IN_PLACE : s;
        const void* const root_from = in_place && rooted ? MPI_IN_PLACE : s;
        void* const root_to = in_place && rooted ? MPI_IN_PLACE : r;
        switch (call) {
            case 0:
                if (later)
                    MPI_Ibcast(r, count, type, root, comm, &request);
                else
                    MPI_Bcast(r, count, type, root, comm);
                break;
            case 1:
                if (later)
                    MPI_Igather(root_from, count, type, rooted ? r : nullptr, count, type, root, comm, &request);
                else
                    MPI_Gather(root_from, count, type, rooted ? r : nullptr, count, type, root, comm);
                break;
            case 2:
                if (later)
                    MPI_Igatherv(root_from, count, type, r, c, p, type, root, comm, &request);
                else
                    MPI_Gatherv(root_from, count, type, r, c, p, type, root, comm);
                break;
            case 3:
                if (later)
                    MPI_Iscatter(s, count, type, root_to, count, type, root, comm, &request);
                else
                    MPI_Scatter(s, count, type, root_to, count, type, root, comm);
                break;
            case 4:
                if (later)
                    MPI_Iscatterv(s, c, p, type, root_to, count, type, root, comm, &request);
                else
                    MPI_Scatterv(s, c, p, type, root_to, count, type, root, comm);
                break;
            case 5:
                if (later)
                    MPI_Iallgather(from, count, type, r, count, type, comm, &request);
                else
                    MPI_Allgather(from, count, type, r, count, type, comm);
                break;
            case 6:
                if (later)
                    MPI_Iallgatherv(from, count, type, r, c, p, type, comm, &request);
                else
                    MPI_Allgatherv(from, count, type, r, c, p, type, comm);
                break;
            case 7:
                if (later)
                    MPI_Ialltoall(s, count, type, r, count, type, comm, &request);
                else
                    MPI_Alltoall(from, count, type, r, count, type, comm);
                break;
            default:
                if (later)
                    MPI_Ialltoallw(s, c, b, ts, r, c, b, ts, comm, &request);
                else if (in_place)
                    MPI_Alltoallw(s, c, b, ts, r, c, b, ts, comm);
                else
                    MPI_Alltoallv(s, c, p, type, r, c, p, type, comm);
                break;
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    MPI_Datatype type = t.type;
    MPI_Type_free(&type);
}

// A line of ranks: the first and the last have one neighbour each.
void neighbours(Twins& w) {
    const Type t = random_type(w);
    const int count = 1 + w.pick(2000) / t.bases, call = w.pick(5);
    const bool later = w.pick(2) == 0;
    w.what = "neighbours " + std::to_string(call) + " of " + t.name + " x" + std::to_string(count);
    const Room room(t, 2 * count + 2);
    Pair send(w, room.bytes), receive(w, room.bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        s += room.offset, r += room.offset;
        MPI_Comm line;
        const int size = w.ranks, open = 0, counts[2] = {count, count}, places[2] = {0, count + 1};
        const MPI_Aint bytes[2] = {0, (count + 1) * t.extent};
        const MPI_Datatype type = t.type, types[2] = {type, type};
        MPI_Cart_create(comm, 1, &size, &open, 0, &line);
        MPI_Request request = MPI_REQUEST_NULL;
        switch (call) {
            case 0:
                if (later)
                    MPI_Ineighbor_allgather(s, count, type, r, count, type, line, &request);
                else
                    MPI_Neighbor_allgather(s, count, type, r, count, type, line);
                break;
            case 1: MPI_Neighbor_allgatherv(s, count, type, r, counts, places, type, line); break;
            case 2:
                if (later)
                    MPI_Ineighbor_alltoall(s, count, type, r, count, type, line, &request);
                else
                    MPI_Neighbor_alltoall(s, count, type, r, count, type, line);
                break;
            case 3: MPI_Neighbor_alltoallv(s, counts, places, type, r, counts, places, type, line); break;
            default: MPI_Neighbor_alltoallw(s, counts, bytes, types, r, counts, bytes, types, line); break;
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Comm_free(&line);
    });
    MPI_Datatype type = t.type;
    MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int wrong = 0;
    {
        Twins w(static_cast<unsigned>(std::atoi(argv[1])));
        MPI_Datatype two, pairs;
        MPI_Type_vector(2, 1, 2, MPI_INT, &two);
        MPI_Type_create_resized(two, 0, 12, &pairs);
        MPI_Type_commit(&pairs);
        MPI_Op add;
        MPI_Op_create(add_pairs, 1, &add);
        for (int i = 0, rounds = std::atoi(argv[2]); i < rounds; ++i) {
            switch (w.pick(6)) {
                case 0:
                case 1: message(w); break;
                case 2: exchange(w); break;
                case 3: reduction(w, pairs, add); break;
                case 4: movement(w); break;
                default: neighbours(w); break;
            }
        }
        wrong = w.finish();
        MPI_Op_free(&add);
        MPI_Type_free(&pairs);
        MPI_Type_free(&two);
    }
    MPI_Finalize();
    return wrong;
}
