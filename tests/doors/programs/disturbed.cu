// SPDX-License-Identifier: MIT
// Calls that something happens to while they wait or transfer: signals, jumps, other threads and processes. Cases one
// by one; see io.h.
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <vector>

#include "asleep.h"
#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

void every(long microseconds) {
    const itimerval interval{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, nullptr);
}
void handle(int signal, void (*handler)(int), int flags = 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, nullptr);
}

// A handler leaves the call that waits, again and again; a cancelled thread would run what a door left behind.
sigjmp_buf out_of_call;
void jumped_out_of(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const Memory data(3 * kMiB);
    data.change(1);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);  // for the other thread
    auto work = [&] {
        pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
        handle(SIGALRM, [](int) { siglongjmp(out_of_call, 1); });
        for (volatile int i = 0; i < 100; i = i + 1) {
            iovec parts[] = {{data.at(5), 70000}, {data.at(kMiB), kMiB}};
            if (sigsetjmp(out_of_call, 1) == 0) {
                every(300 + 100 * (i % 3));
                if (i % 2 == 0) {
                    readv(ends[0], parts, 2);
                } else {
                    read(ends[0], data.at(), 100000);
                }
                std::exit(97);
            }
        }
        every(0);
        result("write", write(ends[1], data.at(), 30000));
        result("read", read(ends[0], data.at(50000), 100000));
        pthread_cancel(pthread_self());
        pthread_testcancel();
    };
    const auto thread = start(work);
    void* how = nullptr;
    pthread_join(thread, &how);
    say("cancelled %d data %llx\n", how == PTHREAD_CANCELED, data.sum());
}

// Signals all the time, with a handler that reads and writes the very array.
const Memory* of_handler = nullptr;
int file_of_handler = -1;
volatile sig_atomic_t handled = 0;
void many_signals(int, char**) {
    const File file(2 * kMiB), other(100000);
    const Memory data(2 * kMiB), small(100000);
    data.change(2);
    of_handler = &small;
    file_of_handler = other;
    handle(
        SIGALRM,
        [](int) {
            const int saved = errno;
            if (pread(file_of_handler, of_handler->at(100), 50000, 0) != 50000) _exit(96);
            if (pwrite(file_of_handler, of_handler->at(200), 1000, 200) != 1000) _exit(95);
            handled = handled + 1;
            errno = saved;
        },
        SA_RESTART);
    every(500);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    long bytes = 0;
    for (int i = 0; i < 5 || handled < 10; ++i) {
        // A handler that interrupts the driver may wait for it for ever (docs/limits.md).
        pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        data.change(3);
        pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
        bytes = pread(file, data.at(17), 2 * kMiB - 4000, i % 10);
        if (bytes != 2 * kMiB - 4000) break;
        bytes = pwrite(file, data.at(18), 2 * kMiB - 4000, 12);
        if (bytes != 2 * kMiB - 4000) break;
        errno = 0;
    }
    every(0);
    result("bytes", bytes);
    result("read", pread(file, data.at(), 2 * kMiB, 0));
    say("small %llx\n", small.sum() != 0 ? 1ULL : 0ULL);
}

sigset_t the_alarm() {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    return alarm;
}

// Large calls that the device makes: handlers use another array meanwhile.
void many_signals_of_large(int, char**) {
    const Memory data(16 * kMiB), small(65536);
    const auto alarm = the_alarm();
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    of_handler = &small;
    static volatile unsigned char want;
    static volatile int old;
    handled = old = 0;
    handle(SIGALRM, [](int) {
        old = old + (of_handler->at()[handled * 1031 % 65536] != want);
        handled = handled + 1;
    });
    every(700);
    for (int i = 1; i < 40 || handled < 40; ++i) {
        want = static_cast<unsigned char>(i);
        small.set(want);
        data.set(0);
        // A handler that interrupts the driver may wait for it for ever (docs/limits.md).
        CHECK(cudaDeviceSynchronize());
        pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
        std::memset(data.at(), i, 8 * kMiB);
        std::memcpy(data.at(8 * kMiB), data.at(), 8 * kMiB);
        pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    }
    every(0);
    std::memset(data.at(), 3, 8 * kMiB);
    say("old bytes %d data %llx\n", old, data.sum(8 * kMiB));
}

