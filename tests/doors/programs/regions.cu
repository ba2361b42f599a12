// SPDX-License-Identifier: MIT
// Small allocations that share pages: what the driver says of them, and that each is its own. The copying form is the
// same program without libhpe.
#include <cuda.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <random>
#include <vector>

#include "program.h"

namespace {

constexpr std::size_t kChunk = std::size_t{2} << 20;

CUdeviceptr address(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }

template <class T>
T attribute(CUpointer_attribute which, CUdeviceptr at) {
    T value{};
    CHECK_CU(cuPointerGetAttribute(&value, which, at));
    return value;
}

__global__ void add(unsigned char* bytes, std::size_t n, unsigned char by) {
    for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) bytes[i] = static_cast<unsigned char>(bytes[i] + by);
}

// An allocation, and what it must hold.
struct Piece {
    unsigned char* gpu = nullptr;
    std::vector<unsigned char> model;

    explicit Piece(std::size_t bytes) : model(bytes, 7) {
        CHECK(cudaMalloc(&gpu, bytes));
        CHECK(cudaMemset(gpu, 7, bytes));
    }
    void launch(unsigned char by) {
        add<<<1, 128>>>(gpu, model.size(), by);
        CHECK(cudaGetLastError());
        for (auto& byte : model) byte = static_cast<unsigned char>(byte + by);
    }
    void write(unsigned char value) {
        std::fill(model.begin(), model.end(), value);
        write();
    }
    void write() {
        if (plain) {
            std::copy(model.begin(), model.end(), gpu);
        } else {
            CHECK(cudaMemcpy(gpu, model.data(), model.size(), cudaMemcpyHostToDevice));
        }
    }
    bool right() const {
        std::vector<unsigned char> copy(model.size());
        CHECK(cudaMemcpy(copy.data(), gpu, copy.size(), cudaMemcpyDeviceToHost));
        return copy == model && (!plain || std::equal(model.begin(), model.end(), gpu));
    }
};

// Everything the driver tells of random allocations, relative to where their chunks begin, which are numbered: anew
// where one was empty meanwhile, as its address may then be another's.
void answers(int, char**) {
    std::mt19937 random(11);
    struct Held {
        char* p;
        std::size_t bytes;
        CUdeviceptr chunk;
    };
    struct Chunk {
        std::size_t number, held;
    };
    std::vector<Held> all;
    std::map<CUdeviceptr, Chunk> chunks;
    std::size_t numbers = 0;
    Checksum checksum;
    const auto note = [&](std::size_t value) { checksum.add(&value, sizeof value); };
    for (int i = 0; i < 10000; ++i) {
        if (all.size() > 1500 && random() % 2 == 0) {
            const auto which = random() % all.size();
            CHECK(cudaFree(all[which].p));
            const auto chunk = chunks.find(all[which].chunk);
            if (--chunk->second.held == 0) chunks.erase(chunk);
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
            continue;
        }
        const std::size_t bytes = 1 + random() % (random() % 16 == 0 ? 3 * kChunk / 2 : 5000);
        char* p = nullptr;
        CHECK(cudaMalloc(&p, bytes));
        const auto at = address(p);
        const auto inside = at + random() % bytes;
        if (plain && i % 3 == 0) p[bytes / 2] = 1;  // also where the CPU uses some
        CUdeviceptr base = 0;
        std::size_t size = 0;
        CHECK_CU(cuMemGetAddressRange(&base, &size, inside));
        note(base - at);
        note(size);
        note(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) - at);
        note(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
        note(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
        const auto chunk = attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside);
        note(at - chunk);
        const auto [known, is_new] = chunks.emplace(chunk, Chunk{numbers, 0});
        numbers += is_new ? 1 : 0;
        ++known->second.held;
        note(known->second.number);
        all.push_back({p, bytes, chunk});
    }
    say("checksum %016llx, %zu chunks\n", static_cast<unsigned long long>(checksum.value()), numbers);
    for (const auto& held : all) CHECK(cudaFree(held.p));
}

