// SPDX-License-Identifier: MIT
// Random MPI datatypes: trees of every constructor over one base, whose bytes never overlap.
//
// Offsets and extents in bytes. The types are the caller's to free.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C++ bindings would want a library of their own
#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

struct Random {
    std::mt19937_64 engine;
    int pick(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }
    int between(int first, int last) { return first + pick(last - first + 1); }
    bool one_of(int n) { return pick(n) == 0; }
};

struct Type {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int bases = 1;                // how many it names
    MPI_Aint begin = 0, end = 0;  // its first byte and behind its last
    MPI_Aint extent = 0;
    int at_most = 1 << 30;  // more elements would overlap
    std::string name;
    MPI_Aint span() const { return end - begin; }
};

inline Type measured(Type t) {
    MPI_Aint lower = 0, size = 0;
    MPI_Type_get_extent(t.type, &lower, &t.extent);
    MPI_Type_get_true_extent(t.type, &t.begin, &size);
    t.end = t.begin + size;
    return t;
}
inline void free_type(Type& t) {
    if (t.type != MPI_DATATYPE_NULL) MPI_Type_free(&t.type);
}

class Types {
public:
    // The base: a basic type, or a structure of several with a gap.
    explicit Types(Random& random) : random_(random) {
        const MPI_Datatype basic[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE};
        const int which = random.pick(6);
        base_.name = "base " + std::to_string(which);
        mixed_ = which >= 4;
        if (!mixed_) {
            MPI_Type_dup(basic[which], &base_.type);
        } else {
            const int lengths[3] = {1, 2, 3};
            const MPI_Aint places[3] = {0, 8, which == 4 ? 24 : -6};
            const MPI_Datatype types[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR};
            MPI_Type_create_struct(3, lengths, places, types, &base_.type);
        }
        base_ = spaced(measured(base_));
    }
    ~Types() { free_type(base_); }
    // Of several basic types.
    bool mixed() const { return mixed_; }
    Types(const Types&) = delete;
    Types& operator=(const Types&) = delete;

    Type make() {
        Type t = random_.one_of(6) ? column() : tree(random_.between(0, 3));
        MPI_Type_commit(&t.type);
        return t;
    }

private:
    Type copy_of_base() {
        Type t = base_;
        MPI_Type_dup(base_.type, &t.type);
        return t;
    }

    // Elements one behind the other must not overlap.
    Type spaced(Type t) {
        if (t.extent >= t.span() || t.extent <= -t.span()) return t;
        Type wide = t;
        MPI_Type_create_resized(t.type, t.begin, t.span() + 8 * random_.pick(3), &wide.type);
        free_type(t);
        return measured(wide);
    }

    // Neighbouring columns of a matrix: elements interleave.
    Type column() {
        Type inner = copy_of_base(), vector = inner;
        const int rows = random_.between(1, 30), columns = random_.between(2, 20);
        MPI_Type_vector(rows, 1, columns, inner.type, &vector.type);
        Type t = vector;
        MPI_Type_create_resized(vector.type, 0, inner.extent, &t.type);
        free_type(vector), free_type(inner);
        t.bases = rows, t.at_most = columns, t.name = "column of " + base_.name;
        return measured(t);
    }

    Type tree(int depth) {
        if (depth == 0) return copy_of_base();
        Type inner = tree(random_.pick(depth));
        Type t = made_of(inner);
        free_type(inner);
        t = spaced(measured(t));
        if (random_.one_of(5)) t = resized(t);
        return t;
    }

    // Places in units, such that pieces of the given lengths lie apart, in any order, some below zero.
    std::vector<int> places(const std::vector<int>& lengths) {
        std::vector<int> order(lengths.size()), at(lengths.size());
        std::iota(order.begin(), order.end(), 0);
        if (random_.one_of(2)) std::shuffle(order.begin(), order.end(), random_.engine);
        int next = random_.between(-8, 4);
        for (const int i : order) {
            at[static_cast<std::size_t>(i)] = next;
            next += lengths[static_cast<std::size_t>(i)] + random_.pick(4);
        }
        return at;
    }

