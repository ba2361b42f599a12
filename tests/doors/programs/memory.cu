// SPDX-License-Identifier: MIT
// Bulk memory calls and string functions on memory that kernels use. Cases one by one; see io.h.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "io.h"

namespace {

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;
// Around the size from which on a call may be the device's, and well above it.
constexpr std::size_t kSizes[] = {1, 4095, 256 * kKiB - 1, 256 * kKiB, 256 * kKiB + 1, 3 * kMiB + 77};

std::vector<unsigned char> random_bytes(std::size_t bytes, unsigned seed) {
    std::vector<unsigned char> text(bytes);
    Random random(seed);
    for (auto& c : text) c = static_cast<unsigned char>(random.next());
    return text;
}
unsigned long long sum(const void* at, std::size_t bytes) {
    Checksum checksum;
    checksum.add(at, bytes);
    return checksum.value();
}

void to_memory(int, char**) {
    for (const auto bytes : kSizes) {
        const Memory data(bytes + 9000);
        const auto text = random_bytes(bytes + 10, 1);
        data.change(1);
        say("returns %d\n", memcpy(data.at(4097), &text[3], bytes) == data.at(4097));
        say("%zu: %llx\n", bytes, data.sum());
        data.change(2);
        say("returns %d\n", memmove(data.at(), &text[1], bytes) == data.at());
        data.change(3);
        say("returns %d\n", mempcpy(data.at(8999), text.data(), bytes) == data.at(8999 + bytes));
        say("%zu: %llx\n", bytes, data.sum());
    }
}

void from_memory(int, char**) {
    for (const auto bytes : kSizes) {
        const Memory data(bytes + 9000);
        std::vector<unsigned char> text(bytes + 20);
        data.change(4);
        memcpy(&text[5], data.at(17), bytes);
        say("%zu: %llx\n", bytes, sum(text.data(), text.size()));
        data.change(5);
        memmove(&text[9], data.at(4096), bytes);
        say("%zu: %llx %llx\n", bytes, sum(text.data(), text.size()), data.sum());
    }
}

void between(int, char**) {
    for (const auto bytes : kSizes) {
        const Memory a(bytes + 9000), b(bytes + 5000);
        a.change(6);
        b.change(7);
        memcpy(b.at(3), a.at(8999), bytes);
        say("%zu: %llx %llx\n", bytes, a.sum(), b.sum());
        b.change(8);
        memcpy(a.at(1), b.at(4999), bytes);
        say("%zu: %llx %llx\n", bytes, a.sum(), b.sum());
    }
}

void overlapping(int, char**) {
    for (const auto bytes : kSizes) {
        const Memory data(2 * bytes + 9000);
        for (const std::size_t distance : {std::size_t{1}, std::size_t{4096}, bytes - 1, bytes}) {
            data.change(9);
            memmove(data.at(distance), data.at(), bytes);
            say("up %zu by %zu: %llx\n", bytes, distance, data.sum());
            data.change(10);
            memmove(data.at(), data.at(distance), bytes);
            say("down %zu by %zu: %llx\n", bytes, distance, data.sum());
        }
    }
}

void setting(int, char**) {
    for (const auto bytes : kSizes) {
        const Memory data(bytes + 9000);
        data.change(11);
        say("returns %d\n", memset(data.at(17), 0x1234, bytes) == data.at(17));
        say("%zu: %llx\n", bytes, data.sum());
        data.change(12);
        memset(data.at(4096), 0, bytes);
        say("%zu: %llx\n", bytes, data.sum());
    }
}

// What the compiler makes other calls of.
void by_other_names(int, char**) {
    const auto copy = reinterpret_cast<void* (*)(void*, const void*, std::size_t)>(dlsym(RTLD_DEFAULT, "memcpy"));
    const auto copy_on = reinterpret_cast<void* (*)(void*, const void*, std::size_t)>(dlsym(RTLD_DEFAULT, "__mempcpy"));
    const auto old =
        reinterpret_cast<void* (*)(void*, const void*, std::size_t)>(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5"));
    const auto b_copy = reinterpret_cast<void (*)(const void*, void*, std::size_t)>(dlsym(RTLD_DEFAULT, "bcopy"));
    const auto b_zero = reinterpret_cast<void (*)(void*, std::size_t)>(dlsym(RTLD_DEFAULT, "bzero"));
    for (const auto bytes : kSizes) {
        const Memory data(3 * bytes + 9000);
        const auto text = random_bytes(bytes, 2);
        data.change(13);
        copy(data.at(5), text.data(), bytes);
        say("returns %d\n", copy_on(data.at(bytes + 5), text.data(), bytes) == data.at(2 * bytes + 5));
        say("%zu: %llx\n", bytes, data.sum());
        data.change(14);
        b_copy(data.at(), data.at(bytes / 2), bytes);
        b_zero(data.at(2 * bytes), bytes + 3);
        say("%zu: %llx\n", bytes, data.sum());
        data.change(15);
        old(data.at(bytes + 1), text.data(), bytes);
        say("%zu: %llx\n", bytes, data.sum());
    }
}

// Parts are valid on the host, and parts were written there.
void blocks_in_every_state(int, char**) {
    const Memory a(8 * kMiB), b(8 * kMiB);
    std::vector<unsigned char> text(8 * kMiB);
    for (unsigned round = 0; round < 4; ++round) {
        a.change(16 + round);
        b.change(17 + round);
        for (std::size_t at = round * 1000; at < 8 * kMiB; at += (round + 1) * 700 * kKiB) {
            *a.at(at) = static_cast<unsigned char>(round);
            say("%d ", *b.at(at / 2));
        }
        const std::size_t from = round * 100 * kKiB, bytes = 6 * kMiB + round * 12345;
        memcpy(b.at(5000), a.at(from), bytes);
        memcpy(&text[round], b.at(from / 2), bytes);
        memset(a.at(from + 7), static_cast<int>(round), bytes / 2);
        memcpy(a.at(from + bytes / 2), &text[99], bytes / 2);
        say("%llx %llx %llx\n", sum(text.data(), text.size()), a.sum(), b.sum());
    }
}

__global__ void wait_and_fill(unsigned char* data, std::size_t bytes, unsigned char value, long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < bytes) data[i] = value;
}

// Streams that are not ordered with the default stream: the call comes after the work of the one, and before that of
// the other.
void between_streams(int, char**) {
    cudaStream_t streams[2];
    for (auto& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    constexpr std::size_t bytes = 512 * kKiB;
    unsigned char *a = nullptr, *b = nullptr;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    std::vector<unsigned char> text(bytes, 0);
    for (unsigned char round = 1; round < 8; ++round) {
        wait_and_fill<<<bytes / 256, 256, 0, streams[0]>>>(a, bytes, round, 2000);
        if (!plain) {
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice));
            CHECK(cudaDeviceSynchronize());
        } else {
            memcpy(b, a, bytes);
        }
        mix<><<<bytes / 256, 256, 0, streams[1]>>>(b, bytes, round);
        if (!plain) {
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaMemcpy(text.data(), b, bytes, cudaMemcpyDeviceToHost));
            CHECK(cudaMemset(a, 0, bytes));
            CHECK(cudaDeviceSynchronize());
        } else {
            memcpy(text.data(), b, bytes);
            memset(a, 0, bytes);
        }
        mix<><<<bytes / 256, 256, 0, streams[1]>>>(a, bytes, round);
        CHECK(cudaStreamSynchronize(streams[1]));
        say("%llx ", sum(text.data(), bytes));
        CHECK(cudaMemcpy(text.data(), a, bytes, cudaMemcpyDeviceToHost));
        say("%llx\n", sum(text.data(), bytes));
    }
}

