// SPDX-License-Identifier: MIT
// Calls that give memory to the kernel in other ways than read and write, and mapping calls on memory that kernels use.
// Cases one by one; see io.h.
#include <aio.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <initializer_list>

#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

aiocb request(int file, unsigned char* at, std::size_t bytes, off_t offset, int operation = LIO_NOP) {
    aiocb r{};
    r.aio_fildes = file;
    r.aio_buf = at;
    r.aio_nbytes = bytes;
    r.aio_offset = offset;
    r.aio_lio_opcode = operation;
    r.aio_sigevent.sigev_notify = SIGEV_NONE;
    return r;
}
void finish(const char* what, aiocb& r) {
    const aiocb* const list[] = {&r};
    while (aio_error(&r) == EINPROGRESS) aio_suspend(list, 1, nullptr);
    const int error = aio_error(&r);
    const ssize_t bytes = aio_return(&r);
    say("%s: %ld error %s\n", what, static_cast<long>(bytes), error == 0 ? "none" : strerrorname_np(error));
}

void asynchronous(int, char**) {
    const File file(3 * kMiB), only_write(100, O_WRONLY);
    const Memory data(3 * kMiB);
    data.change(1);
    auto r = request(file, data.at(100), 2 * kMiB, 5);
    result("aio_read", aio_read(&r));
    finish("read", r);
    data.change(2);
    r = request(file, data.at(7), 2 * kMiB, kMiB);
    result("aio_write", aio_write(&r));
    finish("write", r);
    r = request(file, data.at(), 3 * kMiB, 3 * kMiB - 10);
    result("aio_read", aio_read(&r));
    finish("short", r);
    r = request(only_write, data.at(), 100, 0);
    result("aio_read", aio_read(&r));
    finish("not allowed", r);
    r = request(file, data.at(), 100, -1);
    result("aio_read", aio_read(&r));
    finish("before the beginning", r);
    for (const int priority : {-1, 1000}) {
        r = request(file, data.at(), 100, 0);
        r.aio_reqprio = priority;
        result("no priority", aio_write(&r));
        say("error %s\n", strerrorname_np(aio_error(&r)));
    }
    char ordinary[100];
    r = request(file, reinterpret_cast<unsigned char*>(ordinary), 100, 50);
    result("aio_read", aio_read(&r));
    finish("ordinary", r);
    result("aio_fsync", aio_fsync(O_SYNC, &r));
    finish("fsync", r);
    say("file %llx data %llx\n", file.sum(), data.sum());
}

// The requests of one file are made in the order of the calls, whatever memory they are of.
void in_line(int, char**) {
    const Memory data(1000);
    data.change(4);
    std::string first(4 * kMiB, 'a'), last(kMiB, 'b');
    for (int round = 0; round < 5; ++round) {
        const File file(0, O_RDWR | O_APPEND);
        auto one = request(file, reinterpret_cast<unsigned char*>(&first[0]), first.size(), 0), two = one,
             three = request(file, data.at(), 1000, 0),
             four = request(file, reinterpret_cast<unsigned char*>(&last[0]), last.size(), 0);
        for (auto* each : {&one, &two, &three, &four}) {
            each->aio_reqprio = round % 2 * 5;
            aio_write(each);
        }
        for (auto* each : {&one, &two, &three, &four}) finish("appended", *each);
        say("file %llx\n", file.sum());
    }
}

// Pipes in which nothing comes keep all of glibc's threads.
void beside_pipes(int, char**) {
    const File file(kMiB);
    const Memory data(kMiB);
    data.change(6);
    char byte, other;
    auto of_file = request(file, reinterpret_cast<unsigned char*>(&other), 1, 0);
    result("aio_read", aio_read(&of_file));
    finish("ordinary", of_file);
    int ends[40];
    aiocb waiting[20];
    for (int i = 0; i < 20; ++i) {
        if (pipe(ends + 2 * i) != 0) std::exit(94);
        waiting[i] = request(ends[2 * i], reinterpret_cast<unsigned char*>(&byte), 1, 0);
        if (aio_read(&waiting[i]) != 0) std::exit(93);
    }
    // glibc would wait for ever with what it has to read itself.
    auto r = request(file, data.at(5), 1000, 10);
    if (plain) aio_read(&r);
    for (int i = 0; i < 20; ++i) {
        if (write(ends[2 * i + 1], "x", 1) != 1) std::exit(92);
        finish("pipe", waiting[i]);
        close(ends[2 * i]);
        close(ends[2 * i + 1]);
    }
    if (!plain) aio_read(&r);
    finish("read", r);
    say("data %llx\n", data.sum());
}

