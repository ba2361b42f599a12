// SPDX-License-Identifier: MIT
// A CPU access waits for a kernel that waits for a flag, which another thread raises after a call of its own.
// And it does so for kernels in streams that cannot be asked, since others are captured.
#include <chrono>
#include <memory>
#include <thread>

#include "swept.h"

namespace {

__global__ void until(const volatile int* flag) {
    while (*flag == 0) {
    }
}

struct Stream {
    cudaStream_t s = nullptr;
    explicit Stream(unsigned flags = cudaStreamNonBlocking) { CHECK(cudaStreamCreateWithFlags(&s, flags)); }
    ~Stream() {
        if (s != nullptr) CHECK(cudaStreamDestroy(s));
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
};

class Flag {
public:
    Flag() {
        CHECK(cudaMallocHost(&raised_, sizeof *raised_));
        raise();
        until<<<1, 1>>>(raised_);  // loaded while nothing runs
        CHECK(cudaDeviceSynchronize());
    }
    ~Flag() { CHECK(cudaFreeHost(raised_)); }
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;
    void raise() { *static_cast<volatile int*>(raised_) = 1; }
    void lower() { *static_cast<volatile int*>(raised_) = 0; }
    void waited_for_in(cudaStream_t stream) const {
        until<<<1, 1, 0, stream>>>(raised_);
        CHECK(cudaGetLastError());
    }

private:
    int* raised_ = nullptr;
};

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

// `call` is given the stream where the kernel waits.
template <class Call>
void returns_meanwhile(Call&& call) {
    Swept a;
    Stream held;
    Flag flag;
    a.kernel(1);
    CHECK(cudaDeviceSynchronize());
    flag.lower();
    flag.waited_for_in(held.s);
    std::thread reader([&] { a.read(77); });
    pause();
    call(held);
    flag.raise();
    reader.join();
    CHECK(cudaDeviceSynchronize());
    a.read(0, a.size());
}

void begins_capture() {
    const Stream idle;
    returns_meanwhile([&](Stream&) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(idle.s, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaStreamEndCapture(idle.s, &graph));
        CHECK(cudaGraphDestroy(graph));
    });
}
void destroys_stream() {
    returns_meanwhile([](Stream& held) {
        CHECK(cudaStreamDestroy(held.s));
        held.s = nullptr;
    });
}

// The access waits for a copy of another thread, which waits for the device.
void launches_beside_copy() {
    Swept a;
    Stream first, held, other;
    Flag before, flag;
    std::vector<Word> copied(std::size_t{2} << 20);
    Word* from = nullptr;
    CHECK(cudaMalloc(&from, copied.size() * sizeof(Word)));
    CHECK(cudaMemset(from, 0, copied.size() * sizeof(Word)));
    a.kernel(1, first.s);
    fill<<<1, 32, 0, other.s>>>(from, 32);
    CHECK(cudaMemcpyAsync(copied.data(), from, copied.size() * sizeof(Word), cudaMemcpyDeviceToHost, held.s));
    CHECK(cudaDeviceSynchronize());
    before.lower();
    before.waited_for_in(first.s);
    a.kernel(2, first.s);
    std::thread reader([&] { a.read(77); });
    pause();
    flag.lower();
    flag.waited_for_in(held.s);
    std::thread copier([&] {
        CHECK(cudaMemcpyAsync(copied.data(), from, copied.size() * sizeof(Word), cudaMemcpyDeviceToHost, held.s));
    });
    pause();
    before.raise();
    pause();
    fill<<<1, 32, 0, other.s>>>(from, 32);
    CHECK(cudaGetLastError());
    flag.raise();
    reader.join();
    copier.join();
    CHECK(cudaDeviceSynchronize());
    a.read(0, a.size());
    CHECK(cudaFree(from));
}

// Some thread of many always has a kernel that waits for its next launch, while many others wait for what they
// launched.
void launches_of_many() {
    constexpr int kThreads = 6, kRounds = 40, kReaders = 8;
    Word* any = nullptr;
    CHECK(cudaMalloc(&any, 32 * sizeof(Word)));
    fill<<<1, 32>>>(any, 32);
    std::vector<std::unique_ptr<Flag>> flags;
    for (int t = 0; t < kThreads; ++t) flags.push_back(std::make_unique<Flag>());
    std::atomic<int> at_work{kThreads};
    std::vector<std::thread> threads;
    for (auto& flag : flags) {
        threads.emplace_back([&at_work, any, &flag = *flag] {
            const Stream held, other;
            for (int round = 0; round < kRounds; ++round) {
                flag.lower();
                flag.waited_for_in(held.s);
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                fill<<<1, 32, 0, other.s>>>(any, 32);
                CHECK(cudaGetLastError());
                flag.raise();
                CHECK(cudaStreamSynchronize(held.s));
            }
            --at_work;
        });
    }
    for (int t = 0; t < kReaders; ++t) {
        threads.emplace_back([&at_work] {
            Swept a(1 << 14);
            const Stream own;
            for (Word round = 0; at_work != 0; ++round) {
                a.kernel(round, own.s);
                CHECK(cudaStreamSynchronize(own.s));
                a.read(77);
            }
            a.read(0, a.size());
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(cudaFree(any));
}

__global__ void faults(Word* nowhere) { *nowhere = 1; }
__global__ void set_slowly(Word* data, Word value, int steps) {
    Word sum = 0;
    for (int i = 0; i < steps; ++i) sum += *static_cast<volatile Word*>(data + 64 + i % 8);
    if (sum != 0xffffffff) data[0] = value;
}

// A context of another device is lost, for good. One thread sets the array's first word, without a pause for long;
// another reads one that stays as it is.
void reads_beside_lost_context() {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) return;
    Word* data = nullptr;
    constexpr Word kNever = 512;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&data, 1024 * sizeof(Word)));
    CHECK(cudaMemset(data, 0, 1024 * sizeof(Word)));
    const auto& own = *new Stream;  // neither can be destroyed where all is lost
    set_slowly<<<1, 1, 0, own.s>>>(data, 0, 10);
    CHECK(cudaDeviceSynchronize());
    wrong += data[kNever] != 0;
    CHECK(cudaSetDevice(0));
    const auto& lost = *new Stream;
    faults<<<1, 1, 0, lost.s>>>(reinterpret_cast<Word*>(64));
    if (cudaDeviceSynchronize() == cudaSuccess) ++wrong;
    CHECK(cudaSetDevice(1));
    // A process may lose all its contexts at once (cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS).
    set_slowly<<<1, 1, 0, own.s>>>(data, 0, 10);
    if (cudaStreamSynchronize(own.s) != cudaSuccess) return;
    std::atomic<bool> stop{false};
    std::thread setter([&] {
        CHECK(cudaSetDevice(1));
        Word value = 0;
        for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
             std::chrono::steady_clock::now() < end;) {
            for (int i = 0; i < 40; ++i) {
                set_slowly<<<1, 1, 0, own.s>>>(data, ++value, 13000);
                std::this_thread::sleep_for(std::chrono::microseconds(1300));
            }
            set_slowly<<<1, 1, 0, own.s>>>(data, ++value, 1000000);
            CHECK(cudaStreamSynchronize(own.s));
            wrong += *static_cast<volatile Word*>(data) != value;
        }
        stop = true;
    });
    while (!stop) {
        wrong += static_cast<volatile Word*>(data)[kNever] != 0;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    setter.join();
}

// A thread captures a stream that the legacy one waits for, until it is told to end.
class Capture {
public:
    Capture() { CHECK(cudaStreamBeginCapture(captured_.s, cudaStreamCaptureModeThreadLocal)); }
    ~Capture() {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(captured_.s, &graph));
        CHECK(cudaGraphDestroy(graph));
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

private:
    Stream captured_{cudaStreamDefault};
};

// Of the thread that launches, and of another one that was told of it.
void own_streams_beside_capture() {
    Swept mine, others;
    Flag flag;
    mine.kernel(1, cudaStreamPerThread);
    others.kernel(1, cudaStreamPerThread);
    CHECK(cudaDeviceSynchronize());
    for (Word round = 0; round < 4; ++round) {
        mine.read(77);
        others.read(77);
        const Capture capture;
        flag.lower();
        std::thread other([&] {
            flag.waited_for_in(cudaStreamPerThread);
            others.kernel(round, cudaStreamPerThread);
            others.kernel(round, cudaStreamPerThread);
        });
        other.join();
        flag.waited_for_in(cudaStreamPerThread);
        mine.kernel(round, cudaStreamPerThread);
        std::thread raiser([&] {
            pause();
            flag.raise();
        });
        if (round % 2 == 0) {
            mine.read(100, 200);
            others.read(100, 200);
        } else {
            std::thread reader([&] {
                others.read(0, others.size());
                mine.read(0, mine.size());
            });
            reader.join();
        }
        raiser.join();
    }
}

// What was launched before the capture began, by threads that do not stop for it.
void own_streams_before_capture() {
    constexpr int kThreads = 3;
    std::vector<std::thread> threads;
    std::atomic<int> begun{0}, ended{0};
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            Swept a(1 << 14);
            ++begun;
            for (Word round = 0; round < 40; ++round) {
                a.kernel(round, cudaStreamPerThread);
                if (round % 4 == static_cast<Word>(t)) std::this_thread::yield();
                a.read(round, round + 16);
            }
            CHECK(cudaStreamSynchronize(cudaStreamPerThread));
            a.read(0, a.size());
            ++ended;
        });
    }
    while (begun < kThreads) std::this_thread::yield();
    while (ended < kThreads) {
        const Capture capture;
        std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    for (auto& thread : threads) thread.join();
}