// Large allocations that are freed untouched, and made again with another size of the same whole pages: the driver's
// answers are those of the last one, and so is what it holds. Now and then a larger one takes the place.
void made_again(int, char**) {
    constexpr std::size_t kPages = 3 * kChunk / 2;
    for (unsigned i = 0; i < 48; ++i) {
        const std::size_t bytes = kPages - 100 * (i % 7);
        const bool in_order = i / 8 % 2 != 0;
        unsigned char* made = nullptr;
        CHECK(in_order ? cudaMallocAsync(&made, bytes, nullptr) : cudaMalloc(&made, bytes));
        if (!in_order) {
            CUdeviceptr base = 0;
            std::size_t size = 0;
            CHECK_CU(cuMemGetAddressRange(&base, &size, address(made) + bytes / 2));
            say("begins there %d, size %zu\n", base == address(made), size);
        }
        if (i % 5 == 4) {
            CHECK(cudaMemset(made, static_cast<int>(i), bytes));
            unsigned char last = 0;
            if (plain) {
                CHECK(cudaDeviceSynchronize());
                last = made[bytes - 1];
            } else {
                CHECK(cudaMemcpy(&last, made + bytes - 1, 1, cudaMemcpyDeviceToHost));
            }
            say("holds %d\n", last);
        }
        CHECK(in_order ? cudaFreeAsync(made, nullptr) : cudaFree(made));
        if (i % 6 != 5) continue;
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMalloc(&made, 2 * kPages));
        if (plain) made[kPages] = 1;
        CHECK(cudaFree(made));
    }
}

// A copy, a memset or a free that names more than there is, or more than there are addresses: but for a memset of ~0
// bytes, which NVIDIA's driver takes and ends the context.
void overruns(int, char**) {
    const Piece small(100), other(100);
    Piece large(70000);
    char host[256];
    say("copies %d %d\n", cudaMemcpy(host, small.gpu, 101, cudaMemcpyDeviceToHost),
        cudaMemcpy(large.gpu + 69999, host, 2, cudaMemcpyHostToDevice));
    say("memset %d\n", cudaMemset(other.gpu, 0, 200));
    say("free %d\n", cudaFree(small.gpu + 256));
    for (const std::size_t bytes : {std::size_t{1} << 40, std::size_t{1} << 62}) {
        large.write(static_cast<unsigned char>(bytes >> 60));
        say("%zx: memset %d, copies %d %d\n", bytes, cudaMemset(large.gpu, 0, bytes),
            cudaMemcpy(large.gpu, other.gpu, bytes, cudaMemcpyDeviceToDevice),
            cudaMemcpy(large.gpu, host, bytes, cudaMemcpyHostToDevice));
        say("right %d\n", large.right());
    }
    cudaGetLastError();
    say("right %d %d %d\n", small.right(), other.right(), large.right());
}

// Kernels and the CPU in turn on allocations of one page, some of which are freed and made anew.
void one_page(int, char**) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < 40; ++i) pieces.emplace_back(1 + i * 37 % 700);
    std::mt19937 random(3);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 300; ++round) {
        auto& piece = pieces[random() % pieces.size()];
        switch (random() % 5) {
            case 0: piece.write(static_cast<unsigned char>(round)); break;
            case 1: piece.launch(static_cast<unsigned char>(round)); break;
            case 2:
                CHECK(cudaMemset(piece.gpu, static_cast<int>(round % 200), piece.model.size()));
                std::fill(piece.model.begin(), piece.model.end(), static_cast<unsigned char>(round % 200));
                break;
            case 3: {
                CHECK(cudaFree(piece.gpu));
                piece = Piece(1 + random() % 700);
                break;
            }
            default: wrong += !piece.right(); break;
        }
    }
    for (const auto& piece : pieces) wrong += !piece.right();
    say("%u wrong\n", wrong);
    for (const auto& piece : pieces) CHECK(cudaFree(piece.gpu));
}

// What is allocated in pages that the CPU was writing to when they were freed.
void freed_pages(int, char**) {
    constexpr std::size_t kBytes = 4 * 4096;
    unsigned wrong = 0;
    std::vector<Piece> pieces;
    for (int i = 0; i < 8; ++i) pieces.emplace_back(kBytes);
    for (unsigned round = 0; round < 20; ++round) {
        auto& piece = pieces[round % 4];
        piece.write(static_cast<unsigned char>(round + 1));
        CHECK(cudaFree(piece.gpu));
        for (std::size_t i = 4; i < pieces.size(); ++i) pieces[i].write(static_cast<unsigned char>(round));
        CHECK(cudaMalloc(&piece.gpu, kBytes));  // the CPU is the first to write
        piece.write(static_cast<unsigned char>(round + 2));
        piece.launch(5);
        for (const auto& one : pieces) wrong += !one.right();
        piece.write(static_cast<unsigned char>(round + 3));
        wrong += !piece.right();
    }
    say("%u wrong\n", wrong);
    for (const auto& one : pieces) CHECK(cudaFree(one.gpu));
}

