// SPDX-License-Identifier: MIT
// Copies between the program's own memory and the device (pageable.h), by several threads that use one stream, or one
// array: each copy is one operation, and what others have for its stream comes before or after it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "asleep.h"
#include "pageable.h"

using Word = unsigned;
constexpr std::size_t kWords = kMiB / 2;  // 2 MiB
constexpr std::size_t kBytes = kWords * sizeof(Word);

__global__ void count_up(Word* p, std::size_t n) {
    for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
        ++p[i];
}
__global__ void look(const Word* p, std::size_t n, Word* mixed) {
    const Word first = p[0];
    for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
        if (p[i] != first) *mixed = 1;
}
__global__ void empty() {}
__global__ void until(const volatile int* flag) {
    while (*flag == 0) {
    }
}

static bool uniform(const std::vector<Word>& words) {
    return std::all_of(words.begin(), words.end(), [&](Word w) { return w == words[0]; });
}

struct Stream {
    cudaStream_t s = nullptr;
    explicit Stream(unsigned flags = cudaStreamDefault) { CHECK(cudaStreamCreateWithFlags(&s, flags)); }
    ~Stream() { CHECK(cudaStreamDestroy(s)); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
};

// Does it over and over in a thread of its own.
template <class Work>
class Beside {
public:
    explicit Beside(Work work)
        : thread_([this, work] {
              while (!stop_) work();
          }) {}
    ~Beside() {
        stop_ = true;
        thread_.join();
    }

private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

// Two threads, at the same moment.
template <class Work>
static void both(Work work) {
    std::atomic<int> ready{0};
    const auto one = [&](int me) {
        ++ready;
        while (ready < 2) std::this_thread::yield();
        work(me);
    };
    std::thread other(one, 1);
    one(0);
    other.join();
}

// Of two operations that write all of an array the last one stays. `write(words, value)`.
template <class First, class Second>
static void last_one_stays(First&& first, Second&& second) {
    Device d(kBytes);
    std::vector<Word> sources[2] = {std::vector<Word>(kWords), std::vector<Word>(kWords)}, got(kWords);
    for (Word round = 0; round < 60; ++round) {
        for (Word me = 0; me < 2; ++me)
            std::fill(sources[me].begin(), sources[me].end(), 0x01010101u * (2 * round + me));
        both([&](int me) { me == 0 ? first(d.p, sources[0]) : second(d.p, sources[1]); });
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(got.data(), d.p, kBytes, to_host));
        WANT(uniform(got));
    }
}
static void two_copies() {
    const Stream stream;
    const auto copy = [&](void* to, const std::vector<Word>& from) {
        CHECK(cudaMemcpyAsync(to, from.data(), kBytes, to_device, stream.s));
    };
    last_one_stays(copy, copy);
}
static void two_copies_of_rows() {
    const Stream stream;
    const auto copy = [&](void* to, const std::vector<Word>& from) {
        CHECK(cudaMemcpy2DAsync(to, 1024, from.data(), 1024, 1024, kBytes / 1024, to_device, stream.s));
    };
    last_one_stays(copy, copy);
}
static void waiting_and_not() {
    const Stream stream;
    last_one_stays(
        [&](void* to, const std::vector<Word>& from) {
            CHECK(cudaMemcpyAsync(to, from.data(), kBytes, to_device, stream.s));
        },
        [](void* to, const std::vector<Word>& from) { CHECK(cudaMemcpy(to, from.data(), kBytes, to_device)); });
}
static void copy_and_memset() {
    const Stream stream;
    last_one_stays(
        [&](void* to, const std::vector<Word>& from) {
            CHECK(cudaMemcpyAsync(to, from.data(), kBytes, to_device, stream.s));
        },
        [&](void* to, const std::vector<Word>& from) {
            CHECK(cudaMemsetAsync(to, static_cast<int>(from[0] & 0xff), kBytes, stream.s));
        });
}

// Another thread's kernels change all of an array while this one copies it.
static void snapshots(cudaStream_t stream, bool waits) {
    Device d(kBytes);
    auto* words = reinterpret_cast<Word*>(d.p);
    std::vector<Word> got(kWords);
    CHECK(cudaMemset(d.p, 0, kBytes));
    CHECK(cudaDeviceSynchronize());
    const Beside kernels([=] {
        count_up<<<32, 128, 0, stream>>>(words, kWords);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
    });
    for (int round = 0; round < 20; ++round) {
        if (waits) {
            CHECK(cudaMemcpy(got.data(), d.p, kBytes, to_host));
        } else {
            CHECK(cudaMemcpyAsync(got.data(), d.p, kBytes, to_host, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        WANT(uniform(got));
    }
}
static void snapshots_in_stream() {
    const Stream stream;
    snapshots(stream.s, false);
}
static void snapshots_in_default_stream() { snapshots(nullptr, false); }
static void snapshots_that_wait() { snapshots(nullptr, true); }
// The default stream waits for it.
static void snapshots_beside_blocking_stream() {
    const Stream stream;
    snapshots(stream.s, true);
}

// Another thread's kernels look at all of an array while this one copies to it.
static void updates(cudaStream_t stream, bool waits) {
    Device d(kBytes), mixed(sizeof(Word));
    auto* words = reinterpret_cast<Word*>(d.p);
    auto* said = reinterpret_cast<Word*>(mixed.p);
    std::vector<Word> source(kWords);
    CHECK(cudaMemset(d.p, 0, kBytes));
    CHECK(cudaMemset(said, 0, sizeof(Word)));
    CHECK(cudaDeviceSynchronize());
    {
        const Beside kernels([=] {
            look<<<32, 128, 0, stream>>>(words, kWords, said);
            CHECK(cudaGetLastError());
            CHECK(cudaStreamSynchronize(stream));
        });
        for (Word round = 0; round < 40; ++round) {
            std::fill(source.begin(), source.end(), round);
            if (waits) {
                CHECK(cudaMemcpy(d.p, source.data(), kBytes, to_device));
            } else {
                CHECK(cudaMemcpyAsync(d.p, source.data(), kBytes, to_device, stream));
            }
        }
    }
    Word any = 0;
    CHECK(cudaMemcpy(&any, said, sizeof any, to_host));
    WANT(any == 0);
}
static void updates_in_stream() {
    const Stream stream;
    updates(stream.s, false);
}
static void updates_that_wait() { updates(nullptr, true); }

static bool all_are(const Bytes& bytes, int value) {
    return std::all_of(bytes.begin(), bytes.end(), [=](unsigned char b) { return b == value; });
}

// Kernels that wait for it in a stream keep what comes behind them. Made, as is all that they need, while nothing runs.
class Flag {
public:
    explicit Flag(cudaStream_t stream) : stream_(stream) {
        CHECK(cudaMallocHost(&flag_, sizeof *flag_));
        *flag_ = 1;
        until<<<1, 1, 0, stream_>>>(flag_);
        CHECK(cudaDeviceSynchronize());
    }
    ~Flag() { CHECK(cudaFreeHost(flag_)); }
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;
    void lower() {
        *flag_ = 0;
        until<<<1, 1, 0, stream_>>>(flag_);
    }
    void raise() { *static_cast<volatile int*>(flag_) = 1; }

private:
    cudaStream_t stream_;
    int* flag_ = nullptr;
};

// A copy waits in its stream for what another thread does with the device.
static void others_go_on() {
    const Stream held(cudaStreamNonBlocking), other(cudaStreamNonBlocking);
    Device d(4 * kMiB), e(kBytes);
    Bytes got(4 * kMiB);
    Flag flag(held.s);
    CHECK(cudaMemset(d.p, 7, 4 * kMiB));
    CHECK(cudaMemset(e.p, 0, kBytes));
    count_up<<<32, 128, 0, other.s>>>(reinterpret_cast<Word*>(e.p), kWords);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyAsync(got.data(), d.p, 4 * kMiB, to_host, held.s));
    for (int round = 0; round < 4; ++round) {
        flag.lower();
        std::atomic<pid_t> copying{0};
        std::thread copy([&] {
            copying = gettid();
            CHECK(cudaMemcpyAsync(got.data(), d.p, 4 * kMiB, to_host, held.s));
        });
        wait_until_it_waits(copying);
        count_up<<<32, 128, 0, other.s>>>(reinterpret_cast<Word*>(e.p), kWords);
        CHECK(cudaGetLastError());
        flag.raise();
        copy.join();
        CHECK(cudaStreamSynchronize(held.s));
        WANT(all_are(got, 7));
    }
}

// Nor does an allocation in a stream that is ordered with the copy's.
static void allocations_go_on() {
    const Stream held(cudaStreamDefault);
    Device d(4 * kMiB);
    Bytes got(4 * kMiB);
    Flag flag(nullptr);
    CHECK(cudaMemset(d.p, 7, 4 * kMiB));
    for (int round = 0; round < 4; ++round) CHECK(cudaMemcpy(got.data(), d.p, 4 * kMiB, to_host));
    for (int round = 0; round < 4; ++round) {
        flag.lower();
        std::atomic<pid_t> copying{0};
        std::thread copy([&] {
            copying = gettid();
            CHECK(cudaMemcpy(got.data(), d.p, 4 * kMiB, to_host));
        });
        wait_until_it_waits(copying);
        void* made = nullptr;
        CHECK(cudaMallocAsync(&made, kMiB, held.s));
        flag.raise();
        copy.join();
        CHECK(cudaFreeAsync(made, held.s));
        WANT(all_are(got, 7));
    }
}

// However long a copy waits, what another thread has for a stream that is ordered with its own comes after it.
static void comes_behind(cudaStream_t of_copy, cudaStream_t of_kernel) {
    constexpr std::size_t n = 48 * kMiB;  // more than all pieces that are under way at once
    Device d(n);
    Bytes got(n);
    Flag flag(of_copy);
    CHECK(cudaMemset(d.p, 7, n));
    count_up<<<32, 128, 0, of_kernel>>>(reinterpret_cast<Word*>(d.p), 0);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, of_copy));
    flag.lower();
    std::atomic<pid_t> copying{0};
    std::thread copy([&] {
        copying = gettid();
        CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, of_copy));
    });
    wait_until_it_waits(copying);
    std::thread kernel([&] {
        count_up<<<32, 128, 0, of_kernel>>>(reinterpret_cast<Word*>(d.p), n / sizeof(Word));
        CHECK(cudaGetLastError());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // longer than any wait that is bounded
    flag.raise();
    copy.join();
    kernel.join();
    CHECK(cudaDeviceSynchronize());
    WANT(all_are(got, 7));
}
static void default_stream_comes_behind() {
    const Stream stream;
    comes_behind(stream.s, nullptr);
}
static void comes_behind_default_stream() {
    const Stream stream;
    comes_behind(nullptr, stream.s);
}

// Another thread begins to capture the stream while a copy is under way there: none of it is captured.
static void captured_behind() {
    constexpr std::size_t n = 48 * kMiB;  // more than all pieces that are under way at once
    const Stream stream;
    Device d(n);
    Bytes got(n);
    for (int round = 0; round < 4; ++round) {
        const int value = round + 1;
        CHECK(cudaMemset(d.p, value, n));
        CHECK(cudaDeviceSynchronize());
        std::thread copy([&] { CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, stream.s)); });
        const volatile unsigned char* first = got.data();
        while (*first != value) std::this_thread::yield();
        cudaGraph_t graph = nullptr;
        std::size_t nodes = 0;
        CHECK(cudaStreamBeginCapture(stream.s, cudaStreamCaptureModeRelaxed));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(cudaStreamEndCapture(stream.s, &graph));
        CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
        CHECK(cudaGraphDestroy(graph));
        copy.join();
        CHECK(cudaStreamSynchronize(stream.s));
        WANT(nodes == 0);
        WANT(all_are(got, value));
    }
}