// A host function waits for the flag, and its stream is full: the calls of the thread that fills it are kept until
// then. So many operations fill one of a soft device with HPE_SOFT_QUEUE.
constexpr int kFull = 64;
void CUDART_CB wait_until(void* raised) {
    while (!*static_cast<std::atomic<bool>*>(raised)) std::this_thread::yield();
}

// `launched`: the filling thread's last call is a launch, behind as many other operations as leave so much room.
template <class Prepare, class Call>
void returns_beside_full(int room, bool launched, Prepare&& prepare, Call&& call) {
    Word* words = nullptr;
    CHECK(cudaMalloc(&words, 32 * sizeof(Word)));
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreate(&event));
    const Stream full, other;
    fill<<<1, 32, 0, other.s>>>(words, 32);
    CHECK(cudaDeviceSynchronize());
    prepare();
    std::atomic<bool> raised{false};
    std::thread filler([&] {
        CHECK(cudaLaunchHostFunc(full.s, wait_until, &raised));
        for (int i = room; i < kFull; ++i) {
            CHECK(cudaEventRecord(event, full.s));
        }
        if (launched) fill<<<1, 32, 0, full.s>>>(words, 32);
    });
    pause();
    call(other.s);
    raised = true;
    filler.join();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(words));
}

void allocates_beside_full() {
    void* made = nullptr;
    returns_beside_full(
        0, false, [] {}, [&](cudaStream_t) { CHECK(cudaMalloc(&made, 8 << 20)); });
    CHECK(cudaFree(made));
}
// What the kept launch sends is under way until another launch comes.
void launches_beside_full_launch() {
    Word* any = nullptr;
    CHECK(cudaMalloc(&any, 32 * sizeof(Word)));
    Swept large(kMiB);
    for (int room = 0; room < 6; ++room) {
        returns_beside_full(
            room, true, [&] { large.write(0, large.size(), static_cast<Word>(room)); },
            [&](cudaStream_t other) { fill<<<1, 32, 0, other>>>(any, 32); });
        large.read(0, large.size());
    }
    CHECK(cudaFree(any));
}
// Many objects, which are sent together.
void launches_many_beside_full() {
    std::vector<std::unique_ptr<Swept>> objects;
    for (int i = 0; i < 200; ++i) objects.push_back(std::make_unique<Swept>(700));
    const auto write_all = [&] {
        for (auto& object : objects) object->write(0, object->size(), 1);
    };
    Word* any = nullptr;
    CHECK(cudaMalloc(&any, 32 * sizeof(Word)));
    write_all();  // sent by the first launch
    returns_beside_full(0, false, write_all, [&](cudaStream_t other) { fill<<<1, 32, 0, other>>>(any, 32); });
    for (auto& object : objects) object->read(0, object->size());
    CHECK(cudaFree(any));
}

