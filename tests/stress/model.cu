// SPDX-License-Identifier: MIT
// Random operations on objects, from several threads, against plain arrays.
//
//   model SEED THREADS OPERATIONS [keep I,J,K-L,...] [largest BYTES]
//
// What operation i of a thread does depends on (seed, thread, i) alone, so leaving operations out (`keep` runs only
// those listed, of thread 0) does not change the others: model.py shortens a failing run that way. A mismatch prints
// where and ends with status 1.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model_memory.h"

static std::atomic<bool> failed{false};

#define CHECK(call)                                                                                           \
    do {                                                                                                      \
        const cudaError_t check_error = (call);                                                               \
        if (check_error != cudaSuccess) {                                                                     \
            std::printf("thread %u operation %u: %s: %s\n", id, index, #call, cudaGetErrorName(check_error)); \
            failed = true;                                                                                    \
            return;                                                                                           \
        }                                                                                                     \
    } while (0)

// Writes one range and reads another; both known to the model.
__global__ void mix(unsigned char* to, const unsigned char* from, std::size_t n, unsigned char key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) to[i] = static_cast<unsigned char>(to[i] * 3 + from[i] + key);
}

struct Random {
    unsigned long long state;
    unsigned next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned long long x = state;
        x ^= x >> 33;
        x *= 0xff51afd7ed558ccdull;
        x ^= x >> 33;
        return static_cast<unsigned>(x >> 16);
    }
    std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }
};

struct Thing {
    Memory memory;
    unsigned char* object = nullptr;
    std::vector<unsigned char> model;
};

struct Worker {
    unsigned long long seed;
    unsigned id;
    std::size_t largest;  // object, in bytes
    const Pools& pools;
    unsigned index = 0;
    std::vector<Thing> things{kObjects};
    pid_t child = 0;
    int child_ends_by = 0;
    cudaStream_t stream{};
    unsigned char* pinned = nullptr;

    void expect(const unsigned char* got, const Thing& thing, std::size_t at, std::size_t n, const char* what) {
        if (std::memcmp(got, thing.model.data() + at, n) == 0) return;
        std::size_t wrong = 0;
        while (got[wrong] == thing.model[at + wrong]) ++wrong;
        std::printf("thread %u operation %u (%s): object of %zu bytes, byte %zu is %u, not %u\n", id, index, what,
                    thing.model.size(), at + wrong, got[wrong], thing.model[at + wrong]);
        failed = true;
    }

    void replace(Thing& thing, Random& random) {
        const bool in_order = random.below(3) == 0;
        CHECK(thing.memory.end(stream, in_order));
        std::size_t size = 1 + random.below(random.below(4) == 0 ? largest : 9000);
        constexpr Memory::Kind kinds[] = {Memory::kAllocated,     Memory::kAllocated, Memory::kStreamOrdered,
                                          Memory::kStreamOrdered, Memory::kVariable,  Memory::kPart,
                                          Memory::kPart,          Memory::kMapped};
        auto kind = kinds[random.below(std::size(kinds))];
        if (kind == Memory::kVariable && id >= kWithVariables) kind = Memory::kAllocated;
        const auto number = static_cast<unsigned>(&thing - things.data());
        CHECK(thing.memory.make(kind, size, id, number, pools, stream));
        thing.object = thing.memory.bytes;
        thing.model.resize(size);
        const auto value = static_cast<unsigned char>(random.next());
        // Half of the new objects are first written by the CPU, half by the device.
        if (random.below(2) == 0) {
            std::memset(thing.object, value, size);
        } else {
            CHECK(cudaMemset(thing.object, value, size));
        }
        std::memset(thing.model.data(), value, size);
    }

    // Maps an object's memory elsewhere, anew at its place, or for some accesses at a second address.
    void remap(Thing& thing, std::size_t at, unsigned char value, Random& random) {
        auto& mapped = thing.memory.mapped;
        CHECK(Memory::settle(stream));
        if (const auto how = random.below(3); how < 2) {
            CHECK(mapped.move(how == 0));
            thing.object = thing.memory.bytes = mapped.bytes(thing.model.size());
            return;
        }
        CUdeviceptr second = 0;
        CHECK(mapped.map(second));
        unsigned char* const same = mapped.bytes(second, thing.model.size());
        const std::size_t n = std::min<std::size_t>(thing.model.size() - at, 9);
        expect(same + at, thing, at, n, "read at a second address");
        std::memset(same + at, value, n);
        std::memset(&thing.model[at], value, n);
        expect(thing.object + at, thing, at, n, "read of what was written at a second address");
        CHECK(mapped.unmap(second));
        CHECK(mapped.move(true));  // memory that was mapped twice has no host copy until it is mapped anew
    }