// A thread that is to end goes on behind them.
void no_cancellation_points(int, char**) {
    const File file(3 * kMiB);
    const Memory data(3 * kMiB);
    data.change(5);
    auto r = request(file, data.at(9), kMiB, 0);
    int result = -1;
    auto work = [&] {
        pthread_cancel(pthread_self());
        result = aio_read(&r);
        pthread_testcancel();
    };
    pthread_join(start(work), nullptr);
    say("aio_read %d\n", result);
    finish("read", r);
    say("data %llx\n", data.sum());
}

void lists(int, char**) {
    const File file(3 * kMiB), only_write(100, O_WRONLY);
    const Memory data(3 * kMiB);
    data.change(3);
    char ordinary[1000];
    for (const int mode : {LIO_WAIT, LIO_NOWAIT}) {
        aiocb a = request(file, data.at(3), kMiB, 0, LIO_READ),
              b = request(file, data.at(kMiB + 9), 5000, 9, LIO_WRITE),
              c = request(file, reinterpret_cast<unsigned char*>(ordinary), 1000, 4, LIO_READ),
              d = request(file, data.at(), 10, 0, LIO_NOP), e = request(only_write, data.at(5), 10, 0, LIO_READ);
        aiocb* const good[] = {&a, nullptr, &b, &c, &d};
        result("list", lio_listio(mode, good, 5, nullptr));
        finish("read", a);
        finish("write", b);
        finish("ordinary", c);
        aiocb* const bad[] = {&e, &a};
        result("with a failure", lio_listio(mode, bad, 2, nullptr));
        finish("read", a);
        finish("not allowed", e);
    }
    aiocb* const none[] = {nullptr};
    result("no mode", lio_listio(5, none, 1, nullptr));
    say("file %llx data %llx\n", file.sum(), data.sum());
}

volatile sig_atomic_t told = 0;
void notified(int, char**) {
    const File file(10000);
    const Memory data(10000);
    data.change(4);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
        told = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
    };
    sigaction(SIGUSR1, &action, nullptr);
    auto r = request(file, data.at(10), 5000, 0);
    r.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    r.aio_sigevent.sigev_signo = SIGUSR1;
    r.aio_sigevent.sigev_value.sival_int = 77;
    result("aio_write", aio_write(&r));
    finish("write", r);
    while (told == 0) sched_yield();
    say("told %d\n", static_cast<int>(told));
    told = 0;
    r.aio_sigevent.sigev_notify = SIGEV_THREAD;
    r.aio_sigevent.sigev_notify_function = [](sigval value) { told = value.sival_int; };
    r.aio_sigevent.sigev_notify_attributes = nullptr;
    result("aio_read", aio_read(&r));
    finish("read", r);
    while (told == 0) sched_yield();
    say("told %d\n", static_cast<int>(told));
    told = 0;
    sigevent all{};
    all.sigev_notify = SIGEV_SIGNAL;
    all.sigev_signo = SIGUSR1;
    all.sigev_value.sival_int = 78;
    auto one = request(file, data.at(10), 5000, 0, LIO_READ);
    aiocb* const list[] = {&one};
    result("list", lio_listio(LIO_NOWAIT, list, 1, &all));
    finish("read", one);
    while (told == 0) sched_yield();
    say("told %d data %llx\n", static_cast<int>(told), data.sum());
}

