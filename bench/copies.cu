// SPDX-License-Identifier: MIT
// What copies between the program's own memory and the device reach, in GB/s.
//
//   copies MEMORY [SECONDS]             MEMORY: pageable | pinned; SECONDS for each line (0.15)
//   copies against [SECONDS [LARGEST]]  pageable, through the function given and through the driver's own, in turn
//                                       (own.h); LARGEST size in KiB
//
// Prints one number a line, each a median of whole copies after a warm-up: for 64 KiB, 256 KiB, 1, 16, 64, 256 MiB and
// 1 GiB to the device, the same to the host; 64 MiB in rows of 4000 bytes (cudaMemcpy2D) to the device and to the host;
// both directions at once by two threads (256 MiB, sum); eight threads that copy 4 MiB to the device, over and over
// (sum; neither where there is one processor). `against` prints two numbers a line, for the sizes alone. Exits 1 if the
// bytes are wrong.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

#include "check.h"
#include "own.h"

static bool pinned = false;
static double patience = 0.15;

using Clock = std::chrono::steady_clock;
static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Buffers {
    unsigned char* host;
    unsigned char* device;
    std::size_t bytes;
    explicit Buffers(std::size_t n) : bytes(n) {
        if (pinned)
            CHECK(cudaMallocHost(&host, n));
        else
            host = static_cast<unsigned char*>(std::malloc(n));
        std::memset(host, 1, n);  // its pages are there
        CHECK(cudaMalloc(&device, n));
    }
    ~Buffers() {
        if (pinned)
            cudaFreeHost(host);
        else
            std::free(host);
        cudaFree(device);
    }
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    void copy(bool to_device) const {
        if (to_device)
            CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
        else
            CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    }
    // A pattern there and back.
    void check() const {
        for (std::size_t i = 0; i < bytes; i += 997) host[i] = static_cast<unsigned char>(i * 7 + 3);
        host[bytes - 1] = 99;
        copy(true);
        for (std::size_t i = 0; i < bytes; i += 997) host[i] = 0;
        host[bytes - 1] = 0;
        copy(false);
        for (std::size_t i = 0; i + 1 < bytes; i += 997) {
            if (host[i] != static_cast<unsigned char>(i * 7 + 3)) {
                std::fprintf(stderr, "byte %zu of %zu is wrong\n", i, bytes);
                std::exit(1);
            }
        }
        if (host[bytes - 1] != 99) std::exit(1);
    }
};

