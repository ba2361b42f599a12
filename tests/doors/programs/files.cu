// SPDX-License-Identifier: MIT
// Reads and writes of files and pipes with memory that kernels use. Cases one by one; see io.h.
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>

#include "asleep.h"
#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

void whole_file(int, char**) {
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{4096}, std::size_t{70 * 1024 + 5}, 3 * kMiB + std::size_t{123}}) {
        const File in(bytes), out;
        const Memory data(bytes + 100);
        data.change(1);
        result("read", read(in, data.at(17), bytes));
        say("offset %ld\n", in.offset());
        data.change(2);
        result("write", write(out, data.at(17), bytes));
        say("offset %ld file %llx data %llx\n", out.offset(), out.sum(), data.sum());
    }
}

// Enough for helper threads, with what is in the page cache and with what is not.
void large_file(int, char**) {
    const File file(70 * kMiB + 5);
    const Memory data(80 * kMiB);
    for (const off_t begin : {off_t{0}, off_t{4096}, off_t{12345}}) {
        fsync(file);
        if (begin != 0) posix_fadvise(file, begin * 1000, static_cast<off_t>(20 * kMiB), POSIX_FADV_DONTNEED);
        data.set(28);
        lseek(file, begin, SEEK_SET);
        result("read", read(file, data.at(static_cast<std::size_t>(begin) % 8192 * 100), 72 * kMiB));
        say("offset %ld data %llx\n", file.offset(), data.sum());
    }
}

void at_the_end(int, char**) {
    const File file(2 * kMiB + 10);
    const Memory data(4 * kMiB);
    data.change(3);
    result("read more than there is", read(file, data.at(), data.bytes()));
    result("read at the end", read(file, data.at(), data.bytes()));
    result("read nothing", read(file, data.at(), 0));
    say("offset %ld data %llx\n", file.offset(), data.sum());
    lseek(file, -7, SEEK_END);
    data.change(4);
    result("read the last bytes", read(file, data.at(5), 100));
    lseek(file, 5 * kMiB, SEEK_SET);
    result("read behind the end", read(file, data.at(), data.bytes()));
    result("write behind the end", write(file, data.at(kMiB - 3), 2 * kMiB));
    say("offset %ld file %llx data %llx\n", file.offset(), file.sum(), data.sum());
}

void failures(int, char**) {
    const Memory data(3 * kMiB);
    data.change(5);
    result("read bad file", read(-1, data.at(), 10));
    result("read bad file, much", read(-1, data.at(), data.bytes()));
    result("write bad file", write(-1, data.at(), 10));
    const File only_read(100, O_RDONLY), only_write(100, O_WRONLY), file(3 * kMiB);
    result("write where only reading is allowed", write(only_read, data.at(), data.bytes()));
    result("read where only writing is allowed", read(only_write, data.at(), data.bytes()));
    result("pread before the beginning", pread(file, data.at(), data.bytes(), -1));
    result("pwrite before the beginning", pwrite(file, data.at(), 10, -1));
    result("read a directory", read(open(".", O_RDONLY), data.at(), 2 * kMiB));
    iovec one{data.at(), 100};
    result("read more than an address space", read(file, data.at(), SSIZE_MAX));
    result("write more than an address space", pwrite(file, data.at(), SSIZE_MAX - 4096, 0));
    result("readv of none", readv(file, &one, 0));
    result("readv of a negative number", readv(file, &one, -1));
    result("writev of too many", writev(file, &one, 5000));
    result("write to a full device", write(open("/dev/full", O_WRONLY), data.at(), 1000));
    result("read of zeros", read(open("/dev/zero", O_RDONLY), data.at(), 2 * kMiB + 1));
    say("data %llx\n", data.sum());
}

void with_offsets(int, char**) {
    const File file(5 * kMiB);
    const Memory data(5 * kMiB);
    data.change(6);
    result("pread", pread(file, data.at(100), 3 * kMiB, 999));
    result("pread, short", pread(file, data.at(4 * kMiB), kMiB, 5 * kMiB - 77));
    result("pread, behind", pread(file, data.at(), kMiB, 6 * kMiB));
    data.change(7);
    result("pwrite", pwrite(file, data.at(50), 2 * kMiB, 4 * kMiB));
    result("pread64", pread64(file, data.at(9), 1000, 1));
    result("pwrite64", pwrite64(file, data.at(3 * kMiB), 1000, 12345));
    say("offset %ld file %llx data %llx\n", file.offset(), file.sum(), data.sum());
}