// All is freed, and the chunk with it; then the driver may give the addresses to something else.
void whole_chunks(int, char**) {
    unsigned wrong = 0;
    for (unsigned round = 0; round < 6; ++round) {
        std::vector<Piece> pieces;
        for (std::size_t i = 0; i < 300; ++i) pieces.emplace_back(1 + i * 97 % 20000);
        for (auto& piece : pieces) piece.write(static_cast<unsigned char>(round));
        for (auto& piece : pieces) piece.launch(3);
        for (const auto& piece : pieces) wrong += !piece.right();
        for (const auto& piece : pieces) CHECK(cudaFree(piece.gpu));
        Piece large(3 * kChunk);
        large.write(static_cast<unsigned char>(round + 1));
        large.launch(1);
        wrong += !large.right();
        CHECK(cudaFree(large.gpu));
    }
    say("%u wrong\n", wrong);
}

// Threads with allocations of their own in pages that they share.
void threads(int, char**) {
    constexpr unsigned kThreads = 4;
    std::array<unsigned, kThreads> wrong{};
    struct Work {
        unsigned id;
        unsigned* wrong;
        void operator()() const {
            std::mt19937 random(id);
            std::vector<Piece> own;
            for (unsigned round = 0; round < 150; ++round) {
                if (own.size() < 12) own.emplace_back(1 + random() % 3000);
                auto& piece = own[random() % own.size()];
                piece.write(static_cast<unsigned char>(round + id));
                piece.launch(static_cast<unsigned char>(id + 1));
                *wrong += !piece.right();
                if (random() % 4 != 0) continue;
                CHECK(cudaFree(piece.gpu));
                piece = Piece(1 + random() % 3000);
            }
            for (const auto& piece : own) *wrong += !piece.right();
        }
    };
    std::array<Work, kThreads> work{};
    std::array<pthread_t, kThreads> started{};
    for (unsigned i = 0; i < kThreads; ++i) {
        work[i] = {i, &wrong[i]};
        started[i] = start(work[i]);
    }
    for (const auto thread : started) pthread_join(thread, nullptr);
    for (const auto count : wrong) say("%u wrong\n", count);
}

// Another process writes to an allocation whose page the CPU of this one uses.
void exported(int, char**) {
    int to_child[2], to_parent[2];
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) std::exit(1);
    const pid_t child = fork();
    char signal = 0;
    if (child == 0) {
        cudaIpcMemHandle_t handle;
        if (read(to_child[0], &handle, sizeof handle) != sizeof handle) _exit(1);
        void* opened = nullptr;
        CHECK(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
        for (int round = 0; round < 3; ++round) {
            CHECK(cudaMemset(opened, 40 + round, 300));
            CHECK(cudaDeviceSynchronize());
            if (write(to_parent[1], &signal, 1) != 1 || read(to_child[0], &signal, 1) != 1) _exit(1);
        }
        CHECK(cudaIpcCloseMemHandle(opened));
        _exit(0);
    }
    Piece before(300), shared(300), after(300);
    before.write(1);
    shared.write(2);
    after.write(3);
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, shared.gpu));
    if (write(to_child[1], &handle, sizeof handle) != sizeof handle) std::exit(1);
    unsigned wrong = 0;
    for (int round = 0; round < 3; ++round) {
        if (read(to_parent[0], &signal, 1) != 1) std::exit(1);
        before.write(static_cast<unsigned char>(round + 10));
        after.write(static_cast<unsigned char>(round + 20));
        before.launch(1);
        after.launch(1);
        CHECK(cudaDeviceSynchronize());
        std::vector<unsigned char> got(300);
        CHECK(cudaMemcpy(got.data(), shared.gpu, got.size(), cudaMemcpyDeviceToHost));
        wrong +=
            static_cast<unsigned>(std::count_if(got.begin(), got.end(), [&](auto byte) { return byte != 40 + round; }));
        wrong += !before.right() + !after.right();
        if (write(to_child[1], &signal, 1) != 1) std::exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("%u wrong, status %d\n", wrong, status);
}

// What the report counts of each: three side by side, of which one is freed and allocated again.
void counted(int, char**) {
    Piece first(1000), third(300);
    unsigned wrong = 0;
    for (int i = 0; i < 2; ++i) {
        Piece second(5000);
        for (auto* piece : {&first, &second, &third}) piece->write(static_cast<unsigned char>(i));
        second.launch(1);
        CHECK(cudaDeviceSynchronize());
        wrong += plain && second.gpu[0] != second.model[0];
        CHECK(cudaFree(second.gpu));
    }
    say("%u wrong\n", wrong);
}

// A free that is refused, since the thread captures, loses nothing, whatever other threads do meanwhile.
void refused_free(int, char**) {
    Piece kept(4096), neighbour(4096);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::atomic<bool> ended{false};
    auto launch_others = [&] {
        while (!ended) {
            neighbour.launch(1);
            CHECK(cudaStreamSynchronize(nullptr));
        }
    };
    const pthread_t others = start(launch_others);
    unsigned wrong = 0, refused = 0;
    for (int i = 0; i < 300; ++i) {
        kept.write(static_cast<unsigned char>(i));
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        refused += cudaFree(kept.gpu) != cudaSuccess;
        cudaStreamEndCapture(stream, &graph);
        cudaGetLastError();
        wrong += plain && std::memcmp(kept.gpu, kept.model.data(), kept.model.size()) != 0;
    }
    ended = true;
    pthread_join(others, nullptr);
    say("%u refused, %u wrong\n", refused, wrong);
}

