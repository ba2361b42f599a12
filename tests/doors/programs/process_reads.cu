// SPDX-License-Identifier: MIT
// Reads of another process's ordinary memory by process_vm_readv: large and small, of several parts, with memory that
// cannot be read or written in the middle, and of processes that are not there. Cases one by one; see io.h.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <vector>

#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20, kPage = 4096;

// A process with memory of its own, which begins at the same address in this one.
class Other {
public:
    explicit Other(std::size_t bytes, std::initializer_list<std::size_t> holes = {}) : bytes_(bytes) {
        at_ = static_cast<unsigned char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        int ends[2];
        char ready;
        if (pipe(ends) != 0) std::exit(96);
        child_ = fork();
        if (child_ == 0) {
            for (std::size_t i = 0; i < bytes; ++i) at_[i] = value(i);
            for (const auto hole : holes) mprotect(at_ + hole, kPage, PROT_NONE);
            if (write(ends[1], "x", 1) != 1) _exit(1);
            for (;;) pause();
        }
        if (read(ends[0], &ready, 1) != 1) std::exit(95);
        close(ends[0]);
        close(ends[1]);
    }
    ~Other() {
        end();
        waitpid(child_, nullptr, 0);
        munmap(at_, bytes_);
    }
    // It is a zombie on return.
    void end() const {
        siginfo_t info;
        kill(child_, SIGKILL);
        waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
    }
    static unsigned char value(std::size_t i) { return static_cast<unsigned char>(i * 2654435761u >> 13); }
    pid_t process() const { return child_; }
    unsigned char* at(std::size_t offset = 0) const { return at_ + offset; }

private:
    const std::size_t bytes_;
    unsigned char* at_;
    pid_t child_;
};

class Room {
public:
    explicit Room(std::size_t bytes) : bytes_(bytes) {
        at_ = static_cast<unsigned char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
    ~Room() { munmap(at_, bytes_); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    unsigned char* at(std::size_t offset = 0) const { return at_ + offset; }

private:
    const std::size_t bytes_;
    unsigned char* at_;
};

// A program that uses the device, and has copied enough for helper threads.
class Device {
public:
    Device() : data_(8 * kMiB) {
        std::vector<unsigned char> host(8 * kMiB, 3);
        const Other other(8 * kMiB);
        for (int i = 0; i < 3; ++i) CHECK(cudaMemcpy(host.data(), data_.at(), host.size(), cudaMemcpyDefault));
        for (int i = 0; i < 3; ++i) read(other, {{host.data(), host.size()}}, {{other.at(), host.size()}});
    }
    static ssize_t read(const Other& other, std::vector<iovec> to, std::vector<iovec> from) {
        return process_vm_readv(other.process(), to.data(), to.size(), from.data(), from.size(), 0);
    }

private:
    const Memory data_;
};

// What came, from the first byte on.
void came(const char* what, ssize_t got, const unsigned char* at) {
    const int error = errno;
    Checksum sum;
    if (got > 0) sum.add(at, static_cast<std::size_t>(got));
    errno = error;
    result(what, got);
    say("  %llx\n", static_cast<unsigned long long>(sum.value()));
}

void sizes(int, char**) {
    const Device device;
    const Other other(9 * kMiB);
    const Room room(9 * kMiB);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 300000 * std::size_t{1}, kMiB / 2 - 1, kMiB / 2,
                                    kMiB, kMiB + 1, 3 * kMiB + 777, 8 * kMiB}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{4095}, std::size_t{100001}}) {
            std::memset(room.at(), 1, 9 * kMiB);
            errno = 0;
            came("read", Device::read(other, {{room.at(offset / 3), bytes}}, {{other.at(offset), bytes}}),
                 room.at(offset / 3));
            say("  errno %d, behind it %d\n", errno, room.at(offset / 3)[bytes]);
        }
    }
    came("more than there is room for", Device::read(other, {{room.at(), 2 * kMiB}}, {{other.at(), 4 * kMiB}}),
         room.at());
    came("less", Device::read(other, {{room.at(), 4 * kMiB}}, {{other.at(), 2 * kMiB + 5}}), room.at());
    // By its number.
    const iovec to{room.at(), 5 * kMiB}, from{other.at(7), 5 * kMiB};
    came("by number", syscall(SYS_process_vm_readv, other.process(), &to, 1ul, &from, 1ul, 0ul), room.at());
}

