// SPDX-License-Identifier: MIT
// What copies between the program's own memory and the device reach, in GB/s.
//
//   copies MEMORY [SECONDS]             MEMORY: pageable | pinned; SECONDS for each line (0.15)
//   copies against [SECONDS [LARGEST]]  pageable, through the function given and through the driver's own, in turn
//                                       (own.h); LARGEST size in KiB
//
// Prints one number a line, each a median of whole copies after a warm-up, a GiB having been copied before, so that what
// comes once in a process is over: for 64 KiB, 256 KiB, 1, 16, 64, 256 MiB and
// 1 GiB to the device, the same to the host; 64 MiB in rows of 4000 bytes (cudaMemcpy2D) to the device and to the host;
// both directions at once by two threads (256 MiB, sum); eight threads that copy 4 MiB to the device, over and over
// (sum; neither where there is one processor). `against` prints, for the sizes alone, what the function given reaches
// of the rate of the driver's own: the median of pairs of copies. Exits 1 if the bytes are wrong.
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

static void past_the_start() {
    const Buffers b(std::size_t{128} << 20);
    for (int i = 0; i < 4; ++i) b.copy(true), b.copy(false);
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

// The median of pairs: the copies of one meet the same machine, which drifts by more than what is asked for. At least
// so many: on one processor, where both are the driver's own, the medians of seven copies of 1 GiB were 0.96 to 1.05 of
// each other.
static void against(const Buffers& b, bool to_device) {
    constexpr std::size_t enough = 21;
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
    std::vector<double> reached;
    for (const auto begin = Clock::now(); reached.size() < enough || seconds_since(begin) < 4 * patience;) {
        const bool own_first = reached.size() % 2 == 0;
        const double first = copy(own_first), second = copy(!own_first);
        reached.push_back(own_first ? first / second : second / first);
    }
    std::printf("%.4f\n", median(reached));
}

// Threads that copy at once: what all of them have copied when the first has made so many copies. Neither a window of
// time nor so many copies of each: where two threads copy from pinned memory the driver serves one of them alone for
// seconds.
static double together(const std::vector<std::pair<const Buffers*, bool>>& work, int copies) {
    std::atomic<std::size_t> warm{0}, bytes{0};
    std::atomic<bool> go{false}, stop{false};
    double reached = 0;
    Clock::time_point begin;
    std::vector<std::thread> threads;
    for (const auto& [buffers, to_device] : work) {
        threads.emplace_back([&, b = buffers, to_device = to_device] {
            for (int n = 0; n < 8; ++n) b->copy(to_device);
            ++warm;
            while (!go.load()) std::this_thread::yield();
            for (int n = 0; n < copies && !stop.load(); ++n) {
                b->copy(to_device);
                bytes += b->bytes;
            }
            if (!stop.exchange(true)) reached = static_cast<double>(bytes.load()) / seconds_since(begin) / 1e9;
        });
    }
    while (warm.load() < work.size()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    begin = Clock::now();
    go = true;
    for (auto& thread : threads) thread.join();
    return reached;
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    pinned = std::strcmp(argv[1], "pinned") == 0;
    const bool in_turn = std::strcmp(argv[1], "against") == 0;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc > 2) patience = std::atof(argv[2]);
    const std::size_t largest = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : std::size_t{1} << 20;
    past_the_start();
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
        std::printf("%.3f\n", together({{&a, true}, {&b, false}}, 24));
    }
    {
        std::vector<Buffers*> all;
        std::vector<std::pair<const Buffers*, bool>> work;
        for (int i = 0; i < 8; ++i) {
            all.push_back(new Buffers(std::size_t{4} << 20));
            work.push_back({all.back(), true});
        }
        std::printf("%.3f\n", together(work, 200));
        for (Buffers* b : all) {
            b->check();
            delete b;
        }
    }
    return 0;
}