void without_a_context(int, char**) {
    const Memory data(4 * kMiB);
    data.change(20);
    std::vector<unsigned char> text(data.bytes());
    std::thread([&] {
        memcpy(text.data(), data.at(), data.bytes());
        memset(data.at(1000), 7, 3 * kMiB);
    }).join();
    say("%llx %llx\n", sum(text.data(), text.size()), data.sum());
}

// Each thread has its own part; in between all launch.
void together(int, char**) {
    constexpr std::size_t kPart = kMiB + 4097;
    constexpr unsigned kThreads = 6;
    const Memory a(kThreads * kPart), b(kThreads * kPart);
    a.change(21);
    b.change(22);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            auto text = random_bytes(kPart, t);
            for (unsigned round = 0; round < 8; ++round) {
                memcpy(a.at(t * kPart), text.data(), kPart);
                memcpy(b.at(t * kPart), a.at(t * kPart), kPart);
                memset(a.at(t * kPart + 100), static_cast<int>(round), 300 * kKiB);
                memcpy(text.data(), b.at(t * kPart), kPart);
                memcpy(&text[50], a.at(t * kPart), 400 * kKiB);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    say("%llx %llx\n", a.sum(), b.sum());
}

struct HostCall {
    const Memory& data;
    std::vector<unsigned char> text;
};
void in_a_host_function(int, char**) {
    const Memory data(2 * kMiB);
    HostCall call{data, std::vector<unsigned char>(data.bytes())};
    data.change(23);
    const auto function = [](void* argument) {
        auto& mine = *static_cast<HostCall*>(argument);
        memcpy(mine.text.data(), mine.data.at(), mine.text.size());
        memset(mine.data.at(5), 9, kMiB);
    };
    CHECK(cudaLaunchHostFunc(nullptr, function, &call));
    CHECK(cudaDeviceSynchronize());
    say("%llx %llx\n", sum(call.text.data(), call.text.size()), data.sum());
}

const Memory* for_handler;
void in_a_signal_handler(int, char**) {
    const Memory data(2 * kMiB);
    for_handler = &data;
    std::vector<char> stack(64 << 10);
    stack_t alternate{};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_flags = SA_ONSTACK;
    action.sa_handler = [](int) { memset(for_handler->at(3), 5, kMiB); };
    sigaction(SIGUSR1, &action, nullptr);
    data.change(24);
    raise(SIGUSR1);
    say("%llx\n", data.sum());
}

// A capture forbids other threads' and its own unsafe calls; a memory call is none.
void beside_a_capture(int, char**) {
    const Memory data(2 * kMiB);
    data.change(25);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned char> text(data.bytes());
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned char* other = nullptr;
    CHECK(cudaMalloc(&other, 1000));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    mix<><<<4, 256, 0, stream>>>(other, 1000, 1);
    memcpy(text.data(), data.at(), data.bytes());
    memset(data.at(1), 3, kMiB);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph));
    say("%llx %llx\n", sum(text.data(), text.size()), data.sum());
}