    Type made_of(const Type& inner) {
        Type t;
        const auto unit = inner.extent < 0 ? -inner.extent : inner.extent;
        const int pieces = random_.between(1, 4);
        std::vector<int> lengths(static_cast<std::size_t>(pieces));
        for (int& length : lengths) length = random_.between(random_.one_of(5) ? 0 : 1, 3);
        const bool same = random_.one_of(3);
        if (same) std::fill(lengths.begin(), lengths.end(), std::max(1, lengths[0]));
        if (std::accumulate(lengths.begin(), lengths.end(), 0) == 0) lengths[0] = 1;
        const std::vector<int> at = places(lengths);
        std::vector<MPI_Aint> bytes;
        for (const int place : at) bytes.push_back(place * inner.extent);
        const int all = std::accumulate(lengths.begin(), lengths.end(), 0);
        switch (random_.pick(9)) {
            case 0:
                t.bases = random_.between(1, 6), t.name = "contiguous";
                MPI_Type_contiguous(t.bases, inner.type, &t.type);
                break;
            case 1: {
                const int length = lengths[0] + 1, stride = length + random_.pick(4);
                t.bases = pieces * length, t.name = "vector";
                MPI_Type_vector(pieces, length, random_.one_of(3) ? -stride : stride, inner.type, &t.type);
                break;
            }
            case 2: {
                const int length = lengths[0] + 1;
                const MPI_Aint stride = length * unit + 4 * random_.pick(5);
                t.bases = pieces * length, t.name = "hvector";
                MPI_Type_create_hvector(pieces, length, random_.one_of(3) ? -stride : stride, inner.type, &t.type);
                break;
            }
            case 3:
                t.bases = all, t.name = "indexed";
                MPI_Type_indexed(pieces, lengths.data(), at.data(), inner.type, &t.type);
                break;
            case 4:
                t.bases = all, t.name = "hindexed";
                MPI_Type_create_hindexed(pieces, lengths.data(), bytes.data(), inner.type, &t.type);
                break;
            case 5: {
                const int length = *std::min_element(lengths.begin(), lengths.end());
                if (length == 0) return made_of(inner);
                t.bases = pieces * length, t.name = "indexed_block";
                if (random_.one_of(2))
                    MPI_Type_create_indexed_block(pieces, length, at.data(), inner.type, &t.type);
                else
                    MPI_Type_create_hindexed_block(pieces, length, bytes.data(), inner.type, &t.type);
                break;
            }
            case 6: {
                const std::vector<MPI_Datatype> types(lengths.size(), inner.type);
                t.bases = all, t.name = "struct";
                MPI_Type_create_struct(pieces, lengths.data(), bytes.data(), types.data(), &t.type);
                break;
            }
            case 7: {
                if (inner.extent < 0) return made_of(inner);
                const int dimensions = random_.between(1, 3);
                int sizes[3], parts[3], starts[3];
                t.name = "subarray", t.bases = 1;
                for (int i = 0; i < dimensions; ++i) {
                    sizes[i] = random_.between(1, 6), parts[i] = random_.between(1, sizes[i]);
                    starts[i] = random_.between(0, sizes[i] - parts[i]), t.bases *= parts[i];
                }
                MPI_Type_create_subarray(dimensions, sizes, parts, starts,
                                         random_.one_of(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner.type, &t.type);
                break;
            }
            default:
                t.name = "dup";
                MPI_Type_dup(inner.type, &t.type);
                break;
        }
        t.bases *= inner.bases;
        t.name += " of " + inner.name;
        return t;
    }

    // Other bounds, below the first byte or behind it; elements may go backwards.
    Type resized(Type t) {
        Type other = t;
        const MPI_Aint extent = t.span() + 8 * random_.pick(5), lower = t.begin + 8 * random_.between(-4, 4);
        MPI_Type_create_resized(t.type, lower, random_.one_of(4) ? -extent : extent, &other.type);
        free_type(t);
        other.name = "resized " + other.name;
        return measured(other);
    }

    Random& random_;
    Type base_;
    bool mixed_ = false;
};