// And a handler leaves them.
void jumped_out_of_large(int, char**) {
    const Memory data(16 * kMiB), small(65536);
    const auto alarm = the_alarm();
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    handle(SIGALRM, [](int) { siglongjmp(out_of_call, 1); });
    int old = 0;
    for (volatile int i = 1; i <= 60; i = i + 1) {
        small.set(i);
        old += small.at()[i * 1031] != i;
        data.set(0);
        if (sigsetjmp(out_of_call, 1) == 0) {
            const itimerval once{{0, 0}, {0, 300 + i * 137 % 3000}};
            setitimer(ITIMER_REAL, &once, nullptr);
            pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
            for (;;) {
                std::memset(data.at(), i, 8 * kMiB);
                std::memcpy(data.at(8 * kMiB), data.at(), 8 * kMiB);
            }
        }
        std::memset(data.at(), i, 16 * kMiB);
    }
    say("old bytes %d data %llx\n", old, data.sum());
}

// Two processes and three threads of each share one offset: no byte is read twice, none is left out.
void shared_by_processes(int, char**) {
    constexpr std::size_t kPiece = 2 * kMiB + 4096, kFile = 40 * kMiB + 11;
    const File file;
    auto* const seen =
        static_cast<unsigned*>(mmap(nullptr, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    // Each 16 KiB says its own number.
    std::string text(kFile, 0);
    for (std::size_t i = 0; i + 1 < kFile; i += 16384) *reinterpret_cast<unsigned*>(&text[i]) = unsigned(i / 16384) + 1;
    if (write(file, text.data(), kFile) != static_cast<ssize_t>(kFile)) return;
    lseek(file, 0, SEEK_SET);
    const auto children = [&] {
        auto reader = [&] {
            const Memory data(kPiece);
            for (ssize_t n; (n = read(file, data.at(), kPiece)) > 0;) {
                // What begins inside is told by the position in the array: pieces are multiples of 4 KiB.
                std::string copy(static_cast<std::size_t>(n), 0);
                CHECK(cudaMemcpy(copy.data(), data.at(), copy.size(), cudaMemcpyDefault));
                for (std::size_t i = 0; i + 4 <= copy.size(); i += 4096) {
                    const unsigned number = *reinterpret_cast<const unsigned*>(&copy[i]);
                    if (number != 0) __atomic_add_fetch(&seen[number - 1], 1, __ATOMIC_RELAXED);
                }
            }
        };
        pthread_t threads[3];
        for (pthread_t& thread : threads) thread = start(reader);
        for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    };
    pid_t processes[2];
    for (pid_t& process : processes) {
        process = fork();
        if (process == 0) {
            children();
            _exit(0);
        }
    }
    for (const pid_t process : processes) {
        int status = 0;
        waitpid(process, &status, 0);
        if (status != 0) say("status %d\n", status);
    }
    unsigned wrong = 0;
    for (std::size_t i = 0; i < kFile / 16384; ++i) wrong += seen[i] != 1;
    say("wrong %u offset %ld\n", wrong, file.offset());
}

// Files that may not grow, and what is written until then.
void half_written(int, char**) {
    const File file, stream;
    const Memory data(3 * kMiB);
    data.change(4);
    handle(SIGXFSZ, SIG_IGN);
    const rlimit limit{2 * kMiB + 77, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    result("write", write(file, data.at(), data.bytes()));
    result("write more", write(file, data.at(), data.bytes()));
    result("pwrite", pwrite(file, data.at(5), 1000, 2 * kMiB));
    iovec parts[] = {{data.at(9), 1000}, {data.at(kMiB), kMiB}};
    result("pwritev", pwritev(file, parts, 2, kMiB + 500000));
    FILE* const out = fdopen(dup(stream), "r+");
    result("fwrite", static_cast<long>(std::fwrite(data.at(3), 1000, 3000, out)));
    say("error %d\n", std::ferror(out) != 0);
    std::clearerr(out);
    std::fclose(out);
    struct stat status {};
    fstat(stream, &status);
    say("file %llx stream %ld\n", file.sum(), static_cast<long>(status.st_size));
}

// A thread that has no context of its own.
void without_context(int, char**) {
    const File file(3 * kMiB);
    const Memory data(4 * kMiB);
    data.change(5);
    auto work = [&] {
        result("read", read(file, data.at(100), 3 * kMiB));
        result("write", write(file, data.at(kMiB), 2 * kMiB));
    };
    const auto thread = start(work);
    pthread_join(thread, nullptr);
    say("file %llx data %llx\n", file.sum(), data.sum());
}

// The array is freed while a read into it waits: the kernel finds nothing to write to, or the next array.
void freed_meanwhile(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    unsigned char* gone = nullptr;
    CHECK(cudaMalloc(&gone, kMiB));
    CHECK(cudaMemset(gone, 0, kMiB));
    CHECK(cudaDeviceSynchronize());
    volatile pid_t thread_id = 0;
    auto reader = [&] {
        char text[100];
        thread_id = gettid();
        // Without libhpe the kernel would refuse it at once.
        const ssize_t n = read(ends[0], plain ? static_cast<void*>(gone) : text, 100);
        if (n != 100 && !(n < 0 && errno == EFAULT)) std::exit(94);
    };
    const auto thread = start(reader);
    while (thread_id == 0 || !asleep(thread_id)) sched_yield();
    CHECK(cudaFree(gone));
    if (write(ends[1], std::string(100, 'x').data(), 100) != 100) return;
    pthread_join(thread, nullptr);
    const Memory data(kMiB);
    data.change(6);
    say("data %llx\n", data.sum());
}

// Another thread exports the array while a call sleeps that writes it out, and the next array gets what it can.
void exported_meanwhile(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const Memory data(4 * kMiB);
    data.change(1);
    volatile pid_t thread_id = 0;
    auto writer = [&] {
        thread_id = gettid();
        const iovec part{data.at(), 4 * kMiB};
        if (writev(ends[1], &part, 1) != 4 * kMiB) std::exit(95);
    };
    const auto thread = start(writer);
    while (thread_id == 0 || !asleep(thread_id)) sched_yield();
    cudaIpcMemHandle_t handle;
    if (plain) CHECK(cudaIpcGetMemHandle(&handle, data.at()));
    const Memory next(4 * kMiB);
    std::memset(next.at(), 2, next.bytes());
    Checksum checksum;
    std::vector<char> got(4 * kMiB);
    for (std::size_t done = 0; done < got.size();) {
        const ssize_t n = read(ends[0], got.data() + done, got.size() - done);
        if (n <= 0) std::exit(96);
        done += static_cast<std::size_t>(n);
    }
    pthread_join(thread, nullptr);
    checksum.add(got.data(), got.size());
    say("written %llx\n", checksum.value());
}

// The same at any moment of short and long calls: another array is soon at the same place.
void freed_at_any_moment(int, char**) {
    const File file(2 * kMiB);
    const int zeros = open("/dev/zero", O_RDONLY), nowhere = open("/dev/null", O_WRONLY);
    void* volatile current = plain ? nullptr : std::malloc(kMiB);
    volatile bool ended = false;
    auto others = [&] {
        Random random(7);
        while (plain && !ended) {
            void* memory = nullptr;
            CHECK(cudaMalloc(&memory, (random.next() % 3 + 1) * kMiB / (random.next() % 2 == 0 ? 1 : 16)));
            if (random.next() % 2 == 0) static_cast<volatile char*>(memory)[1] = 1;
            current = memory;
            for (volatile unsigned wait = random.next() % 3000; wait != 0; wait = wait - 1) {
            }
            CHECK(cudaFree(memory));
        }
    };
    const auto thread = start(others);
    unsigned odd = 0;
    for (unsigned i = 0; i < 100000;) {
        auto* const at = static_cast<unsigned char*>(current);
        if (at == nullptr) continue;
        const iovec parts[] = {{at + 10, 100}, {at + 5000, 30000}, {at + 60000, 100}};
        ssize_t got = 0;
        switch (++i / 1000 % 5) {
            case 0: got = read(zeros, at + 100, 50000); break;
            case 1: got = write(nowhere, at + 100, 50000); break;
            case 2: got = readv(zeros, parts, 3); break;
            case 3: got = writev(nowhere, parts, 3); break;
            case 4: got = i % 20 == 0 ? pread(file, at, kMiB, 4096) : 0; break;
        }
        odd += got < 0 && errno != EFAULT;
    }
    ended = true;
    pthread_join(thread, nullptr);
    say("odd %u\n", odd);
    const Memory data(kMiB);
    data.change(6);
    say("data %llx\n", data.sum());
}

// While a read waits the array is used by kernels and by the CPU.
void used_meanwhile(int, char**) {
    const int kRounds = 8;
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return;
    const Memory data(kMiB);
    data.change(7);
    auto reader = [&] {
        for (int i = 0; i < kRounds; ++i) {
            const ssize_t n = recv(sockets[0], data.at(static_cast<std::size_t>(i) * 60000 + 11), 50000, MSG_WAITALL);
            if (n != 50000) std::exit(93);
            if (write(sockets[0], "y", 1) != 1) std::exit(92);
        }
    };
    const auto thread = start(reader);
    char answer;
    for (int i = 0; i < kRounds; ++i) {
        data.change(8);
        volatile unsigned char* const host = data.at();
        for (std::size_t at = 60000 * kRounds; at < data.bytes(); at += 50000) host[at] = static_cast<unsigned char>(i);
        const std::string text(50000, static_cast<char>('a' + i % 20));
        if (send(sockets[1], text.data(), text.size(), 0) != 50000) return;
        if (read(sockets[1], &answer, 1) != 1) return;
    }
    pthread_join(thread, nullptr);
    say("data %llx\n", data.sum());
}

// A child that used no CUDA, of a parent that did: its calls on the parent's arrays fail as without libhpe.
void in_a_child(int, char**) {
    const File file(100000);
    const Memory data(100000);
    data.change(9);
    result("write", write(file, data.at(), 50000));
    const pid_t child = fork();
    if (child == 0) {
        std::string text(200000, 'x');
        iovec parts[] = {{text.data(), 1000}, {text.data() + 50000, 70000}};
        result("child's readv", preadv(file, parts, 2, 0));
        FILE* const stream = fdopen(dup(file), "r+");
        result("child's fread", static_cast<long>(std::fread(text.data(), 1, 90000, stream)));
        std::fclose(stream);
        if (plain) {
            int ends[2];
            if (pipe(ends) != 0 || write(ends[1], "abc", 3) != 3) _exit(1);
            const bool refused = read(ends[0], data.at(), 3) < 0 && errno == EFAULT;
            _exit(refused ? 0 : 2);
        }
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    result("child", status);
    say("file %llx data %llx\n", file.sum(), data.sum());
}

constexpr Case cases[] = {
    {"jumped_out_of", jumped_out_of},
    {"many_signals", many_signals},
    {"many_signals_of_large", many_signals_of_large},
    {"jumped_out_of_large", jumped_out_of_large},
    {"shared_by_processes", shared_by_processes},
    {"half_written", half_written},
    {"without_context", without_context},
    {"freed_meanwhile", freed_meanwhile},
    {"exported_meanwhile", exported_meanwhile},
    {"freed_at_any_moment", freed_at_any_moment},
    {"used_meanwhile", used_meanwhile},
    {"in_a_child", in_a_child},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
