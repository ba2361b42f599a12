// SPDX-License-Identifier: MIT
// Random messages between ranks: any datatypes, counts, orders and ways to send, receive and complete, many at a time in
// few objects, while kernels, copies and CPU accesses change bytes beside them. All is done twice, with host memory and
// with device memory; every byte, gaps and neighbours included, and every answer must be equal. A rank without a device
// (WITHOUT_DEVICE=1) uses host memory both times.
//
// usage: mpi_messages SEED FIRST LAST: steps FIRST to LAST - 1; each can be run alone.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpi_types.h"

namespace {

enum class Out { Send, Isend, Issend, Rsend, Bsend, Persistent };
enum class In { Irecv, Recv, Probed, Persistent, Any };
enum class End { Each, All, AnyOne, Some, Test, TestAll, TestSome };

struct Message {
    int from, to, tag;
    Type sent, received;
    int count, room;  // in elements
    Out out;
    In in;
    std::size_t send_at = 0, receive_at = 0;  // where the elements are in the rank's memory
};

constexpr std::size_t kSmall = 1 << 14, kLarge = 3 << 20;

__global__ void change(unsigned char* at, int n, int seed) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += static_cast<int>(gridDim.x * blockDim.x)) {
        at[i] = static_cast<unsigned char>(at[i] * 5 + seed);
    }
}

// A rank's memory for a step: bytes that messages use, and bytes beside them.
struct Memory {
    std::vector<unsigned char> host;
    unsigned char* device = nullptr;
    bool with_device = true;
    ~Memory() {
        if (with_device) cudaFree(device);
        else std::free(device);
    }
};

struct Rank {
    int rank = 0, ranks = 0;
    bool device = true;
    MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    long messages = 0, wrong = 0;
};

// Room for the elements of one message. Returns where the element at zero is.
std::size_t take_room(std::size_t& used, const Type& t, int count, Random& random) {
    const MPI_Aint last = static_cast<MPI_Aint>(count > 0 ? count - 1 : 0) * t.extent;
    const MPI_Aint lowest = t.begin + std::min<MPI_Aint>(last, 0), highest = t.end + std::max<MPI_Aint>(last, 0);
    // Bytes beside, and any alignment that the base allows.
    const auto first = (used + 8 * static_cast<std::size_t>(random.pick(40)) + 7) / 8 * 8;
    const auto low = (lowest % 8 + 8) % 8;
    used = first + static_cast<std::size_t>(low + highest - lowest) + 8;
    return static_cast<std::size_t>(static_cast<MPI_Aint>(first) + low - lowest);
}

std::vector<Message> random_messages(Random& random, int ranks, int step, std::vector<Type>& all_types) {
    std::vector<Message> messages;
    Types types(random);
    const int n = random.between(1, 12);
    const bool large = random.one_of(12);
    for (int i = 0; i < n; ++i) {
        Message m;
        m.from = random.pick(ranks), m.to = random.pick(ranks), m.tag = i + 100 * (step % 1000);
        m.sent = types.make();
        const int how = random.pick(4);
        if (how == 0) {
            MPI_Type_dup(m.sent.type, &m.received.type);
            m.received = measured(m.received), m.received.bases = m.sent.bases;
            m.received.at_most = m.sent.at_most, m.received.name = "the same";
        } else {
            m.received = types.make();
        }
        const int most = large ? 20000 : 60;
        m.count = std::min(random.one_of(12) ? 0 : random.between(1, most), m.sent.at_most);
        // A large message now and then, of not more than a few megabytes with its gaps.
        const auto fits = [&](const Type& t, int count) {
            return static_cast<double>(std::abs(t.extent)) * count < static_cast<double>(large ? kLarge : kSmall);
        };
        while (m.count > 1 && !fits(m.sent, m.count)) m.count /= 2;
        // Room for all of it: exactly, or with more behind it.
        for (;;) {
            const long bases = static_cast<long>(m.count) * m.sent.bases;
            m.room = static_cast<int>((bases + m.received.bases - 1) / m.received.bases) + random.pick(3);
            m.room = std::max(m.room, 0);
            if (m.room <= m.received.at_most && (m.count <= 1 || fits(m.received, m.room))) break;
            if (m.count == 0) {
                m.room = 0;
                break;
            }
            m.count /= 2;
        }
        m.in = static_cast<In>(random.pick(5));
        m.out = static_cast<Out>(random.pick(6));
        // Whoever waits for a receive must not wait for the send: it may be another's turn.
        if (m.in == In::Recv || m.in == In::Probed) m.out = random.one_of(2) ? Out::Isend : Out::Bsend;
#ifndef OPEN_MPI
        // MPICH 4.0 itself sends too many bytes of structures through a buffer.
        if (m.out == Out::Bsend && types.mixed()) m.out = Out::Isend;
#endif
        all_types.push_back(m.sent), all_types.push_back(m.received);
        messages.push_back(m);
    }
    return messages;
}

