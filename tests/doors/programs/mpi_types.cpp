// SPDX-License-Identifier: MIT
// Random nested datatypes with gaps, large enough to be packed on the device, in messages and in MPI_Pack and
// MPI_Unpack, with host and device buffers (mpi_twins.h): every byte of both, gaps included.
// usage: mpi_types SEED ROUNDS; or mpi_types column|row BYTES, which sends every other double, or a row of them; or
// mpi_types packed BYTES, which packs and unpacks every other double; or mpi_types first|ahead BYTES, which receives
// bytes that the CPU is about to write to or to read; or mpi_types again BYTES, which sends to itself, from device to
// device, again and again, and once more after the devices were reset.
#include <algorithm>
#include <numeric>

#include "mpi_twins.h"

namespace {

// Elements of it may stand one after the other without touching each other's bytes.
struct Type {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Aint begin = 0, end = 0, extent = 0;
    int bytes = 0;
    std::string name;
    MPI_Aint span() const { return end - begin; }
};

Type measured(MPI_Datatype type, std::string name) {
    Type t;
    MPI_Aint lower = 0, size = 0;
    t.type = type;
    t.name = std::move(name);
    MPI_Type_get_extent(type, &lower, &t.extent);
    MPI_Type_get_true_extent(type, &t.begin, &size);
    MPI_Type_size(type, &t.bytes);
    t.end = t.begin + size;
    return t;
}

class Maker {
public:
    explicit Maker(Twins& w) : w_(w) {}
    ~Maker() {
        for (auto& type : made_) MPI_Type_free(&type);
    }
    int base = 0;        // bytes of the innermost elements
    bool mixed = false;  // there is a struct
    // Of a span and a number of bytes that suit a test.
    Type make() {
        Type t = basic();
        base = t.bytes;
        for (int levels = w_.pick(4); levels > 0 && t.span() < 20000; --levels) t = around(t);
        // The outermost makes it large.
        const auto gap = w_.pick(3) == 0 ? 0 : 8 * w_.pick(3000) + (w_.pick(8) == 0 ? w_.pick(8) : 0);
        const auto stride = t.span() + gap;
        const int n = std::max<int>(1, static_cast<int>(std::min<MPI_Aint>(700000 / stride, 200000 / t.bytes)));
        return w_.pick(6) == 0 ? scattered(t, n, stride) : level(t, "hvector", [&](MPI_Datatype* to) {
            MPI_Type_create_hvector(n, 1, w_.pick(5) == 0 ? -stride : stride, t.type, to);
        });
    }

private:
    template <class Make>
    Type level(const Type& inner, const std::string& name, Make&& make) {
        MPI_Datatype type;
        make(&type);
        MPI_Type_commit(&type);
        made_.push_back(type);
        Type t = measured(type, name + " of " + inner.name);
        if (t.extent >= t.span()) return t;
        MPI_Datatype resized;
        MPI_Type_create_resized(type, t.begin, t.span() + 8, &resized);
        MPI_Type_commit(&resized);
        made_.push_back(resized);
        return measured(resized, t.name);
    }
    Type basic() {
        const MPI_Datatype all[] = {MPI_DOUBLE, MPI_INT, MPI_SHORT, MPI_CHAR};
        const char* const names[] = {"doubles", "ints", "shorts", "chars"};
        const int i = w_.pick(4);
        return measured(all[i], names[i]);
    }
    // Blocks at irregular places, in any order.
    Type scattered(const Type& in, int n, MPI_Aint stride) {
        std::vector<MPI_Aint> places(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < places.size(); ++i) {
            places[i] = static_cast<MPI_Aint>(i) * (stride + 40) + 4 * w_.pick(10);
        }
        if (w_.pick(2) == 0) std::shuffle(places.begin(), places.end(), w_.same);
        return level(in, "hindexed block",
                     [&](MPI_Datatype* to) { MPI_Type_create_hindexed_block(n, 1, places.data(), in.type, to); });
    }
    Type around(const Type& in) {
        const int n = 1 + w_.pick(6), length = 1 + w_.pick(3);
        const auto block = (length - 1) * in.extent + in.span();
        switch (w_.pick(9)) {
            case 0: return level(in, "contiguous", [&](MPI_Datatype* to) { MPI_Type_contiguous(n, in.type, to); });
            case 1:
                return level(in, "vector", [&](MPI_Datatype* to) {
                    const int stride = length + w_.pick(4);
                    MPI_Type_vector(n, length, w_.pick(4) == 0 ? -stride : stride, in.type, to);
                });
            case 2:
                return level(in, "hvector", [&](MPI_Datatype* to) {
                    MPI_Type_create_hvector(n, length, block + w_.pick(50), in.type, to);
                });
            case 3: {
                std::vector<int> lengths, places;
                int at = -w_.pick(5);
                for (int i = 0; i < n; ++i, at += lengths.back() + w_.pick(3)) {
                    lengths.push_back(w_.pick(4) + (i == 0));
                    places.push_back(at);
                }
                return level(in, "indexed", [&](MPI_Datatype* to) {
                    MPI_Type_indexed(n, lengths.data(), places.data(), in.type, to);
                });
            }
            case 4: {
                std::vector<int> places(static_cast<std::size_t>(n));
                for (int i = 0; i < n; ++i) places[static_cast<std::size_t>(i)] = i * (length + 1) + w_.pick(2);
                std::shuffle(places.begin(), places.end(), w_.same);
                return level(in, "indexed block", [&](MPI_Datatype* to) {
                    MPI_Type_create_indexed_block(n, length, places.data(), in.type, to);
                });
            }
            case 5: {
                const Type other = basic();
                mixed = true;
                int lengths[3] = {length, 1 + w_.pick(4), n};
                MPI_Aint places[3] = {-in.begin, block + 8 * w_.pick(4), 0};
                places[2] = places[1] + other.extent * lengths[1] + 8 - in.begin;
                MPI_Datatype types[3] = {in.type, other.type, in.type};
                return level(in, "struct",
                             [&](MPI_Datatype* to) { MPI_Type_create_struct(3, lengths, places, types, to); });
            }
            case 6: {
                int sizes[3], parts[3], starts[3];
                const int dimensions = 1 + w_.pick(3);
                for (int d = 0; d < dimensions; ++d) {
                    sizes[d] = 1 + w_.pick(6), parts[d] = 1 + w_.pick(sizes[d]);
                    starts[d] = w_.pick(sizes[d] - parts[d] + 1);
                }
                return level(in, "subarray", [&](MPI_Datatype* to) {
                    MPI_Type_create_subarray(dimensions, sizes, parts, starts,
                                             w_.pick(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, in.type, to);
                });
            }
            case 7:
                return level(in, "resized", [&](MPI_Datatype* to) {
                    MPI_Type_create_resized(in.type, in.begin - w_.pick(20), in.span() + 4 * w_.pick(20), to);
                });
            default: return level(in, "dup", [&](MPI_Datatype* to) { MPI_Type_dup(in.type, to); });
        }
    }

    Twins& w_;
    std::vector<MPI_Datatype> made_;
};

// MPICH 4.0 itself fails to receive parts of some elements, and to replace, or to receive as bytes, some structs.
#ifdef OPEN_MPI
constexpr bool kMpich = false;
#else
constexpr bool kMpich = true;
#endif

// Where elements begin in a buffer, and how large it must be.
struct Room {
    std::size_t offset, bytes;
    Room(const Type& t, int count) {
        const MPI_Aint last = (count - 1) * t.extent;
        const MPI_Aint lowest = t.begin + std::min<MPI_Aint>(last, 0), highest = t.end + std::max<MPI_Aint>(last, 0);
        offset = static_cast<std::size_t>(std::max<MPI_Aint>(-lowest, 0)) / 64 * 64 + 128;
        bytes = offset + static_cast<std::size_t>(std::max<MPI_Aint>(highest, 0)) + 64;
    }
};

void message(Twins& w) {
    Maker maker(w);
    const Type t = maker.make();
    const int count = 1 + w.pick(2), room_for = count + w.pick(2), how = w.pick(6), tag = w.pick(1000);
    const int of_packed = w.pick(2) * w.pick(1 << 30);
    const bool structs_fail = kMpich && maker.mixed;
    const bool odd = w.pick(3) == 0;  // where the buffers begin
    const int before = (w.rank + w.ranks - 1) % w.ranks, behind = (w.rank + 1) % w.ranks;
    w.what = t.name + " x" + std::to_string(count) + " of " + std::to_string(t.bytes) + " bytes in " +
             std::to_string(t.span()) + ", way " + std::to_string(how);
    const Room out(t, count), in(t, room_for);
    Pair send(w, out.bytes + 8), receive(w, in.bytes + 8);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        s += out.offset + odd * 4, r += in.offset + odd * 4;
        MPI_Request requests[2];
        MPI_Status statuses[2]{};
        switch (how) {
            case 0:
                MPI_Irecv(r, room_for, t.type, before, tag, comm, &requests[0]);
                MPI_Isend(s, count, t.type, behind, tag, comm, &requests[1]);
                MPI_Waitall(2, requests, statuses);
                break;
            case 1:
                MPI_Sendrecv(s, count, t.type, behind, tag, r, room_for, t.type, before, tag, comm, &statuses[0]);
                break;
            case 2:
                if (structs_fail) break;
                MPI_Sendrecv_replace(r, count, t.type, behind, tag, before, tag, comm, &statuses[0]);
                break;
            case 3:
                MPI_Recv_init(r, room_for, t.type, before, tag, comm, &requests[0]);
                MPI_Send_init(s, count, t.type, behind, tag, comm, &requests[1]);
                for (int round = 0; round < 3; ++round) {
                    MPI_Startall(2, requests);
                    MPI_Waitall(2, requests, statuses);
                    s[t.begin] = static_cast<char>(s[t.begin] + 1);
                }
                MPI_Request_free(&requests[0]), MPI_Request_free(&requests[1]);
                break;
            case 4: {
                if (structs_fail) break;
                // Packed by the sender, or less than an element.
                std::vector<char> packed(static_cast<std::size_t>(count) * static_cast<std::size_t>(t.bytes));
                int at = 0;
                MPI_Pack(s, count, t.type, packed.data(), static_cast<int>(packed.size()), &at, comm);
                said.push_back(at);
                // Whole basic elements, whatever the rest.
                const int least = kMpich || maker.mixed ? t.bytes : maker.base;
                const int sent = of_packed == 0 ? at : (1 + of_packed % (at / least)) * least;
                MPI_Irecv(r, room_for, t.type, before, tag, comm, &requests[0]);
                MPI_Isend(packed.data(), sent, MPI_PACKED, behind, tag, comm, &requests[1]);
                MPI_Waitall(2, requests, statuses);
                break;
            }
            default: {
                MPI_Message message;
                MPI_Issend(s, count, t.type, behind, tag, comm, &requests[1]);
                MPI_Mprobe(before, tag, comm, &message, MPI_STATUS_IGNORE);
                MPI_Mrecv(r, room_for, t.type, &message, &statuses[0]);
                MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
                break;
            }
        }
        say_status(said, statuses[0], t.type);
    });
}