    // A child has no device: it ends where it accesses an object, of which nothing changes. One that does not lives
    // until the next one or the end: its pages are the parent's until one of them writes.
    void make_child(unsigned char* object) {
        end_child();
        const pid_t parent = getpid();
        child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (object != nullptr) *object = static_cast<unsigned char>(*object + 1);
            while (object == nullptr && getppid() == parent) pause();
            _exit(0);
        }
        child_ends_by = object != nullptr ? SIGSEGV : SIGKILL;
        if (child < 0) std::printf("thread %u operation %u: no fork\n", id, index), failed = true;
    }
    void end_child() {
        if (child <= 0) return;
        int status = 0;
        if (child_ends_by == SIGKILL) kill(child, SIGKILL);
        if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != child_ends_by) {
            std::printf("thread %u operation %u: a child ended with status %#x\n", id, index, status);
            failed = true;
        }
        child = 0;
    }

    void step(unsigned number) {
        index = number;
        Random random{seed * 0x9E3779B97F4A7C15ull + id * 0xD1B54A32D192ED03ull + number};
        for (int i = 0; i < 3; ++i) random.next();
        Thing& thing = things[random.below(things.size())];
        Thing& other = things[random.below(things.size())];
        if (thing.object == nullptr) return replace(thing, random);
        if (other.object == nullptr) return replace(other, random);
        const std::size_t at = random.below(thing.model.size());
        const std::size_t n =
            1 + random.below(random.below(3) == 0 ? thing.model.size() - at
                                                  : std::min<std::size_t>(thing.model.size() - at, 700));
        const auto value = static_cast<unsigned char>(random.next());
        std::vector<unsigned char> host(n);
        switch (random.below(20)) {
            case 0:
            case 1:
            case 2: expect(thing.object + at, thing, at, n, "CPU read"); break;
            case 3:
            case 4:
            case 5:
                for (std::size_t i = 0; i < n; ++i) thing.object[at + i] = static_cast<unsigned char>(value + i);
                for (std::size_t i = 0; i < n; ++i) thing.model[at + i] = static_cast<unsigned char>(value + i);
                break;
            case 6:
                std::memset(host.data(), value, n);
                CHECK(cudaMemcpy(thing.object + at, host.data(), n, cudaMemcpyHostToDevice));
                std::memset(thing.model.data() + at, value, n);
                break;
            case 7:
                CHECK(cudaMemcpy(host.data(), thing.object + at, n, cudaMemcpyDeviceToHost));
                expect(host.data(), thing, at, n, "copy to host");
                break;
            case 8:  // asynchronous, both ways through pinned memory, in stream order
                CHECK(cudaMemcpyAsync(pinned, thing.object + at, n, cudaMemcpyDefault, stream));
                CHECK(cudaStreamSynchronize(stream));
                expect(pinned, thing, at, n, "asynchronous copy to host");
                std::memset(pinned, value, n);
                CHECK(cudaMemcpyAsync(thing.object + at, pinned, n, cudaMemcpyDefault, stream));
                if (random.below(2) == 0) CHECK(cudaStreamSynchronize(stream));
                std::memset(thing.model.data() + at, value, n);
                CHECK(cudaStreamSynchronize(stream));
                break;
            case 9: {
                if (&other == &thing) break;
                const std::size_t m = std::min(n, other.model.size());
                const std::size_t to = random.below(other.model.size() - m + 1);
                CHECK(cudaMemcpy(other.object + to, thing.object + at, m,
                                 random.below(2) == 0 ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice));
                std::memcpy(other.model.data() + to, thing.model.data() + at, m);
                break;
            }
            case 10:
                if (random.below(2) == 0) {
                    CHECK(cudaMemset(thing.object + at, value, n));
                } else {
                    CHECK(cudaMemsetAsync(thing.object + at, value, n, stream));
                }
                std::memset(thing.model.data() + at, value, n);
                break;
            case 11: {  // a launch in this thread's stream; sometimes nobody waits for it but the next access
                if (&other == &thing) break;
                const std::size_t m = std::min(n, other.model.size());
                const std::size_t from = random.below(other.model.size() - m + 1);
                const bool own = random.below(2) == 0;
                mix<<<static_cast<unsigned>((m + 127) / 128), 128, 0, own ? stream : nullptr>>>(
                    thing.object + at, other.object + from, m, value);
                CHECK(cudaGetLastError());
                for (std::size_t i = 0; i < m; ++i) {
                    thing.model[at + i] =
                        static_cast<unsigned char>(thing.model[at + i] * 3 + other.model[from + i] + value);
                }
                // Work in one stream and then in another has to be ordered by the program.
                CHECK(own ? cudaStreamSynchronize(stream) : cudaStreamSynchronize(nullptr));
                break;
            }
            case 12: {  // launch and do not wait at all: the accesses that follow must
                mix<<<static_cast<unsigned>((n + 127) / 128), 128>>>(thing.object + at, thing.object + at, n, value);
                CHECK(cudaGetLastError());
                for (std::size_t i = 0; i < n; ++i) {
                    thing.model[at + i] = static_cast<unsigned char>(thing.model[at + i] * 4 + value);
                }
                expect(thing.object + at, thing, at, n, "CPU read right after a launch");
                break;
            }
            case 13: CHECK(cudaDeviceSynchronize()); break;
            case 14: replace(thing, random); break;
            case 16:  // large ones may be the device's
                std::memset(host.data(), value, n);
                std::memcpy(thing.object + at, host.data(), n);
                std::memset(thing.model.data() + at, value, n);
                if (random.below(2) == 0) break;
                std::memcpy(host.data(), other.object, std::min(n, other.model.size()));
                expect(host.data(), other, 0, std::min(n, other.model.size()), "memcpy to the host");
                break;
            case 17: {
                const std::size_t m = std::min(n, other.model.size());
                const std::size_t to = random.below(other.model.size() - m + 1);
                std::memmove(other.object + to, thing.object + at, m);
                std::memmove(other.model.data() + to, thing.model.data() + at, m);
                if (random.below(2) == 0) break;
                std::memset(thing.object + at, value, n);
                std::memset(thing.model.data() + at, value, n);
                break;
            }
            case 15: {  // rows of [at, at + n) to the object or from it; what lies between them stays
                const std::size_t pitch = 1 + random.below(std::min<std::size_t>(n, 3000));
                const std::size_t width = 1 + random.below(pitch), rows = (n - width) / pitch + 1;
                if (random.below(2) == 0) {
                    std::memset(host.data(), value, n);
                    CHECK(cudaMemcpy2D(thing.object + at, pitch, host.data(), width, width, rows,
                                       cudaMemcpyHostToDevice));
                    for (std::size_t r = 0; r < rows; ++r) std::memset(&thing.model[at + r * pitch], value, width);
                } else {
                    CHECK(cudaMemcpy2D(host.data(), width, thing.object + at, pitch, width, rows,
                                       cudaMemcpyDeviceToHost));
                    for (std::size_t r = 0; r < rows; ++r)
                        expect(&host[r * width], thing, at + r * pitch, width, "rows to the host");
                }
                break;
            }
            case 18:
                if (thing.memory.kind == Memory::kMapped) remap(thing, at, value, random);
                break;
            case 19:
                if (random.below(16) == 0) make_child(random.below(2) == 0 ? thing.object + at : nullptr);
                break;
        }
    }

    // A stream that does not wait for the default stream: the program has to order the two itself.
    void settle() {
        if (id % 2 == 0) return;
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamSynchronize(nullptr));
    }

    void finish() {
        for (Thing& thing : things) {
            if (thing.object == nullptr) continue;
            expect(thing.object, thing, 0, thing.model.size(), "final read");
            CHECK(thing.memory.end(stream, false));
        }
        end_child();
    }
};