void parts(int, char**) {
    const Device device;
    const Other other(12 * kMiB);
    const Room room(12 * kMiB);
    for (const std::size_t count : {2, 5, 31, 32, 33, 200}) {
        std::vector<iovec> to, from;
        std::size_t at = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const auto bytes = i % 5 == 3 ? 0 : 4 * kMiB / count + i * 13;
            to.push_back({room.at(at), bytes});
            at += bytes;
        }
        for (std::size_t i = 0, left = at; left != 0; ++i) {
            const auto bytes = std::min(left, 7 * kMiB / count + 1000);
            left -= bytes;
            from.push_back({other.at(left), bytes});  // from behind
        }
        std::memset(room.at(), 1, 12 * kMiB);
        came("parts", Device::read(other, to, from), room.at());
    }
    // A place that is named twice has what came last.
    came("twice", Device::read(other, {{room.at(), 2 * kMiB}, {room.at(kMiB), 2 * kMiB}}, {{other.at(), 4 * kMiB}}),
         room.at());
}

// Bytes that cannot be read or written, first here, then there.
void holes(int, char**) {
    const Device device;
    constexpr std::size_t kAt[] = {0, 5 * kPage, kMiB, 2 * kMiB + 3 * kPage, 4 * kMiB - kPage};
    for (const auto at : kAt) {
        const Other other(4 * kMiB, {at, 3 * kMiB});
        const Room room(4 * kMiB);
        came("unreadable", Device::read(other, {{room.at(), 4 * kMiB}}, {{other.at(), 4 * kMiB}}), room.at());
        came("from a place behind", Device::read(other, {{room.at(), 2 * kMiB}}, {{other.at(kMiB + kPage), 2 * kMiB}}),
             room.at());
    }
    const Other other(4 * kMiB);
    for (const auto at : kAt) {
        const Room room(4 * kMiB);
        mprotect(room.at(at), kPage, PROT_READ);
        mprotect(room.at(3 * kMiB), kPage, PROT_NONE);
        came("unwritable", Device::read(other, {{room.at(), 4 * kMiB}}, {{other.at(), 4 * kMiB}}), room.at());
        came("from a place between",
             Device::read(other, {{room.at(17), 4 * kMiB - 17}}, {{other.at(17), 4 * kMiB - 17}}), room.at(17));
    }
    const Room room(4 * kMiB);
    auto* const nowhere = reinterpret_cast<unsigned char*>(std::uintptr_t{1} << 60);
    came("a second part from nowhere",
         Device::read(other, {{room.at(), 4 * kMiB}}, {{other.at(), 2 * kMiB}, {nullptr, 2 * kMiB}}), room.at());
    came("a second part to nowhere",
         Device::read(other, {{room.at(), 2 * kMiB}, {nullptr, 2 * kMiB}}, {{other.at(), 4 * kMiB}}), room.at());
    came("a second part beyond all memory",
         Device::read(other, {{room.at(), 2 * kMiB}, {nowhere, 2 * kMiB}}, {{other.at(), 4 * kMiB}}), room.at());
    came("a length below zero", Device::read(other, {{room.at(), ~std::size_t{0}}}, {{other.at(), 4 * kMiB}}),
         room.at());
    const iovec to{room.at(), 4 * kMiB};
    came("no list", process_vm_readv(other.process(), &to, 1, reinterpret_cast<const iovec*>(16), 1, 0), room.at());
    came("flags", process_vm_readv(other.process(), &to, 1, &to, 1, 1), room.at());
}

void nobody(int, char**) {
    const Device device;
    const Room room(4 * kMiB);
    const Other other(4 * kMiB);
    other.end();
    came("ended", Device::read(other, {{room.at(), 4 * kMiB}}, {{other.at(), 4 * kMiB}}), room.at());
    const iovec to{room.at(), 4 * kMiB}, from{other.at(), 4 * kMiB};
    came("nobody", process_vm_readv(999999999, &to, 1, &from, 1, 0), room.at());
    for (std::size_t i = 0; i < 4 * kMiB; ++i) other.at()[i] = Other::value(i);
    came("this process", process_vm_readv(getpid(), &to, 1, &from, 1, 0), room.at());
    // Which bytes come where the ranges overlap the kernel does not say: two runs without libhpe differ.
    const iovec on{room.at(1), 3 * kMiB}, here{room.at(), 3 * kMiB};
    result("this process, a byte on", process_vm_readv(getpid(), &on, 1, &here, 1, 0));
}