// One takes the place of another in pages that nothing had meanwhile, after a copy out of the region.
void filled_gap(int, char**) {
    constexpr std::size_t kBytes = 16384;
    std::vector<Piece> pieces;
    for (int i = 0; i < 90; ++i) pieces.emplace_back(kBytes);
    pieces[3].write(9);
    CHECK(cudaFree(pieces[50].gpu));
    pieces[0].launch(1);
    CHECK(cudaDeviceSynchronize());
    unsigned wrong = plain && pieces[80].gpu[5] != pieces[80].model[5];
    pieces[81].write(3);
    wrong += !pieces[10].right();
    Piece& again = pieces[50];
    CHECK(cudaMalloc(&again.gpu, kBytes));
    again.write(2);
    again.launch(1);
    CHECK(cudaDeviceSynchronize());
    say("%u wrong\n", wrong + !again.right());
}

__global__ void change_all(unsigned char* const* all, const unsigned* bytes, unsigned n) {
    for (unsigned k = blockIdx.x; k < n; k += gridDim.x) {
        for (unsigned i = threadIdx.x; i < bytes[k]; i += blockDim.x) {
            all[k][i] = static_cast<unsigned char>(all[k][i] * 5 + i);
        }
    }
}

// The CPU writes every byte of all, a kernel changes them, the CPU reads them.
void round_trip(std::vector<Piece>& pieces, unsigned round) {
    std::mt19937 random(round);
    unsigned char** all = nullptr;
    unsigned *bytes = nullptr, n = 0, wrong = 0;
    CHECK(cudaMallocHost(&all, pieces.size() * sizeof *all));
    CHECK(cudaMallocHost(&bytes, pieces.size() * sizeof *bytes));
    for (auto& piece : pieces) {
        for (auto& byte : piece.model) byte = static_cast<unsigned char>(random());
        piece.write();
        all[n] = piece.gpu;
        bytes[n++] = static_cast<unsigned>(piece.model.size());
    }
    change_all<<<64, 128>>>(all, bytes, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (auto& piece : pieces) {
        for (std::size_t i = 0; i < piece.model.size(); ++i) {
            piece.model[i] = static_cast<unsigned char>(piece.model[i] * 5 + i);
        }
        wrong += !piece.right();
    }
    say("%u allocations, %u wrong\n", n, wrong);
    CHECK(cudaFreeHost(all));
    CHECK(cudaFreeHost(bytes));
}

// So many that a kernel of libhpe's moves them: equal ones, of whole words and of others; then in changing order too;
// then with holes, which others fill.
void lists(int, char**) {
    constexpr std::size_t kSizes[] = {256, 1, 255, 1000, 24, 512, 16384, 3000, 100, 20000, 8193};
    std::mt19937 random(5);
    std::vector<Piece> pieces;
    for (const auto bytes : kSizes) {
        for (unsigned i = 0; i < (bytes <= 1000 ? 300 : 40); ++i) pieces.emplace_back(bytes);
    }
    for (unsigned round = 0; round < 2; ++round) round_trip(pieces, round);
    for (unsigned i = 0; i < 700; ++i) pieces.emplace_back(kSizes[random() % std::size(kSizes)]);
    round_trip(pieces, 2);
    std::vector<Piece> kept;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (i % 7 != 3 && i % 64 < 60) {
            kept.push_back(std::move(pieces[i]));
        } else {
            CHECK(cudaFree(pieces[i].gpu));
        }
    }
    for (unsigned round = 3; round < 5; ++round) round_trip(kept, round);
    for (unsigned i = 0; i < 200; ++i) kept.emplace_back(kSizes[i % 3] + i);
    round_trip(kept, 5);
    for (const auto& piece : kept) CHECK(cudaFree(piece.gpu));
}

}  // namespace

int main(int argc, char** argv) {
    static const Case cases[] = {{"answers", answers},           {"overruns", overruns},         {"one_page", one_page},
                                 {"freed_pages", freed_pages},   {"whole_chunks", whole_chunks}, {"threads", threads},
                                 {"exported", exported},         {"counted", counted},           {"refused_free", refused_free},
                                 {"filled_gap", filled_gap},     {"lists", lists},               {"made_again", made_again}};
    return run_case(cases, argc, argv);
}