static bool kept(const char* list, unsigned i) {
    if (list == nullptr) return true;
    for (const char* at = list; *at != '\0';) {
        char* end;
        const unsigned first = static_cast<unsigned>(std::strtoul(at, &end, 10));
        unsigned last = first;
        if (*end == '-') last = static_cast<unsigned>(std::strtoul(end + 1, &end, 10));
        if (i >= first && i <= last) return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const unsigned long long seed = std::strtoull(argv[1], nullptr, 10);
    const unsigned threads = static_cast<unsigned>(std::atoi(argv[2]));
    const unsigned operations = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
    const char* keep = nullptr;
    std::size_t largest = 300000;
    for (int i = 4; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "keep") == 0) keep = argv[i + 1];
        if (std::strcmp(argv[i], "largest") == 0) largest = std::strtoull(argv[i + 1], nullptr, 10);
    }
    Pools pools;
    if (pools.make(threads) != cudaSuccess) return 1;
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < threads; ++t) {
        pool.emplace_back([=, &pools] {
            Worker worker{seed, t, largest, pools};
            if (cudaStreamCreateWithFlags(&worker.stream, t % 2 == 0 ? cudaStreamDefault : cudaStreamNonBlocking) !=
                    cudaSuccess ||
                cudaMallocHost(&worker.pinned, largest) != cudaSuccess) {
                failed = true;
                return;
            }
            for (unsigned i = 0; i < operations && !failed; ++i) {
                if (!kept(keep, i)) continue;
                worker.step(i);
                if (!failed) worker.settle();
            }
            if (!failed) worker.finish();
        });
    }
    for (auto& thread : pool) thread.join();
    if (!failed && pools.end() != cudaSuccess) failed = true;
    if (!failed) std::printf("%u threads, %u operations each: as the model says\n", threads, operations);
    std::fflush(stdout);
    return failed ? 1 : 0;
}