// Copies of two threads, one beginning before the other ends, leave no moment without one: a launch comes in between
// all the same. Returns how many of them changed errno.
static unsigned launches_come_in(cudaStream_t stream) {
    std::atomic<bool> stop{false};
    std::atomic<unsigned> copies{0};
    empty<<<1, 1, 0, stream>>>();
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> all;
    for (int t = 0; t < 2; ++t) {
        all.emplace_back([&] {
            Device d(kBytes);
            Bytes host(kBytes);
            while (!stop) {
                if (stream == nullptr) {
                    CHECK(cudaMemcpy(d.p, host.data(), kBytes, to_device));
                } else {
                    CHECK(cudaMemcpyAsync(host.data(), d.p, kBytes, to_host, stream));
                }
                ++copies;
            }
        });
    }
    // A machine that is busy with other things may keep this thread waiting, but not each time.
    unsigned most = 500, changed = 0;
    for (int tries = 0; tries < 5 && most >= 500; ++tries) {
        most = 0;
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(250)) {
            const unsigned before = copies;
            errno = 77;
            empty<<<1, 1, 0, stream>>>();
            changed += errno != 77;
            CHECK(cudaGetLastError());
            most = std::max(most, copies - before);
        }
    }
    stop = true;
    for (auto& thread : all) thread.join();
    CHECK(cudaDeviceSynchronize());
    WANT(most < 500);
    return changed;
}
static void launches_beside_copies() {
    launches_come_in(nullptr);
    const Stream stream;
    launches_come_in(stream.s);
}
static void errno_beside_copies() { WANT(launches_come_in(nullptr) == 0); }