void vectors(int, char**) {
    const File file(3 * kMiB);
    const Memory a(kMiB), b(2 * kMiB);
    a.change(8);
    b.change(9);
    char ordinary[500] = {};
    iovec parts[] = {
        {a.at(3), 70000}, {ordinary, sizeof ordinary}, {b.at(), 0}, {b.at(4095), kMiB}, {a.at(kMiB - 8), 8}};
    result("readv", readv(file, parts, 5));
    a.change(10);
    result("preadv", preadv(file, parts, 5, 777));
    result("preadv2", preadv2(file, parts, 4, 3 * kMiB - 70100, 0));
    Checksum sum;
    sum.add(ordinary, sizeof ordinary);
    say("offset %ld a %llx b %llx ordinary %llx\n", file.offset(), a.sum(), b.sum(),
        static_cast<unsigned long long>(sum.value()));
    b.change(11);
    result("writev", writev(file, parts, 5));
    result("pwritev", pwritev(file, parts, 5, 10));
    result("pwritev2", pwritev2(file, parts, 2, -1, 0));
    result("preadv2 with a flag that is none", preadv2(file, parts, 2, 0, 1 << 30));
    say("offset %ld file %llx\n", file.offset(), file.sum());
}

void append(int, char**) {
    const File file(100, O_RDWR | O_APPEND);
    const Memory data(2 * kMiB);
    data.change(12);
    result("write", write(file, data.at(), data.bytes()));
    data.change(13);
    result("pwrite", pwrite(file, data.at(1), 1000, 0));
    result("read", read(file, data.at(), 5));
    lseek(file, 0, SEEK_SET);
    result("read all", read(file, data.at(), data.bytes()));
    say("offset %ld file %llx data %llx\n", file.offset(), file.sum(), data.sum());
}

void direct(int, char**) {
    const File file(3 * kMiB, O_RDWR | O_DIRECT);
    if (file < 0) return;  // not on this file system
    const Memory data(3 * kMiB);
    result("read", read(file, data.at(), data.bytes()));
    data.change(14);
    result("pwrite", pwrite(file, data.at(kMiB), kMiB, 4096));
    result("misaligned", pread(file, data.at(1), 512 * 3, 0) < 0 ? 0 : 1);
    say("data %llx\n", data.sum());
}

void through_a_pipe(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const Memory in(3 * kMiB), out(3 * kMiB);
    out.change(15);
    auto sender = [&] {
        std::size_t sent = 0;
        while (sent < out.bytes()) {
            const ssize_t n = write(ends[1], out.at(sent), out.bytes() - sent);
            if (n <= 0) std::exit(96);
            sent += static_cast<std::size_t>(n);
        }
        close(ends[1]);
    };
    const auto thread = start(sender);
    std::size_t got = 0;
    for (ssize_t n; (n = read(ends[0], in.at(got), in.bytes() - got)) > 0;) got += static_cast<std::size_t>(n);
    pthread_join(thread, nullptr);
    say("%zu bytes, equal: %d\n", got, in.sum() == out.sum());
    result("read at the end", read(ends[0], in.at(), 10));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
}

void without_blocking(int, char**) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) return;
    fcntl(ends[0], F_SETPIPE_SZ, 64 * 1024);
    const Memory data(kMiB);
    data.change(16);
    result("read an empty pipe", read(ends[0], data.at(), data.bytes()));
    result("fill", write(ends[1], data.at(5), data.bytes() - 5));
    result("write a full pipe", write(ends[1], data.at(), 100));
    data.change(17);
    result("read", read(ends[0], data.at(100), 30000));
    result("read the rest", read(ends[0], data.at(50000), data.bytes() - 50000));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    result("write to nobody", write(ends[1], data.at(), 10));
    say("data %llx\n", data.sum());
}