// A file that was mapped and cut: the thread that called gets the signal, and goes on.
thread_local sigjmp_buf back;
std::atomic<pthread_t> signalled;
void from_a_file_that_was_cut(int, char**) {
    const Memory data(4 * kMiB);
    data.change(26);
    const File file(4 * kMiB);
    void* const mapped = mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (ftruncate(file, kMiB) != 0) return;
    struct sigaction action {};
    action.sa_handler = [](int) {
        signalled = pthread_self();
        siglongjmp(back, 1);
    };
    sigaction(SIGBUS, &action, nullptr);
    for (const bool reads : {true, false}) {
        signalled = pthread_t{};
        if (sigsetjmp(back, 1) == 0) {
            reads ? memcpy(data.at(), mapped, 4 * kMiB) : memcpy(mapped, data.at(), 4 * kMiB);
            say("no signal\n");
        } else {
            say("signal in the thread that called: %d\n", pthread_equal(signalled, pthread_self()) != 0);
        }
    }
    memcpy(data.at(), mapped, kMiB);
    say("%llx\n", sum(data.at(), kMiB));
}

// Without a handler the process ends by the signal, whichever thread meets it.
void from_memory_that_is_missing(int, char**) {
    const Memory data(4 * kMiB);
    data.change(26);
    auto* const missing =
        static_cast<char*>(mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(missing + 3 * kMiB, kMiB, PROT_NONE);
    memcpy(data.at(), missing, 3 * kMiB);
    say("%llx\n", data.sum());
    fflush(stdout);
    memcpy(data.at(), missing, 4 * kMiB);
    say("no signal\n");
}

void is_no_cancellation_point(int, char**) {
    const Memory data(2 * kMiB);
    data.change(27);
    std::atomic<bool> cancelled{false};
    std::atomic<int> done{0};
    std::thread thread([&] {
        while (!cancelled) sched_yield();
        memset(data.at(), 1, data.bytes());
        done = 1;
    });
    pthread_cancel(thread.native_handle());
    cancelled = true;
    thread.join();
    errno = 0;
    memset(data.at(9), 2, kMiB);
    say("%d %llx errno %d\n", done.load(), data.sum(), errno);
}

int by_value(const void* a, const void* b) {
    return *static_cast<const unsigned char*>(a) - *static_cast<const unsigned char*>(b);
}
void strings(int, char**) {
    const Memory a(400 * kKiB), b(400 * kKiB);
    a.change(28);
    b.change(28);
    say("equal %d\n", memcmp(a.at(), b.at(), 400 * kKiB));
    *b.at(399 * kKiB) ^= 1;
    b.change(0);
    a.change(0);
    say("equal %d\n", memcmp(a.at(), b.at(), 400 * kKiB) != 0);
    memset(a.at(), 'a', 300 * kKiB);
    strcpy(reinterpret_cast<char*>(a.at(300 * kKiB)), "the end");
    say("length %zu found %d\n", strlen(reinterpret_cast<char*>(a.at())),
        memchr(a.at(), 'n', 400 * kKiB) == a.at(300 * kKiB + 5));
    strcpy(reinterpret_cast<char*>(b.at(7)), reinterpret_cast<char*>(a.at(1000)));
    say("%llx\n", b.sum());
    b.change(29);
    qsort(b.at(), b.bytes(), 1, by_value);
    const unsigned char key = 77;
    say("sorted %d found %d %llx\n", std::is_sorted(b.at(), b.at(b.bytes())),
        *static_cast<unsigned char*>(bsearch(&key, b.at(), b.bytes(), 1, by_value)), b.sum());
    wmemset(reinterpret_cast<wchar_t*>(a.at()), L'x', 100 * kKiB);
    say("%llx\n", a.sum());
}

constexpr Case cases[] = {
    {"to_memory", to_memory},
    {"from_memory", from_memory},
    {"between", between},
    {"overlapping", overlapping},
    {"setting", setting},
    {"by_other_names", by_other_names},
    {"blocks_in_every_state", blocks_in_every_state},
    {"between_streams", between_streams},
    {"without_a_context", without_a_context},
    {"together", together},
    {"in_a_host_function", in_a_host_function},
    {"in_a_signal_handler", in_a_signal_handler},
    {"beside_a_capture", beside_a_capture},
    {"from_a_file_that_was_cut", from_a_file_that_was_cut},
    {"from_memory_that_is_missing", from_memory_that_is_missing},
    {"is_no_cancellation_point", is_no_cancellation_point},
    {"strings", strings},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