// More threads than the room has places for, each with its own array and stream, or all with one of each.
static void many_threads() {
    constexpr std::size_t n = kMiB, count = 40;
    const Stream one;
    Device shared(count * n);
    std::vector<std::thread> all;
    std::atomic<int> wrong{0};
    for (unsigned me = 0; me < count; ++me) {
        all.emplace_back([&, me] {
            const Stream own(cudaStreamNonBlocking);
            Bytes from(n), to(n);
            for (unsigned round = 0; round < 3; ++round) {
                fill(from.data(), n, me + round);
                auto* d = shared.p + me * n;
                const auto stream = round == 0 ? one.s : own.s;
                CHECK(cudaMemcpyAsync(d, from.data(), n, to_device, stream));
                add_one_to(d, 1000, stream);
                CHECK(cudaMemcpyAsync(to.data(), d, n, to_host, stream));
                CHECK(cudaStreamSynchronize(stream));
                for (std::size_t i = 0; i < 1000; ++i) ++from[i];
                wrong += to != from;
                CHECK(cudaMemcpy(d, to.data(), n, to_device));
                CHECK(cudaMemcpy(from.data(), d, n, to_host));
                wrong += to != from;
            }
        });
    }
    for (auto& thread : all) thread.join();
    WANT(wrong == 0);
}

constexpr Case cases[] = {
    {"two_copies", two_copies},
    {"two_copies_of_rows", two_copies_of_rows},
    {"waiting_and_not", waiting_and_not},
    {"copy_and_memset", copy_and_memset},
    {"snapshots_in_stream", snapshots_in_stream},
    {"snapshots_in_default_stream", snapshots_in_default_stream},
    {"snapshots_that_wait", snapshots_that_wait},
    {"snapshots_beside_blocking_stream", snapshots_beside_blocking_stream},
    {"updates_in_stream", updates_in_stream},
    {"updates_that_wait", updates_that_wait},
    {"others_go_on", others_go_on},
    {"allocations_go_on", allocations_go_on},
    {"default_stream_comes_behind", default_stream_comes_behind},
    {"comes_behind_default_stream", comes_behind_default_stream},
    {"captured_behind", captured_behind},
    {"launches_beside_copies", launches_beside_copies},
    {"errno_beside_copies", errno_beside_copies},
    {"many_threads", many_threads},
};

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