using Said = std::vector<long>;

void say(Said& said, std::size_t message, const MPI_Status& status, MPI_Datatype type) {
    int count = 0, elements = 0;
    MPI_Get_count(&status, type, &count);
    MPI_Get_elements(&status, type, &elements);
    said[3 * message] = status.MPI_SOURCE * 1000000L + status.MPI_TAG;
    said[3 * message + 1] = count;
    said[3 * message + 2] = elements;
}

// Until all have completed. done(index, status)
template <class Done>
void complete(End how, std::vector<MPI_Request>& requests, Random& random, Done&& done) {
    const int n = static_cast<int>(requests.size());
    std::vector<MPI_Status> statuses(requests.size());
    std::vector<int> indices(requests.size());
    if (how == End::Each || how == End::Test) {
        std::iota(indices.begin(), indices.end(), 0);
        std::shuffle(indices.begin(), indices.end(), random.engine);
        for (const int i : indices) {
            auto& request = requests[static_cast<std::size_t>(i)];
            MPI_Status status;
            int flag = how == End::Each;
            if (flag) MPI_Wait(&request, &status);
            while (!flag) MPI_Test(&request, &flag, &status);
            done(i, status);
        }
    } else if (how == End::All || how == End::TestAll) {
        int flag = how == End::All;
        if (flag) MPI_Waitall(n, requests.data(), statuses.data());
        while (!flag) MPI_Testall(n, requests.data(), &flag, statuses.data());
        for (int i = 0; i < n; ++i) done(i, statuses[static_cast<std::size_t>(i)]);
    } else if (how == End::AnyOne) {
        for (;;) {
            int index = 0;
            MPI_Status status;
            MPI_Waitany(n, requests.data(), &index, &status);
            if (index == MPI_UNDEFINED) break;
            done(index, status);
        }
    } else {
        for (;;) {
            int count = 0;
            if (how == End::Some) MPI_Waitsome(n, requests.data(), &count, indices.data(), statuses.data());
            else MPI_Testsome(n, requests.data(), &count, indices.data(), statuses.data());
            if (count == MPI_UNDEFINED) break;
            for (int i = 0; i < count; ++i) done(indices[static_cast<std::size_t>(i)], statuses[static_cast<std::size_t>(i)]);
        }
    }
}

