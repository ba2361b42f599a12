// SPDX-License-Identifier: MIT
// MPI_Allreduce of large device memory, which libhpe has the devices make where all ranks can: every type and operation
// against what MPI makes of the same numbers in host memory, bit for bit, and what else a program may do with it. Every
// byte of the objects is checked, also those beside the numbers. With WITHOUT_DEVICE a rank has host memory only.
// usage: mpi_reductions CASE...; without a case prints all. Each rank prints how many bytes were wrong.
#include <cuda_runtime_api.h>
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Bytes = std::vector<unsigned char>;

int rank, ranks;
long wrong;
bool device = true;
int devices;
const char* program;

// Device memory, or host memory.
class Memory {
public:
    Memory(std::size_t bytes, bool on_device) : bytes_(bytes), on_device_(on_device && device) {
        if (!on_device_) at_ = static_cast<unsigned char*>(std::malloc(bytes));
        if (on_device_ && cudaMalloc(reinterpret_cast<void**>(&at_), bytes) != cudaSuccess)
            MPI_Abort(MPI_COMM_WORLD, 1);
        put(Bytes(bytes, 0xEE));
    }
    explicit Memory(std::size_t bytes) : Memory(bytes, true) {}
    ~Memory() { on_device_ ? static_cast<void>(cudaFree(at_)) : std::free(at_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    unsigned char* at(std::size_t offset = 0) const { return at_ + offset; }
    // On the device alone.
    void put(const Bytes& all, std::size_t offset = 0) const {
        if (on_device_)
            cudaMemcpy(at_ + offset, all.data(), all.size(), cudaMemcpyHostToDevice);
        else
            std::memcpy(at_ + offset, all.data(), all.size());
    }
    // Whether it is this, and elsewhere as it was made.
    void check(const Bytes& all, std::size_t offset = 0) const {
        Bytes got(bytes_);
        if (on_device_)
            cudaMemcpy(got.data(), at_, bytes_, cudaMemcpyDeviceToHost);
        else
            std::memcpy(got.data(), at_, bytes_);
        for (std::size_t i = 0; i < bytes_; ++i) {
            const bool inside = i >= offset && i - offset < all.size();
            wrong += got[i] != (inside ? all[i - offset] : 0xEE);
        }
    }

private:
    unsigned char* at_ = nullptr;
    const std::size_t bytes_;
    const bool on_device_;
};

// Any bits; of floating point numbers also those that are none, but never for two ranks at one place: which of them
// comes out is MPI's own affair.
Bytes numbers(MPI_Datatype type, int count, unsigned seed) {
    int size = 0;
    MPI_Type_size(type, &size);
    Bytes all(static_cast<std::size_t>(count) * static_cast<std::size_t>(size));
    std::mt19937 generator(seed * 100 + static_cast<unsigned>(rank));
    for (std::size_t i = 0; i + 3 < all.size(); i += 4) {
        const auto bits = static_cast<std::uint32_t>(generator());
        std::memcpy(&all[i], &bits, 4);
    }
    const auto special = [&](auto number, auto none) {
        for (int i = 0; i < count; ++i) {
            auto* const place = &all[static_cast<std::size_t>(i) * sizeof number];
            std::memcpy(&number, place, sizeof number);
            if (number != number || i % 3 == 0) number = static_cast<decltype(number)>(i % 1000) / 7 - rank * 50;
            if (i % 64 == rank) std::memcpy(&number, &none, sizeof none);
            if (i % 64 == 10) number = rank % 2 == 0 ? 0.0f : -0.0f;
            if (i % 64 == 11) number = static_cast<decltype(number)>(rank % 2 == 0 ? 1 : -1) * 3e38f * 3e38f;
            if (i % 64 == 12) number = sizeof number == 4 ? 1e-40f : static_cast<decltype(number)>(4e-310);
            std::memcpy(place, &number, sizeof number);
        }
    };
    if (type == MPI_FLOAT) special(0.0f, std::uint32_t{0x7fa00000} + static_cast<std::uint32_t>(rank));
    if (type == MPI_DOUBLE) special(0.0, std::uint64_t{0xfff4000000000000} + static_cast<std::uint64_t>(rank));
    return all;
}

// What MPI makes of it.
Bytes expected(const Bytes& own, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm = MPI_COMM_WORLD) {
    Bytes all(own.size());
    MPI_Allreduce(own.data(), all.data(), count, type, op, comm);
    return all;
}

constexpr int kCount = 300007;

// One call on the numbers at `offset`, on memory of each kind.
void reduce(MPI_Datatype type, MPI_Op op, unsigned seed, MPI_Comm comm = MPI_COMM_WORLD, std::size_t offset = 0,
            int count = kCount, bool from_device = true, bool to_device = true, bool in_place = false) {
    const auto own = numbers(type, count, seed);
    const auto all = expected(own, count, type, op, comm);
    const Memory from(own.size() + offset + 100, from_device), to(own.size() + offset + 100, to_device);
    from.put(own, offset);
    if (in_place) {
        MPI_Allreduce(MPI_IN_PLACE, from.at(offset), count, type, op, comm);
        from.check(all, offset);
    } else {
        MPI_Allreduce(from.at(offset), to.at(offset), count, type, op, comm);
        from.check(own, offset);
        to.check(all, offset);
    }
}

void every() {
    const MPI_Datatype types[] = {MPI_FLOAT,   MPI_DOUBLE,        MPI_INT,     MPI_UNSIGNED, MPI_LONG_LONG,
                                  MPI_INT32_T, MPI_UNSIGNED_LONG, MPI_INT64_T, MPI_UINT32_T, MPI_UINT64_T,
                                  MPI_SHORT,   MPI_LONG,          MPI_INTEGER};
    const MPI_Op operations[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LXOR};
    unsigned seed = 0;
    for (const auto type : types) {
        const bool floating = type == MPI_FLOAT || type == MPI_DOUBLE;
        for (const auto op : operations) {
            // Of more than two the order counts, and MPI does not always take the same.
            if ((floating && (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR || op == MPI_LXOR || ranks > 2)) ||
                (type == MPI_INTEGER && op == MPI_LXOR)) {
                continue;
            }
            // Three ranks take long.
            if (++seed % 2 == 0 && ranks > 2) continue;
            const int count = type == MPI_SHORT ? 3 * kCount : kCount;
            reduce(type, op, seed, MPI_COMM_WORLD, 0, count, true, true, seed % 3 == 0);
        }
    }
}

// Numbers anywhere in an object, of any count.
void places() {
    const std::size_t offsets[] = {4, 8, 4100, 65536, 70004};
    const int counts[] = {262144, 262145, 262143, 300000, 524288, 1048579};
    for (unsigned n = 0; n < 12; ++n)
        reduce(MPI_INT, n % 2 != 0 ? MPI_SUM : MPI_MAX, n, MPI_COMM_WORLD, offsets[n % 5], counts[n % 6], true, true,
               n % 4 == 3);
}

// Some ranks have the one or the other buffer in host memory.
void mixed() {
    for (unsigned n = 0; n < 16; ++n) {
        const auto bits = (n >> (2 * (rank % 2))) & 3u;
        reduce(MPI_INT, MPI_SUM, n, MPI_COMM_WORLD, 0, kCount, (bits & 1u) == 0, (bits & 2u) == 0);
        if (n % 4 == 0) reduce(MPI_INT, MPI_SUM, n);
    }
}

// The CPU has written some of what is read, and reads and writes what came.
void written() {
    const auto bytes = std::size_t{kCount} * 4;
    const Memory from(bytes), to(bytes);
    for (unsigned round = 0; round < 6; ++round) {
        const auto own = numbers(MPI_INT, kCount, round);
        const auto all = expected(own, kCount, MPI_INT, MPI_SUM);
        from.put(Bytes(bytes, 1));
        from.put(own);
        std::memset(from.at(1000), 7, bytes / 4);
        std::memcpy(from.at(1000), &own[1000], bytes / 4);
        MPI_Allreduce(from.at(), to.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += to.at()[7] != all[7];
        to.check(all);
        std::memset(to.at(round * 100000), 3, 5000);
        MPI_Allreduce(MPI_IN_PLACE, to.at(), kCount, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        auto same = all;
        std::memset(&same[round * 100000], 3, 5000);
        to.check(same);
    }
}

// Parts of the world, in other orders; duplicates; and two groups of ranks.
void communicators() {
    MPI_Comm turned, halves, copy, copy_of_halves;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    MPI_Comm_dup(halves, &copy_of_halves);
    for (unsigned round = 0; round < 4; ++round) {
        reduce(MPI_INT, MPI_SUM, round, turned);
        reduce(MPI_UINT64_T, MPI_SUM, round, halves);
        reduce(MPI_INT, MPI_SUM, round, MPI_COMM_SELF);
        MPI_Comm_dup(turned, &copy);
        reduce(MPI_INT, MPI_BXOR, round, copy);
        MPI_Comm_free(&copy);
        reduce(MPI_INT, MPI_MIN, round, copy_of_halves);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_free(&copy);
    if (ranks > 1) {
        MPI_Comm between;
        MPI_Intercomm_create(halves, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
        for (unsigned round = 0; round < 3; ++round) reduce(MPI_INT, MPI_SUM, round, between);
        MPI_Comm_free(&between);
    }
    MPI_Comm_free(&copy_of_halves);
    MPI_Comm_free(&halves);
    MPI_Comm_free(&turned);
}

// Messages of the program's own are under way, for which any would do; and collective calls that have begun.
void beside() {
    const int to = (rank + 1) % ranks;
    for (unsigned round = 0; round < 4; ++round) {
        int got = -1, sum = 0;
        MPI_Request all[2];
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &all[0]);
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &all[1]);
        reduce(MPI_INT, MPI_SUM, round);
        MPI_Send(&rank, 1, MPI_INT, to, 9, MPI_COMM_WORLD);
        MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
        wrong += got != (rank + ranks - 1) % ranks || sum != ranks * (ranks - 1) / 2;
    }
}

// Two threads, each with a communicator.
void threads() {
    int level = 0;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) return;
    MPI_Comm comms[2];
    for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    std::vector<Bytes> own, all;
    std::vector<std::thread> both;
    const Memory memory[] = {Memory(4 * kCount), Memory(4 * kCount)};
    for (unsigned n = 0; n < 2; ++n) {
        own.push_back(numbers(MPI_INT, kCount, n));
        all.push_back(expected(own[n], kCount, MPI_INT, MPI_SUM));
    }
    long bad[2] = {};
    for (unsigned n = 0; n < 2; ++n) {
        both.emplace_back([&, n] {
            if (device) cudaSetDevice(rank % devices);
            for (int round = 0; round < 20; ++round) {
                memory[n].put(own[n]);
                MPI_Allreduce(MPI_IN_PLACE, memory[n].at(), kCount, MPI_INT, MPI_SUM, comms[n]);
                Bytes got(all[n].size());
                if (device)
                    cudaMemcpy(got.data(), memory[n].at(), got.size(), cudaMemcpyDeviceToHost);
                else
                    std::memcpy(got.data(), memory[n].at(), got.size());
                bad[n] += got != all[n];
            }
        });
    }
    for (auto& thread : both) thread.join();
    wrong += bad[0] + bad[1];
    for (auto& comm : comms) MPI_Comm_free(&comm);
}

// Nothing, little, other types and operations of the program's own.
void others() {
    reduce(MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD, 0, 1);
    reduce(MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD, 0, 1000);
    MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Datatype many;
    MPI_Type_contiguous(kCount, MPI_INT, &many);
    MPI_Type_commit(&many);
    MPI_Op add;
    MPI_Op_create(
        [](void* in, void* inout, int* length, MPI_Datatype* type) {
            int size = 0;
            MPI_Type_size(*type, &size);
            for (int i = 0; i < *length * (size / 4); ++i)
                static_cast<unsigned*>(inout)[i] += static_cast<unsigned*>(in)[i];
        },
        1, &add);
    for (unsigned round = 0; round < 3; ++round) {
        const auto own = numbers(MPI_INT, kCount, round);
        const auto all = expected(own, kCount, MPI_INT, MPI_SUM);
        const Memory from(own.size()), to(own.size());
        from.put(own);
        MPI_Allreduce(from.at(), to.at(), 1, many, add, MPI_COMM_WORLD);
        to.check(all);
        to.put(Bytes(own.size(), 0));
        MPI_Allreduce(from.at(), to.at(), kCount, MPI_INT, add, MPI_COMM_WORLD);
        to.check(all);
#if MPI_VERSION >= 4
        to.put(Bytes(own.size(), 0));
        MPI_Allreduce_c(from.at(), to.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        to.check(all);
#endif
        MPI_Request request;
        to.put(Bytes(own.size(), 0));
        MPI_Iallreduce(from.at(), to.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        to.check(all);
    }
    MPI_Op_free(&add);
    MPI_Type_free(&many);
}

// A process is forked, and lives on, while the ranks work.
void forked() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        char byte;
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    for (unsigned round = 0; round < 3; ++round) reduce(MPI_INT, MPI_SUM, round);
    close(ends[1]);
    int status = 1;
    waitpid(child, &status, 0);
    wrong += status != 0;
}

// Memory is freed and made anew, at the same addresses, too.
void renewed() {
    for (unsigned round = 0; round < 8; ++round)
        reduce(MPI_INT, MPI_SUM, round, MPI_COMM_WORLD, 0, kCount + static_cast<int>(round % 3) * 16384);
}

// The same buffers again and again, in the first call and later ones, and nothing else: what moves?
void moves(MPI_Datatype type, MPI_Op op) {
    constexpr int kInts = 1 << 19;
    const auto own = numbers(type, kInts, 5);
    const Memory from(own.size()), to(own.size());
    from.put(own);
    const MPI_Comm comm = MPI_COMM_WORLD;
    for (int round = 0; round < 4; ++round) MPI_Allreduce(from.at(), to.at(), kInts, type, op, comm);
    to.check(expected(own, kInts, type, op));
}
void moves_ints() { moves(MPI_INT, MPI_SUM); }
void moves_floats() { moves(MPI_FLOAT, MPI_SUM); }
void moves_greatest() { moves(MPI_FLOAT, MPI_MAX); }

// Some rank's device refuses: every rank gets an error, and no one waits. What was to be written may be anything.
void refused() {
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const Memory memory(4 * kCount);
    for (int round = 0; round < 3; ++round) {
        const int result = MPI_Allreduce(MPI_IN_PLACE, memory.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int kind = result;
        MPI_Error_class(result, &kind);
        wrong += kind != (round == 1 ? MPI_ERR_OTHER : MPI_SUCCESS);
    }
}

// Processes of two worlds.
void in_both(MPI_Comm between, bool first) {
    MPI_Comm all;
    MPI_Intercomm_merge(between, first ? 0 : 1, &all);
    for (unsigned round = 0; round < 3; ++round) {
        reduce(MPI_INT, MPI_SUM, round, all);
        reduce(MPI_INT, MPI_SUM, round);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
}
void spawned() {
    std::string preload = std::string("LD_PRELOAD=") + (std::getenv("LD_PRELOAD") ? std::getenv("LD_PRELOAD") : ""),
                path = std::string("LD_LIBRARY_PATH=") + std::getenv("LD_LIBRARY_PATH"), itself(program),
                child("child");
    char env[] = "env", *arguments[] = {preload.data(), path.data(), itself.data(), child.data(), nullptr};
    MPI_Comm between;
    MPI_Comm_spawn(env, arguments, ranks, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
    in_both(between, true);
}

// Without MPI_Finalize.
void left() {
    reduce(MPI_INT, MPI_SUM, 1);
    reduce(MPI_INT, MPI_SUM, 2);
}

const std::map<std::string, void (*)()> kCases = {{"every", every},
                                                  {"places", places},
                                                  {"mixed", mixed},
                                                  {"written", written},
                                                  {"beside", beside},
                                                  {"threads", threads},
                                                  {"others", others},
                                                  {"communicators", communicators},
                                                  {"forked", forked},
                                                  {"renewed", renewed},
                                                  {"left", left},
                                                  {"refused", refused},
                                                  {"spawned", spawned},
                                                  {"moves_ints", moves_ints},
                                                  {"moves_floats", moves_floats},
                                                  {"moves_greatest", moves_greatest}};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        for (const auto& [name, run] : kCases) std::printf("%s\n", name.c_str());
        return 0;
    }
    program = argv[0];
    device = std::getenv("WITHOUT_DEVICE") == nullptr;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    // Some use CUDA before their first call, which is one of host memory.
    if (device && (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(rank % devices) != cudaSuccess))
        return 2;
    if (std::string(argv[1]) == "child") {
        MPI_Comm between;
        MPI_Comm_get_parent(&between);
        in_both(between, false);
        MPI_Finalize();
        return 0;
    }
    std::string bad;
    for (int i = 1; i < argc; ++i) {
        const long so_far = wrong;
        kCases.at(argv[i])();
        if (wrong != so_far) bad += std::string(" ") + argv[i];
        MPI_Barrier(MPI_COMM_WORLD);
    }
    std::printf("rank %d:%s %ld wrong\n", rank, bad.c_str(), wrong);
    std::fflush(stdout);
    if (std::string(argv[argc - 1]) == "left") {
        MPI_Barrier(MPI_COMM_WORLD);  // all have said it
        _exit(0);
    }
    MPI_Finalize();
    return 0;
}