// Two threads fill a stream each, behind a host function, again and again. A third one launches without a pause, and
// tells the host functions now and then that they may end. A fourth one reads what its own kernels write.
void reads_beside_full_streams() {
    constexpr int kRounds = 40;
    struct Turn {
        std::atomic<int> allowed{0}, ended{0};
    };
    struct Call {
        Turn* turn;
        int number;
    };
    Word* any = nullptr;
    CHECK(cudaMalloc(&any, 32 * sizeof(Word)));
    fill<<<1, 32>>>(any, 32);
    Swept a;
    a.kernel(0);  // loaded here: beside a full stream, the driver itself would wait for that stream
    CHECK(cudaDeviceSynchronize());
    Turn turns[2];
    std::atomic<int> at_work{2};
    std::vector<std::thread> threads;
    for (auto& turn : turns) {
        threads.emplace_back([&at_work, &turn] {
            const Stream full;
            cudaEvent_t event = nullptr;
            CHECK(cudaEventCreate(&event));
            std::vector<Call> calls(kRounds);
            for (int round = 0; round < kRounds; ++round) {
                calls[round] = {&turn, round + 1};
                const auto wait = [](void* data) {
                    const auto& call = *static_cast<Call*>(data);
                    while (call.turn->allowed < call.number) std::this_thread::yield();
                    call.turn->ended = call.number;
                };
                CHECK(cudaLaunchHostFunc(full.s, wait, &calls[round]));
                for (int i = 1; i < kFull; ++i) CHECK(cudaEventRecord(event, full.s));
                CHECK(cudaStreamSynchronize(full.s));
            }
            CHECK(cudaEventDestroy(event));
            --at_work;
        });
    }
    threads.emplace_back([&] {
        const Stream own;
        for (int i = 0; at_work != 0; ++i) {
            fill<<<1, 32, 0, own.s>>>(any, 32);
            CHECK(cudaGetLastError());
            auto& turn = turns[i / 10 % 2];
            if (i % 10 == 9 && turn.allowed <= turn.ended) ++turn.allowed;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    const Stream own;
    for (Word round = 0; at_work != 0; ++round) {
        a.kernel(round, own.s);
        a.read(round % 1000 * 100);
    }
    for (auto& thread : threads) thread.join();
    CHECK(cudaDeviceSynchronize());
    a.read(0, a.size());
    CHECK(cudaFree(any));
}

// Of two streams that wait for the legacy one, the first is held by a host function while another thread reads.
void waits_for_second_beside_read() {
    Word* any = nullptr;
    CHECK(cudaMalloc(&any, 32 * sizeof(Word)));
    const Stream first(cudaStreamDefault), second(cudaStreamDefault);
    fill<<<1, 32, 0, first.s>>>(any, 32);
    fill<<<1, 32, 0, second.s>>>(any, 32);
    Swept a;
    CHECK(cudaDeviceSynchronize());
    a.kernel(1);
    pause();  // the kernel ends, and nobody waits for it
    std::atomic<bool> raised{false};
    CHECK(cudaLaunchHostFunc(first.s, wait_until, &raised));
    std::thread reader([&] { a.read(77); });
    pause();
    fill<<<1, 32, 0, second.s>>>(any, 32);
    CHECK(cudaStreamSynchronize(second.s));
    raised = true;
    reader.join();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(any));
}

// Rows that end inside a page.
void allocates_rows_beside_kernel() {
    void* rows = nullptr;
    std::size_t pitch = 0;
    constexpr std::size_t kWidth = 1000, kHeight = 5001;
    returns_meanwhile([&](Stream&) { CHECK(cudaMallocPitch(&rows, &pitch, kWidth, kHeight)); });
    auto* const last = static_cast<unsigned char*>(rows) + pitch * (kHeight - 1);
    last[kWidth - 1] = 5;
    CHECK(cudaMemset2D(rows, pitch, 7, kWidth, kHeight - 1));
    wrong += last[kWidth - 1] != 5;
    wrong += static_cast<unsigned char*>(rows)[kWidth - 1] != 7;
    CHECK(cudaFree(rows));
}

constexpr Case cases[] = {CASE(begins_capture),
                          CASE(destroys_stream),
                          CASE(launches_beside_copy),
                          CASE(launches_of_many),
                          CASE(reads_beside_lost_context),
                          CASE(own_streams_beside_capture),
                          CASE(own_streams_before_capture),
                          CASE(allocates_beside_full),
                          CASE(launches_beside_full_launch),
                          CASE(launches_many_beside_full),
                          CASE(reads_beside_full_streams),
                          CASE(waits_for_second_beside_read),
                          CASE(allocates_rows_beside_kernel)};

}  // namespace

int main(int argc, char** argv) { return run(cases, argc, argv); }