static double median(std::vector<double>& times) {
    const auto middle = times.begin() + static_cast<long>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

// A copy of 256 MiB or more learns nothing from its own kind; smaller ones are tried both ways first.
static int warm_up(std::size_t bytes) { return bytes < (std::size_t{256} << 20) ? 16 : 4; }

// The median time of a copy, as GB/s.
template <class Copy>
static double rate(std::size_t bytes, Copy&& copy) {
    for (int i = 0; i < warm_up(bytes) / 2; ++i) copy();
    std::vector<double> times;
    for (const auto begin = Clock::now(); times.size() < 7 || seconds_since(begin) < patience;) {
        const auto one = Clock::now();
        copy();
        times.push_back(seconds_since(one));
    }
    return static_cast<double>(bytes) / median(times) / 1e9;
}

// On the device at the pitch that cudaMallocPitch would choose.
static double rate_of_rows(bool to_device) {
    constexpr std::size_t width = 4000, pitch = 4096, rows = (std::size_t{64} << 20) / width;
    const Buffers b(pitch * rows);
    return rate(width * rows, [&] {
        if (to_device)
            CHECK(cudaMemcpy2D(b.device, pitch, b.host, width, width, rows, cudaMemcpyHostToDevice));
        else
            CHECK(cudaMemcpy2D(b.host, width, b.device, pitch, width, rows, cudaMemcpyDeviceToHost));
    });
}

// Two medians, of copies in turn.
static void against(const Buffers& b, bool to_device) {
    static const auto to = find_twice<decltype(&cuMemcpyHtoD)>("cuMemcpyHtoD_v2");
    static const auto back = find_twice<decltype(&cuMemcpyDtoH)>("cuMemcpyDtoH_v2");
    const auto device = reinterpret_cast<CUdeviceptr>(b.device);
    const auto copy = [&](bool own) {
        const auto begin = Clock::now();
        const CUresult result = to_device ? (own ? to.own : to.given)(device, b.host, b.bytes)
                                          : (own ? back.own : back.given)(b.host, device, b.bytes);
        if (result != CUDA_SUCCESS) std::exit(1);
        return seconds_since(begin);
    };
    for (int i = 0; i < warm_up(b.bytes); ++i) copy(i % 2 == 0);
    std::vector<double> given, own;
    for (const auto begin = Clock::now(); given.size() < 7 || seconds_since(begin) < 4 * patience;) {
        const bool first = given.size() % 2 == 0;
        (first ? own : given).push_back(copy(first));
        (first ? given : own).push_back(copy(!first));
    }
    std::printf("%.3f %.3f\n", static_cast<double>(b.bytes) / median(given) / 1e9,
                static_cast<double>(b.bytes) / median(own) / 1e9);
}

// Threads that copy for a while: the sum of their rates. Counts copies that ended while all the others were copying,
// too.
static double together(const std::vector<std::pair<const Buffers*, bool>>& work) {
    constexpr int enough = 3;  // of each thread: the driver may need longer for one copy than all are given
    struct Copier {
        std::atomic<int> copies{0};
        double ended = 0;
        std::thread thread;
    };
    std::vector<Copier> copiers(work.size());
    std::atomic<std::size_t> warm{0};
    std::atomic<bool> go{false}, stop{false};
    Clock::time_point begin;
    for (std::size_t i = 0; i < work.size(); ++i) {
        copiers[i].thread = std::thread([&, c = &copiers[i], b = work[i].first, to_device = work[i].second] {
            for (int n = 0; n < 8; ++n) b->copy(to_device);
            ++warm;
            while (!go.load()) std::this_thread::yield();
            for (;;) {
                b->copy(to_device);
                if (stop.load()) return;
                c->ended = seconds_since(begin);
                ++c->copies;
            }
        });
    }
    while (warm.load() < work.size()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    begin = Clock::now();
    go = true;
    const auto done = [&](const Copier& c) { return c.copies.load() >= enough; };
    while (seconds_since(begin) < 4 * patience || !std::all_of(copiers.begin(), copiers.end(), done))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop = true;
    double sum = 0;
    for (std::size_t i = 0; i < work.size(); ++i) {
        copiers[i].thread.join();
        sum += static_cast<double>(work[i].first->bytes) * copiers[i].copies.load() / copiers[i].ended;
    }
    return sum / 1e9;
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    pinned = std::strcmp(argv[1], "pinned") == 0;
    const bool in_turn = std::strcmp(argv[1], "against") == 0;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc > 2) patience = std::atof(argv[2]);
    const std::size_t largest = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : std::size_t{1} << 20;
    for (const bool to_device : {true, false}) {
        for (const std::size_t kib : {64u, 256u, 1u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20}) {
            if (kib > largest) continue;
            const Buffers b(std::size_t{kib} << 10);
            b.check();
            if (in_turn) {
                against(b, to_device);
            } else {
                std::printf("%.3f\n", rate(b.bytes, [&] { b.copy(to_device); }));
            }
            b.check();
        }
    }
    if (in_turn) return 0;
    for (const bool to_device : {true, false}) std::printf("%.3f\n", rate_of_rows(to_device));
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 1) return 0;
    {
        const Buffers a(std::size_t{256} << 20), b(std::size_t{256} << 20);
        std::printf("%.3f\n", together({{&a, true}, {&b, false}}));
    }
    {
        std::vector<Buffers*> all;
        std::vector<std::pair<const Buffers*, bool>> work;
        for (int i = 0; i < 8; ++i) {
            all.push_back(new Buffers(std::size_t{4} << 20));
            work.push_back({all.back(), true});
        }
        std::printf("%.3f\n", together(work));
        for (Buffers* b : all) {
            b->check();
            delete b;
        }
    }
    return 0;
}