void interrupted(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval every{{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &every, nullptr);
    const Memory data(100000);
    data.change(18);
    result("read", read(ends[0], data.at(), data.bytes()));
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    say("data %llx\n", data.sum());
}

// Each byte is read by one of the threads.
void shared_offset(int, char**) {
    constexpr std::size_t kPiece = 2 * kMiB + 4097;
    const File file(8 * kMiB + 11);
    unsigned long long total = 0;
    std::size_t bytes = 0;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    auto reader = [&] {
        const Memory data(kPiece);
        for (ssize_t n; (n = read(file, data.at(), kPiece)) > 0;) {
            data.change(0);
            unsigned char* copy = static_cast<unsigned char*>(std::malloc(kPiece));
            if (plain) {
                CHECK(cudaMemcpy(copy, data.at(), kPiece, cudaMemcpyDefault));
            } else {
                std::memcpy(copy, data.at(), kPiece);
            }
            unsigned long long sum = 0;
            for (ssize_t i = 0; i < n; ++i) {
                sum += static_cast<unsigned char>(copy[i] - static_cast<std::size_t>(i) / 251) * 205u % 256u;
            }
            std::free(copy);
            pthread_mutex_lock(&mutex);
            bytes += static_cast<std::size_t>(n);
            total += sum;
            pthread_mutex_unlock(&mutex);
        }
    };
    pthread_t threads[3];
    for (pthread_t& thread : threads) thread = start(reader);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    say("%zu bytes, sum %llu, offset %ld\n", bytes, total, file.offset());
}

// Another thread launches kernels on the very array, into parts of which this one reads.
void beside_launches(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const Memory data(kMiB);
    volatile bool over = false;
    unsigned* other = nullptr;
    CHECK(cudaMalloc(&other, 4096));
    auto launcher = [&] {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        while (!over) {
            advance<><<<8, 128, 0, stream>>>(other, 1024, 1);
            CHECK(cudaStreamSynchronize(stream));
        }
        CHECK(cudaStreamDestroy(stream));
    };
    const auto thread = start(launcher);
    std::string text(50000, 0);
    for (std::size_t round = 0; round < 20; ++round) {
        for (char& c : text) c = static_cast<char>(c * 3 + static_cast<char>(round) + 1);
        auto writer = [&] {
            if (write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(95);
        };
        const auto sender = start(writer);
        for (std::size_t got = 0; got < text.size();) {
            const ssize_t n = read(ends[0], data.at(round * 50000 + got), text.size() - got);
            if (n <= 0) std::exit(94);
            got += static_cast<std::size_t>(n);
        }
        pthread_join(sender, nullptr);
    }
    over = true;
    pthread_join(thread, nullptr);
    say("data %llx\n", data.sum());
    CHECK(cudaFree(other));
}

// read and write in a host function, while the stream waits.
struct InStream {
    int in, out;
    const Memory* data;
};
void in_a_host_function(int, char**) {
    const File in(300000), out;
    const Memory data(400000);
    data.change(19);
    InStream work{in, out, &data};
    CHECK(cudaLaunchHostFunc(
        nullptr,
        [](void* argument) {
            const auto& w = *static_cast<InStream*>(argument);
            result("read", read(w.in, w.data->at(10), 300000));
            result("write", write(w.out, w.data->at(), 400000));
        },
        &work));
    CHECK(cudaDeviceSynchronize());
    data.change(20);
    say("file %llx data %llx\n", out.sum(), data.sum());
}

const Memory* of_handler = nullptr;
int file_of_handler = -1;
void in_a_signal_handler(int, char**) {
    const File file;
    const Memory data(300000);
    data.change(21);
    of_handler = &data;
    file_of_handler = file;
    signal(SIGUSR1, [](int) { result("write", write(file_of_handler, of_handler->at(7), 200000)); });
    raise(SIGUSR1);
    say("file %llx\n", file.sum());
}

void in_a_child(int, char**) {
    const File file(1000);
    const Memory data(5000);
    data.change(22);
    result("write", write(file, data.at(), 1000));
    const pid_t child = fork();
    if (child == 0) {
        char text[10] = {};
        result("child's pread", pread(file, text, sizeof text, 3));
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    result("child", status);
    result("read", read(file, data.at(), 1000));
    say("data %llx\n", data.sum());
}

// Threads read parts of one array whose borders lie inside of blocks.
void together(int, char**) {
    const File file(8 * kMiB);
    const Memory data(8 * kMiB);
    data.change(24);
    struct Slice {
        const File* file;
        const Memory* data;
        std::size_t begin, end;
        void operator()() const {
            for (auto at = begin; at < end;) {
                const auto part = std::min(end - at, std::size_t{1300001});
                const ssize_t got = pread(*file, data->at(at), part, static_cast<off_t>(at));
                if (got != static_cast<ssize_t>(part)) std::exit(93);
                at += part;
            }
        }
    };
    Slice slices[4];
    pthread_t threads[4];
    for (std::size_t i = 0; i < 4; ++i) {
        const auto border = [&](std::size_t k) { return k * data.bytes() / 4 + (k % 4) * 77; };
        slices[i] = {&file, &data, border(i), i == 3 ? data.bytes() : border(i + 1)};
        threads[i] = start(slices[i]);
    }
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    say("data %llx\n", data.sum());
}

// A thread that waits in read() is cancelled, and another goes on with the array.
void cancelled(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const Memory data(100000);
    data.change(25);
    // A thread that is cancelled while read() returns loses what was read, without libhpe, too.
    std::atomic<pid_t> waiting{0};
    auto reader = [&] {
        for (;;) {
            if (read(ends[0], data.at(3), 50000) < 0) std::exit(92);
            waiting = gettid();
        }
    };
    const auto thread = start(reader);
    if (write(ends[1], "something", 9) != 9) return;
    wait_until_it_waits(waiting);
    pthread_cancel(thread);
    void* how = nullptr;
    pthread_join(thread, &how);
    data.change(26);
    say("cancelled %d data %llx\n", how == PTHREAD_CANCELED, data.sum());
}

const Memory* at_the_end_of_all = nullptr;
void in_an_exit_handler(int, char**) {
    at_the_end_of_all = new Memory(200000);  // stays
    at_the_end_of_all->change(27);
    std::atexit([] {
        const File file(100);
        result("read", read(file, at_the_end_of_all->at(5), 100));
        result("write", write(file, at_the_end_of_all->at(), 200000));
        say("file %llx\n", file.sum());
    });
    std::exit(0);
}

// Of a range that ends in another array, or beside any.
void over_the_end(int, char**) {
    const File file(kMiB);
    const Memory data(8192);
    data.change(23);
    const char before[] = "ordinary memory";
    result("write ordinary memory", write(file, before, sizeof before));
    result("write all, and no byte more", write(file, data.at(), 8192));
    result("read all, and no byte more", pread(file, data.at(), 8192, 4000));
    say("file %llx data %llx\n", file.sum(), data.sum());
}

// A part of the array is the CPU's, the rest the device's.
void written_by_both(int, char**) {
    const File file;
    const Memory data(9 * kMiB);
    data.change(29);
    for (std::size_t i = 0; i < 300; ++i) data.at()[4 * kMiB - 50 + i] = static_cast<unsigned char>(i);
    result("write", write(file, data.at(11), 9 * kMiB - 20));
    data.at()[0] = 7;
    result("pwrite", pwrite(file, data.at(), 5 * kMiB, 123));
    say("offset %ld file %llx data %llx\n", file.offset(), file.sum(), data.sum());
    data.change(30);
    lseek(file, 5, SEEK_SET);
    data.at()[3 * kMiB] += 1;
    result("read", read(file, data.at(3), 8 * kMiB));
    data.at()[6 * kMiB] += 1;
    say("offset %ld data %llx\n", file.offset(), data.sum());
}

// As with one call: what fits is written without a signal.
void limited(int, char**) {
    const File file;
    const Memory data(6 * kMiB);
    data.change(31);
    signal(SIGXFSZ, [](int) { say("SIGXFSZ\n"); });
    const rlimit limit{5 * kMiB, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    result("write", write(file, data.at(), data.bytes()));
    result("write more", write(file, data.at(), data.bytes()));
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
    result("write all", write(file, data.at(), data.bytes()));
    result("pwrite behind the largest file",
           pwrite(file, data.at(), data.bytes(), LLONG_MAX - 2 * static_cast<off_t>(kMiB)));
    say("offset %ld file %llx\n", file.offset(), file.sum());
}

// Threads write with one offset: each call's bytes stay together, and none are lost.
void shared_offset_of_writes(int, char**) {
    constexpr std::size_t kPiece = 2 * kMiB + 4097;
    const File file;
    auto writer = [&] {
        const Memory data(kPiece);
        for (int round = 1; round <= 5; ++round) {
            data.set(round);
            if (write(file, data.at(), kPiece) != static_cast<ssize_t>(kPiece)) std::exit(91);
        }
    };
    pthread_t threads[3];
    for (pthread_t& thread : threads) thread = start(writer);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    std::string all(15 * kPiece, 0);
    const ssize_t got = pread(file, all.data(), all.size(), 0);
    int of_round[6] = {}, mixed = 0;
    for (std::size_t i = 0; i < 15; ++i) {
        const char first = all[i * kPiece];
        mixed += all.compare(i * kPiece, kPiece, std::string(kPiece, first)) != 0;
        if (first >= 0 && first <= 5) ++of_round[static_cast<int>(first)];
    }
    say("%zd bytes, offset %ld, mixed %d, of rounds %d %d %d %d %d %d\n", got, file.offset(), mixed, of_round[0],
        of_round[1], of_round[2], of_round[3], of_round[4], of_round[5]);
}

// Long calls anywhere, on blocks that either side has changed.
void long_calls_anywhere(int, char**) {
    const File file(10 * kMiB);
    const Memory data(12 * kMiB + 77);
    Random random(33);
    const auto below = [&](std::size_t most) { return random.next() % most; };
    for (unsigned round = 0; round < 20; ++round) {
        const auto at = below(8 * kMiB), bytes = kMiB + below(3 * kMiB);
        const auto offset = static_cast<off_t>(below(8 * kMiB));
        switch (round % 5) {
            case 0: data.change(round); break;
            case 1: data.at()[at] = static_cast<unsigned char>(data.at()[at + bytes] + round); break;
            case 2:
            case 3: result("pread", pread(file, data.at(at), bytes, offset)); break;
            default: result("pwrite", pwrite(file, data.at(at), bytes, offset));
        }
    }
    say("file %llx data %llx\n", file.sum(), data.sum());
}

// A read into what the CPU's sweep has had brought ahead of it.
void ahead_of_a_sweep(int, char**) {
    const File file(9 * kMiB);
    const Memory data(12 * kMiB);
    unsigned long long sum = 0;
    for (unsigned round = 0; round < 4; ++round) {
        data.change(34 + round);
        std::size_t at = 0;
        const auto sweep = [&](std::size_t end) {
            for (; at < end; at += 64) sum = sum * 31 + data.at()[at];
        };
        sweep(2 * kMiB + round * 100000);
        result("pread", pread(file, data.at(at + 4096), 8 * kMiB, round));
        sweep(data.bytes());
    }
    say("sum %llx data %llx\n", sum, data.sum());
}

// A kernel that takes longer than a call does, in a stream that waits for no other.
__global__ void change_late(unsigned char* data, std::size_t bytes, int turns) {
    volatile unsigned char* const first = data;
    for (int i = 0; i < turns; ++i) first[threadIdx.x] = first[threadIdx.x] + 1;
    for (std::size_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        data[i] = static_cast<unsigned char>(data[i] + i / 77);
    }
}

// The kernel has ended before the call begins.
void behind_a_kernel(int, char**) {
    const File in(5 * kMiB), out;
    const Memory data(6 * kMiB);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    data.set(3);
    const auto launch = [&] {
        unsigned char* const at = plain ? data.at() : nullptr;
        unsigned char* copy = at;
        if (!plain) {
            CHECK(cudaMalloc(&copy, data.bytes()));
            CHECK(cudaMemcpy(copy, data.at(), data.bytes(), cudaMemcpyHostToDevice));
        }
        CHECK(cudaDeviceSynchronize());
        change_late<<<1, 32, 0, stream>>>(copy, data.bytes(), 1000001);
        if (plain) return;
        CHECK(cudaMemcpyAsync(data.at(), copy, data.bytes(), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaFree(copy));
    };
    result("write, nothing before it", pwrite(out, data.at(1), 5 * kMiB, 0));
    launch();
    result("write", write(out, data.at(1), 5 * kMiB));
    say("file %llx\n", out.sum());
    launch();
    result("read", read(in, data.at(1), 5 * kMiB));
    say("data %llx\n", data.sum());
    CHECK(cudaStreamDestroy(stream));
}

constexpr Case cases[] = {
    {"whole_file", whole_file},
    {"ahead_of_a_sweep", ahead_of_a_sweep},
    {"behind_a_kernel", behind_a_kernel},
    {"long_calls_anywhere", long_calls_anywhere},
    {"written_by_both", written_by_both},
    {"limited", limited},
    {"shared_offset_of_writes", shared_offset_of_writes},
    {"at_the_end", at_the_end},
    {"large_file", large_file},
    {"failures", failures},
    {"with_offsets", with_offsets},
    {"vectors", vectors},
    {"append", append},
    {"direct", direct},
    {"through_a_pipe", through_a_pipe},
    {"without_blocking", without_blocking},
    {"interrupted", interrupted},
    {"shared_offset", shared_offset},
    {"beside_launches", beside_launches},
    {"in_a_host_function", in_a_host_function},
    {"in_a_signal_handler", in_a_signal_handler},
    {"in_a_child", in_a_child},
    {"over_the_end", over_the_end},
    {"together", together},
    {"cancelled", cancelled},
    {"in_an_exit_handler", in_an_exit_handler},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