// The same few pages many times over: what a call transfers at most is less than 2 GiB.
void enormous(int, char**) {
    const Device device;
    constexpr std::size_t kPiece = 4 * kMiB, kPieces = 520;
    const int file = memfd_create("few", 0);
    if (ftruncate(file, kPiece) != 0) std::exit(94);
    auto* const to = static_cast<unsigned char*>(
        mmap(nullptr, kPiece * kPieces, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t i = 0; i < kPieces; ++i)
        mmap(to + i * kPiece, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    const Other other(kPiece);
    const std::vector<iovec> from(kPieces, {other.at(), kPiece});
    std::vector<iovec> few(from.begin(), from.begin() + 20);
    came("80 MiB", Device::read(other, {{to, kPiece * kPieces}}, few), to);
    result("more than 2 GiB", Device::read(other, {{to, kPiece * kPieces}}, from));
    // A list that is short enough to be split, of memory that is large enough.
    const std::size_t half = kPiece * kPieces / 2;
    result("more than 2 GiB in two parts",
           Device::read(other, {{to, half}, {to + half, half}}, std::vector<iovec>(30, {other.at(), kPiece})));
    munmap(to, kPiece * kPieces);
    close(file);
}

// Threads that read at the same time, each into memory of its own.
void side_by_side(int, char**) {
    const Device device;
    const Other other(6 * kMiB, {5 * kMiB});
    struct Reader {
        const Other& other;
        Room room{6 * kMiB};
        long wrong = 0;
        void operator()() {
            for (std::size_t round = 0; round < 10; ++round) {
                const std::size_t offset = round * 1001;
                const auto got =
                    Device::read(other, {{room.at(), 6 * kMiB - offset}}, {{other.at(offset), 6 * kMiB - offset}});
                wrong += got != static_cast<ssize_t>(5 * kMiB - offset);
                for (std::size_t i = 0; i < 5 * kMiB - offset; ++i) wrong += room.at()[i] != Other::value(i + offset);
            }
        }
    };
    Reader readers[] = {{other}, {other}, {other}};
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) threads[i] = start(readers[i]);
    for (int i = 0; i < 3; ++i) pthread_join(threads[i], nullptr);
    for (const auto& reader : readers) say("%ld wrong\n", reader.wrong);
}

// A handler leaves the read, and what it was reading to, and the stack, are used for something else.
sigjmp_buf out_of_read;
[[gnu::noinline]] void use_stack() {
    volatile unsigned char all[60000];
    for (unsigned char volatile& each : all) each = 0xEE;
}
void jumped_out_of(int, char**) {
    const Device device;
    const Other other(32 * kMiB);
    const Room room(32 * kMiB);
    const iovec to{room.at(), 32 * kMiB}, from{other.at(), 32 * kMiB};
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    struct sigaction action {};
    action.sa_handler = [](int) { siglongjmp(out_of_read, 1); };
    sigaction(SIGALRM, &action, nullptr);
    std::size_t wrong = 0;
    for (volatile int i = 0; i < 60; i = i + 1) {
        if (sigsetjmp(out_of_read, 1) == 0) {
            const itimerval once{{0, 0}, {0, 500 + i * 137 % 8000}};
            setitimer(ITIMER_REAL, &once, nullptr);
            pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
            for (;;) process_vm_readv(other.process(), &to, 1, &from, 1, 0);
        }
        use_stack();
        std::memset(room.at(), 7, 32 * kMiB);
        for (std::size_t k = 0; k < 32 * kMiB; k += 1000) wrong += room.at()[k] != 7;
    }
    say("%zu wrong\n", wrong);
}

constexpr Case cases[] = {
    {"sizes", sizes},
    {"parts", parts},
    {"holes", holes},
    {"nobody", nobody},
    {"enormous", enormous},
    {"side_by_side", side_by_side},
    {"jumped_out_of", jumped_out_of},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