// Between this process and a child, whose memory is ordinary.
void of_another_process(int, char**) {
    const Memory data(3 * kMiB);
    data.change(5);
    auto* const shared =
        static_cast<unsigned char*>(mmap(nullptr, 3 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::memset(shared, 'z', 3 * kMiB);
    const pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    iovec own[] = {{data.at(5), kMiB}, {data.at(2 * kMiB), 1000}}, other{shared + 9, kMiB + 1000};
    result("process_vm_writev", process_vm_writev(child, own, 2, &other, 1, 0));
    data.change(6);
    result("process_vm_readv", process_vm_readv(child, own, 2, &other, 1, 0));
    other.iov_base = nullptr;
    result("from nowhere", process_vm_readv(child, own, 2, &other, 1, 0));
    result("with flags", process_vm_readv(child, own, 2, &other, 1, 1));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    result("of nobody", process_vm_readv(child, own, 2, &other, 1, 0));
    Checksum sum;
    sum.add(shared, 3 * kMiB);
    say("data %llx shared %llx\n", data.sum(), static_cast<unsigned long long>(sum.value()));
}

void spliced(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
    const Memory data(300000);
    data.change(7);
    const File file;
    iovec parts[] = {{data.at(4096), 100000}, {data.at(200001), 50000}};
    result("vmsplice", vmsplice(ends[1], parts, 2, 0));
    result("splice", splice(ends[0], nullptr, file, nullptr, 120000, 0));
    parts[0] = {data.at(10), 50000};
    result("vmsplice from", vmsplice(ends[0], parts, 1, 0));
    result("nothing there", vmsplice(ends[0], parts, 1, SPLICE_F_NONBLOCK));
    say("file %llx data %llx\n", file.sum(), data.sum());
}

void by_number(int, char**) {
    const File file(1000);
    char text[100];
    result("pread", syscall(SYS_pread64, static_cast<long>(file), text, 100L, 0L, 0L, 0L));
    result("wrong address", syscall(SYS_pread64, static_cast<long>(file), 8L, 100L, 0L));
    result("six arguments",
           syscall(SYS_mmap, nullptr, 4096L, long{PROT_READ}, long{MAP_PRIVATE | MAP_ANONYMOUS}, -1L, 0L) > 0);
}

// No door sees the call itself; libhpe says so, once.
void said_by_number(int, char**) {
    const File file(1000);
    const Memory data(10000);
    data.change(8);
    for (int i = 0; i < 2; ++i) {
        const long bytes = syscall(SYS_pread64, static_cast<long>(file), data.at(10), 100L, 0L);
        result("pread", plain && bytes == -1 && errno == EFAULT ? 100 : bytes);
    }
}

// After each call the bytes are right for the CPU and for kernels, whatever the call returned.
template <class Call>
void after(const char* what, Call&& call) {
    for (int state = 0; state < 3; ++state) {
        const Memory data(kMiB);
        data.change(8);
        CHECK(cudaDeviceSynchronize());
        volatile unsigned char* const at = data.at();
        unsigned sum = 0;
        for (std::size_t i = 0; state != 0 && i < data.bytes(); i += 70000) {
            sum += at[i];
            if (state == 2) at[i] = static_cast<unsigned char>(i / 70000);
        }
        if (plain) call(data.at(), data.bytes());
        for (std::size_t i = 0; i < data.bytes(); i += 5000) sum += at[i];
        for (std::size_t i = 1; i < data.bytes(); i += 150000) at[i] = 5;
        data.change(9);
        say("%s: sum %u data %llx\n", what, sum, data.sum());
    }
}
void mapping_calls(int, char**) {
    after("mprotect", [](void* at, std::size_t bytes) { mprotect(at, bytes, PROT_NONE); });
    for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_HUGEPAGE,
                             MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_WIPEONFORK, MADV_DONTFORK}) {
        after("madvise", [&](void* at, std::size_t bytes) { madvise(at, bytes, advice); });
    }
    after("mlock", [](void* at, std::size_t bytes) { mlock(at, bytes); });
    after("munlock", [](void* at, std::size_t bytes) { munlock(at, bytes); });
    after("msync", [](void* at, std::size_t bytes) { msync(at, bytes, MS_SYNC | MS_INVALIDATE); });
    after("mmap", [](void* at, std::size_t bytes) {
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    });
}
// What is mapped over an array, or instead of it, ends with the array.
void mapped_over(int, char**) {
    for (int i = 0; i < 4; ++i) {
        const Memory data(kMiB);
        data.change(10);
        CHECK(cudaDeviceSynchronize());
        volatile unsigned char* const at = data.at();
        const unsigned before = i % 2 == 0 ? 0 : at[5];
        if (plain) {
            void* const mapped =
                mmap(data.at(), kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            if (mapped != data.at() || at[5] != 0) say("not mapped\n");
            at[6] = 1;
        }
        say("%u\n", before);
    }
    const Memory data(kMiB);
    data.change(11);
    say("data %llx\n", data.sum());
}

constexpr Case cases[] = {
    {"asynchronous", asynchronous},
    {"in_line", in_line},
    {"beside_pipes", beside_pipes},
    {"no_cancellation_points", no_cancellation_points},
    {"lists", lists},
    {"notified", notified},
    {"of_another_process", of_another_process},
    {"spliced", spliced},
    {"by_number", by_number},
    {"said_by_number", said_by_number},
    {"mapping_calls", mapping_calls},
    {"mapped_over", mapped_over},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