// The messages of a step, `rounds` times; `random` draws the same for host and device memory. beside(n) changes bytes
// that no message uses.
template <class Beside>
void exchange(const Rank& me, MPI_Comm comm, const std::vector<Message>& messages, unsigned char* memory, bool ready,
              int rounds, Random random, Said& said, Beside&& beside) {
    std::vector<std::size_t> order(messages.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<MPI_Request> lasting(2 * messages.size(), MPI_REQUEST_NULL);
    for (int round = 0; round < rounds; ++round) {
        std::vector<MPI_Request> requests(2 * messages.size(), MPI_REQUEST_NULL);
        std::shuffle(order.begin(), order.end(), random.engine);
        for (const auto i : order) {
            const auto& m = messages[i];
            if (m.to != me.rank) continue;
            auto* const at = memory + m.receive_at;
            if (m.in == In::Irecv) {
                MPI_Irecv(at, m.room, m.received.type, m.from, m.tag, comm, &requests[i]);
            } else if (m.in == In::Any) {
                MPI_Irecv(at, m.room, m.received.type, MPI_ANY_SOURCE, m.tag, comm, &requests[i]);
            } else if (m.in == In::Persistent) {
                if (round == 0) MPI_Recv_init(at, m.room, m.received.type, m.from, m.tag, comm, &lasting[i]);
                requests[i] = lasting[i];
                MPI_Start(&requests[i]);
            }
            if (random.one_of(8)) beside();
        }
        if (ready) MPI_Barrier(comm);
        std::shuffle(order.begin(), order.end(), random.engine);
        for (const auto i : order) {
            const auto& m = messages[i];
            if (m.from != me.rank) continue;
            auto* const at = memory + m.send_at;
            auto& request = requests[messages.size() + i];
            switch (m.out) {
                case Out::Send: MPI_Send(at, m.count, m.sent.type, m.to, m.tag, comm); break;
                case Out::Isend: MPI_Isend(at, m.count, m.sent.type, m.to, m.tag, comm, &request); break;
                case Out::Issend: MPI_Issend(at, m.count, m.sent.type, m.to, m.tag, comm, &request); break;
                case Out::Rsend:
                    if (ready) MPI_Irsend(at, m.count, m.sent.type, m.to, m.tag, comm, &request);
                    else MPI_Ssend(at, m.count, m.sent.type, m.to, m.tag, comm);
                    break;
                case Out::Bsend: MPI_Bsend(at, m.count, m.sent.type, m.to, m.tag, comm); break;
                case Out::Persistent:
                    if (round == 0) {
                        MPI_Send_init(at, m.count, m.sent.type, m.to, m.tag, comm, &lasting[messages.size() + i]);
                    }
                    request = lasting[messages.size() + i];
                    MPI_Start(&request);
                    break;
            }
            if (random.one_of(8)) beside();
        }
        for (const auto i : order) {
            const auto& m = messages[i];
            if (m.to != me.rank || (m.in != In::Recv && m.in != In::Probed)) continue;
            auto* const at = memory + m.receive_at;
            MPI_Status status;
            if (m.in == In::Recv) {
                MPI_Recv(at, m.room, m.received.type, m.from, m.tag, comm, &status);
            } else {
                MPI_Message message;
                MPI_Mprobe(m.from, m.tag, comm, &message, &status);
                MPI_Mrecv(at, m.room, m.received.type, &message, &status);
            }
            say(said, i, status, m.received.type);
        }
        complete(static_cast<End>(random.pick(7)), requests, random, [&](int index, const MPI_Status& status) {
            const auto i = static_cast<std::size_t>(index);
            if (i < messages.size() && messages[i].to == me.rank && messages[i].in != In::Recv &&
                messages[i].in != In::Probed) {
                say(said, i, status, messages[i].received.type);
            }
        });
        beside();
    }
    for (auto& request : lasting) {
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
}

void compare(Rank& me, Memory& memory, const std::vector<Message>& messages, int seed, int step, bool by_copy) {
    std::vector<unsigned char> now(memory.host.size());
    if (by_copy) cudaMemcpy(now.data(), memory.device, now.size(), cudaMemcpyDefault);
    else std::memcpy(now.data(), memory.device, now.size());
    const auto differs = std::mismatch(now.begin(), now.end(), memory.host.begin());
    if (differs.first == now.end()) return;
    const auto at = static_cast<std::size_t>(differs.first - now.begin());
    if (me.wrong++ > 3) return;
    std::printf("rank %d: mpi_messages %d %d %d: byte %zu of %zu is %d, not %d\n", me.rank, seed, step, step + 1, at,
                now.size(), *differs.first, *differs.second);
    for (const auto& m : messages) {
        std::printf("  %d to %d: %d x %s as %d x %s, sent %d, received %d, at %zu and %zu\n", m.from, m.to, m.count,
                    m.sent.name.c_str(), m.room, m.received.name.c_str(), static_cast<int>(m.out),
                    static_cast<int>(m.in), m.send_at, m.receive_at);
    }
}

void one_step(Rank& me, int seed, int step) {
    Random same{std::mt19937_64(static_cast<unsigned>(seed) * 1000003ul + static_cast<unsigned>(step))};
    std::vector<Type> types;
    auto messages = random_messages(same, me.ranks, step, types);
    const bool ready = same.one_of(3);
    const int rounds = same.between(1, 3);
    Random own{std::mt19937_64(same.engine() + static_cast<unsigned>(me.rank))};
    std::size_t used = 0;
    std::vector<std::pair<std::size_t, std::size_t>> free_parts;  // no message uses them
    const auto leave_free = [&] {
        const auto bytes = static_cast<std::size_t>(own.pick(own.one_of(10) ? 100000 : 300) + 1);
        free_parts.emplace_back(used, bytes);
        used += bytes;
    };
    leave_free();
    for (auto& m : messages) {
        if (m.from == me.rank) m.send_at = take_room(used, m.sent, m.count, own);
        if (own.one_of(2)) leave_free();
        if (m.to == me.rank) m.receive_at = take_room(used, m.received, m.room, own);
        if (own.one_of(2)) leave_free();
    }
    leave_free();
    Memory memory;
    memory.with_device = me.device;
    memory.host.resize(used);
    for (auto& byte : memory.host) byte = static_cast<unsigned char>(own.engine());
    if (!me.device) memory.device = static_cast<unsigned char*>(std::malloc(used));
    else if (cudaMalloc(reinterpret_cast<void**>(&memory.device), used) != cudaSuccess) std::abort();
    // The newest bytes are on the device, on the host, or here and there.
    if (me.device && own.one_of(2)) cudaMemcpy(memory.device, memory.host.data(), used, cudaMemcpyHostToDevice);
    else std::memcpy(memory.device, memory.host.data(), used);

    for (int twin = 0; twin < 2; ++twin) {
        auto* const at = twin == 0 ? memory.host.data() : memory.device;
        const bool on_device = twin == 1 && me.device;
        Random drawn = own;
        auto beside = [&, drawn]() mutable {
            const auto [begin, bytes] = free_parts[static_cast<std::size_t>(drawn.pick(static_cast<int>(free_parts.size())))];
            const int what = drawn.pick(4), value = drawn.pick(256);
            if (what == 0) {
                if (on_device) {
                    change<<<2, 64>>>(at + begin, static_cast<int>(bytes), value);
                } else {
                    for (std::size_t i = begin; i < begin + bytes; ++i) at[i] = static_cast<unsigned char>(at[i] * 5 + value);
                }
            } else if (what == 1) {
                if (on_device) cudaMemset(at + begin, value, bytes);
                else std::memset(at + begin, value, bytes);
            } else if (what == 2) {
                at[begin + bytes / 2] ^= static_cast<unsigned char>(value);
            } else {
                std::memset(at + begin, value, bytes);
            }
        };
        static Said said[2];
        said[twin].assign(3 * messages.size(), -1);
        exchange(me, me.comms[twin], messages, at, ready, rounds, own, said[twin], beside);
        if (twin == 1 && said[0] != said[1] && me.wrong++ < 3) {
            std::printf("rank %d: mpi_messages %d %d %d: other answers\n", me.rank, seed, step, step + 1);
        }
    }
    compare(me, memory, messages, seed, step, me.device && own.one_of(2));
    me.messages += static_cast<long>(messages.size()) * rounds;
    for (auto& type : types) free_type(type);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    MPI_Init(&argc, &argv);
    Rank me;
    me.device = std::getenv("WITHOUT_DEVICE") == nullptr;
    MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &me.ranks);
    for (auto& comm : me.comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    // For what is sent with a buffer: all of a step, three times.
    std::vector<char> buffer(std::size_t{128} << 20);
    MPI_Buffer_attach(buffer.data(), static_cast<int>(buffer.size()));
    for (int step = std::atoi(argv[2]); step < std::atoi(argv[3]); ++step) one_step(me, std::atoi(argv[1]), step);
    std::printf("rank %d: %ld messages, %ld wrong\n", me.rank, me.messages, me.wrong);
    std::fflush(stdout);
    void* memory = nullptr;
    int size = 0;
    MPI_Buffer_detach(&memory, &size);
    for (auto& comm : me.comms) MPI_Comm_free(&comm);
    MPI_Finalize();
    return me.wrong != 0;
}