// To and from host memory and device memory, with something in front.
void pack(Twins& w) {
    Maker maker(w);
    const Type t = maker.make();
    const int count = 1 + w.pick(2), ahead = 1 + w.pick(16);
    w.what = t.name + " x" + std::to_string(count) + " packed behind " + std::to_string(ahead);
    const Room room(t, count);
    const int bytes = ahead + count * t.bytes + 30;
    Pair elements(w, room.bytes), packed(w, static_cast<std::size_t>(bytes)), back(w, room.bytes);
    std::vector<char> host(static_cast<std::size_t>(bytes));
    const bool by_host = w.pick(2) == 0;
    both(w, elements, packed, [&](MPI_Comm comm, char* e, char* p, Said& said) {
        char* const b = e == elements.host() ? back.host() : back.device();
        if (by_host) p = host.data();
        int at = ahead;
        MPI_Pack(e + room.offset, count, t.type, p, bytes, &at, comm);
        said.push_back(at);
        at = ahead;
        MPI_Unpack(p, bytes, &at, b + room.offset, count, t.type, comm);
        said.push_back(at);
    });
    back.check("what was unpacked");
}

// Rank 0 sends a part of its device memory, rank 1 receives it there. Nobody's CPU accesses anything.
int send_part(const std::string& which, std::size_t bytes) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void* memory;
    if (cudaMalloc(&memory, 2 * bytes) != cudaSuccess || cudaMemset(memory, rank + 1, 2 * bytes) != cudaSuccess)
        return 1;
    cudaDeviceSynchronize();
    MPI_Datatype type;
    const std::size_t stride = which == "column" ? 2 : 1;
    MPI_Type_vector(static_cast<int>(bytes / 8), 1, static_cast<int>(stride), MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    if (rank == 0) MPI_Send(memory, 1, type, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(memory, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    std::vector<char> now(2 * bytes);
    cudaMemcpy(now.data(), memory, now.size(), cudaMemcpyDeviceToHost);
    long wrong = 0;
    for (std::size_t at = 0; at < now.size(); ++at) {
        const bool came = rank == 1 && at / 8 % stride == 0 && at < stride * bytes;
        wrong += now[at] != (came ? 1 : rank + 1);
    }
    cudaFree(memory);
    std::printf("rank %d: %s, %ld wrong\n", rank, which.c_str(), wrong);
    return wrong != 0;
}

// What a receive puts on the device is there for the CPU: in memory that nothing was written to before, where the CPU
// writes a byte here and there, and in memory that a sweep of CPU reads is about to come to.
int use_received(const std::string& how, std::size_t bytes) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<char> sent(bytes, 7);
    long wrong = 0;
    if (rank == 0) MPI_Send(sent.data(), static_cast<int>(bytes), MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) {
        void* memory;
        if (cudaMalloc(&memory, 2 * bytes) != cudaSuccess) return 1;
        const volatile char* const all = static_cast<char*>(memory);
        if (how == "ahead") {
            if (cudaMemset(memory, 3, 2 * bytes) != cudaSuccess) return 1;
            for (std::size_t at = 0; at < bytes; ++at) wrong += all[at] != 3;
        }
        char* const to = static_cast<char*>(memory) + bytes;
        MPI_Recv(to, static_cast<int>(bytes), MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (std::size_t at = 0; at < bytes && how == "first"; at += 4096) to[at] = 9;
        for (std::size_t at = 0; at < bytes; ++at)
            wrong += all[bytes + at] != (how == "first" && at % 4096 == 0 ? 9 : 7);
        cudaFree(memory);
    }
    std::printf("rank %d: %s, %ld wrong\n", rank, how.c_str(), wrong);
    return wrong != 0;
}

int send_again(std::size_t bytes) {
    const std::size_t n = bytes / 8;
    std::vector<MPI_Aint> places(n);
    for (std::size_t i = 0; i < n; ++i) places[i] = static_cast<MPI_Aint>(i * 24 + i % 3 / 2 * 8);
    MPI_Datatype type;
    MPI_Type_create_hindexed_block(static_cast<int>(n), 1, places.data(), MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    long wrong = 0;
    int devices = 0;
    cudaGetDeviceCount(&devices);
    for (int epoch = 0; epoch < 2; ++epoch) {
        void *from, *to;
        std::vector<char> first(24 * n + 16), now(first.size()), expected(first.size(), 2);
        for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<char>(i * 13 + i / 255);
        for (auto place : places)
            std::memcpy(&expected[static_cast<std::size_t>(place)], &first[static_cast<std::size_t>(place)], 8);
        if (cudaMalloc(&from, first.size()) != cudaSuccess) return 1;
        cudaMemcpy(from, first.data(), first.size(), cudaMemcpyHostToDevice);
        cudaSetDevice(devices - 1);
        if (cudaMalloc(&to, first.size()) != cudaSuccess) return 1;
        cudaSetDevice(0);
        for (int round = 0; round < 3; ++round) {
            cudaMemset(to, 2, now.size());
            MPI_Sendrecv(from, 1, type, 0, 0, to, 1, type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            cudaMemcpy(now.data(), to, now.size(), cudaMemcpyDeviceToHost);
            wrong += now != expected;
        }
        for (int device = devices - 1; device >= 0; --device) {
            cudaSetDevice(device);
            cudaDeviceReset();
        }
    }
    MPI_Type_free(&type);
    std::printf("rank 0: again, %ld wrong\n", wrong);
    return wrong != 0;
}

// From device memory to device memory.
int pack_part(std::size_t bytes) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *from, *packed, *to;
    for (void** memory : {&from, &packed, &to}) {
        if (cudaMalloc(memory, 2 * bytes) != cudaSuccess ||
            cudaMemset(*memory, memory == &from ? 1 : 2, 2 * bytes) != cudaSuccess)
            return 1;
    }
    MPI_Datatype type;
    MPI_Type_vector(static_cast<int>(bytes / 8), 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    int at = 0, back = 0;
    MPI_Pack(from, 1, type, packed, static_cast<int>(2 * bytes), &at, MPI_COMM_WORLD);
    MPI_Unpack(packed, at, &back, to, 1, type, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    std::vector<char> now(2 * bytes);
    cudaMemcpy(now.data(), packed, now.size(), cudaMemcpyDeviceToHost);
    long wrong = (at != static_cast<int>(bytes)) + (back != at);
    for (std::size_t i = 0; i < now.size(); ++i) wrong += now[i] != (i < bytes ? 1 : 2);
    cudaMemcpy(now.data(), to, now.size(), cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < now.size(); ++i) wrong += now[i] != (i / 8 % 2 == 0 ? 1 : 2);
    for (void* memory : {from, packed, to}) cudaFree(memory);
    std::printf("rank %d: packed, %ld wrong\n", rank, wrong);
    return wrong != 0;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int wrong = 0;
    const std::string first = argv[1];
    if (first == "packed") {
        wrong = pack_part(std::strtoull(argv[2], nullptr, 10));
    } else if (first == "again") {
        wrong = send_again(std::strtoull(argv[2], nullptr, 10));
    } else if (first == "first" || first == "ahead") {
        wrong = use_received(first, std::strtoull(argv[2], nullptr, 10));
    } else if (first == "column" || first == "row") {
        wrong = send_part(first, std::strtoull(argv[2], nullptr, 10));
    } else {
        Twins w(static_cast<unsigned>(std::atoi(argv[1])));
        for (int i = 0, rounds = std::atoi(argv[2]); i < rounds; ++i) w.pick(4) == 0 ? pack(w) : message(w);
        wrong = w.finish();
    }
    MPI_Finalize();
    return wrong;
}
