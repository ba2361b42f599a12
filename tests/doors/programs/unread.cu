// SPDX-License-Identifier: MIT
// Copies to the host, of which some are looked at and some are not, in every way that memory may be looked at, given
// to the kernel or the driver, given back or protected. A case prints what it found in memory; unread.py knows how many
// of its copies nobody looked at. There is no other form.
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <atomic>
#include <vector>

#include "program.h"

constexpr unsigned kCount = 300000;  // 1.2 MB
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr unsigned kMiddle = kCount / 2;

static unsigned* device;

template <int = 0>
__global__ void fill(unsigned* data, unsigned n, unsigned key) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = i * key + 1;
}
static void compute(unsigned key) {
    fill<><<<blocks_for(kCount, 128), 128>>>(device, kCount, key);
    CHECK(cudaGetLastError());
}
static void bring(unsigned* to, unsigned key) {
    compute(key);
    CHECK(cudaDeviceSynchronize());  // the report counts what the copy takes, and not the wait for the kernel
    CHECK(cudaMemcpy(to, device, kBytes, cudaMemcpyDeviceToHost));  // a copy
}
static unsigned* memory(std::size_t bytes = kBytes) {
    if (device == nullptr) CHECK(cudaMalloc(&device, kBytes));
    return static_cast<unsigned*>(std::malloc(bytes));
}
static unsigned* brought(unsigned key) {
    auto* const to = memory();
    bring(to, key);
    return to;
}
static unsigned sum(const unsigned* data, unsigned count = kCount) {
    unsigned of = 0;
    for (unsigned i = 0; i < count; ++i) of = of * 31 + data[i];
    return of;
}
static unsigned wrong(const unsigned* data, unsigned key, unsigned first = 0, unsigned count = kCount) {
    unsigned n = 0;
    for (unsigned i = first; i < first + count; ++i) n += static_cast<const volatile unsigned*>(data)[i] != i * key + 1;
    return n;
}
static char* page_in(unsigned* data, unsigned page) {
    const auto at = reinterpret_cast<std::uintptr_t>(data) / 4096 * 4096 + 4096;
    return reinterpret_cast<char*>(at) + page * 4096ul;
}
static int temporary() {
    char name[] = "/tmp/unread-XXXXXX";
    const int file = mkstemp(name);
    unlink(name);
    return file;
}
// What is in the file, from its beginning.
static unsigned sum_of_file(int file) {
    std::vector<unsigned> data(kCount);
    const auto got = pread(file, data.data(), kBytes, 0);
    say("%zd bytes in the file\n", got);
    return sum(data.data());
}

// --- looked at or not ------------------------------------------------------------------------------------------------

static void read_all(int, char**) { say("%u\n", sum(brought(3))); }
static void never(int, char**) { say("%d\n", brought(3) != nullptr); }
static void overwritten(int, char**) {
    auto* const data = memory();
    for (unsigned key = 1; key < 5; ++key) bring(data, key);  // four, of which the last is looked at
    say("%u\n", sum(data));
}
static void freed(int, char**) {
    for (unsigned key = 1; key < 5; ++key) std::free(brought(key));
}
static void partly(int, char**) {
    auto* const data = brought(3);
    say("%u\n", data[kMiddle]);
    bring(data, 4);
}
static void first_only(int, char**) { say("%u\n", brought(3)[0]); }
static void written(int, char**) {
    auto* const data = brought(3);
    data[kMiddle] = 7;
    say("%u\n", sum(data));
}
static void pieces(int, char**) {
    auto* const data = memory();
    compute(3);
    for (unsigned i = 0; i < 3; ++i) {
        CHECK(cudaMemcpy(data + i * 100000, device + i * 100000, 400000, cudaMemcpyDeviceToHost));
    }
    say("%u\n", wrong(data, 3, 100000, 100000));
}
static void part_again(int, char**) {
    auto* const data = brought(3);
    CHECK(cudaMemcpy(data, device, 400000, cudaMemcpyDeviceToHost));
}
static void aligned(int, char**) {
    memory();
    for (const std::size_t alignment : {64, 4096, 1 << 21}) {
        void* data = nullptr;
        if (posix_memalign(&data, alignment, kBytes) != 0) say("no memory\n");
        bring(static_cast<unsigned*>(data), 3);
        say("%u\n", wrong(static_cast<unsigned*>(data), 3));
        bring(static_cast<unsigned*>(data), 4);
    }
}
static void in_rows(int, char**) {
    auto* const data = memory();
    compute(3);
    CHECK(cudaMemcpy2D(data, 4000, device, 4000, 4000, 300, cudaMemcpyDeviceToHost));  // all bytes
    CHECK(cudaMemcpy2D(data, 4000, device, 4000, 3000, 300, cudaMemcpyDeviceToHost));  // with gaps
    say("%u\n", wrong(data, 3));
}
// Copies of up to 2 MiB may be under way when they return, and are not watched.
static void asynchronous(std::size_t bytes) {
    auto* const data = static_cast<unsigned*>(std::malloc(bytes));
    CHECK(cudaMalloc(&device, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (unsigned key = 1; key < 4; ++key) {
        compute(key);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpyAsync(data, device, bytes, cudaMemcpyDeviceToHost, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    say("%u\n", wrong(data, 3));
}
static void asynchronous_large(int, char**) { asynchronous(2 * kBytes); }
static void asynchronous_small(int, char**) { asynchronous(kBytes); }

// --- memory that is not watched --------------------------------------------------------------------------------------

__attribute__((noinline)) static unsigned deep(unsigned depth) {
    volatile char room[4096];
    room[depth % sizeof room] = static_cast<char>(depth);
    return depth == 0 ? room[0] : deep(depth - 1) + static_cast<unsigned char>(room[depth % sizeof room]);
}
__attribute__((noinline)) static void onto_stack() {
    unsigned data[kCount];
    bring(data, 3);
    asm volatile("" : : "r"(data) : "memory");
}
static void stack(int, char**) {
    memory();
    onto_stack();
    say("%u\n", deep(400));
}
// A thread's stack that malloc has mapped.
static void stack_of_malloc(int, char**) {
    memory();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    constexpr std::size_t kRoom = std::size_t{4} << 20;
    auto* const room = reinterpret_cast<char*>(memory(kRoom + 4096));
    pthread_attr_setstack(&attributes, room + 4096 - reinterpret_cast<std::uintptr_t>(room) % 4096, kRoom);
    pthread_t thread;
    pthread_create(
        &thread, &attributes,
        [](void*) -> void* {
            onto_stack();
            say("%u\n", deep(400));
            return nullptr;
        },
        nullptr);
    pthread_join(thread, nullptr);
}
static void other_memory(int, char**) {
    memory();
    unsigned* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, kBytes));
    auto* const mapped =
        static_cast<unsigned*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    static unsigned data[kCount];
    auto* const small = memory(100000);
    bring(pinned, 3);
    bring(mapped, 4);
    bring(data, 5);
    CHECK(cudaMemcpy(small, device, 100000, cudaMemcpyDeviceToHost));
    say("%u %u %u %u\n", wrong(pinned, 3), wrong(mapped, 4), wrong(data, 5), wrong(small, 5, 0, 25000));
}

// --- system calls ----------------------------------------------------------------------------------------------------

static void to_file(int, char**) {
    const int file = temporary();
    const auto* const data = brought(3);
    say("%zd\n", write(file, data, kBytes));
    say("%u\n", sum_of_file(file));
}
static void from_file(int, char**) {
    const int file = temporary();
    auto* const data = brought(3);
    say("%zd\n", write(file, data, kBytes));
    bring(data, 4);
    say("%zd\n", pread(file, data, kBytes, 0));
    say("%u\n", wrong(data, 3));
}
static void vector(int, char**) {
    const int file = temporary();
    auto* const first = brought(3);
    auto* const second = brought(4);
    const iovec parts[] = {{first, kBytes}, {second, kBytes}};
    say("%zd\n", writev(file, parts, 2));
    say("%u\n", sum_of_file(file));
    bring(first, 5);
    bring(second, 6);
    say("%zd %u %u\n", preadv(file, parts, 2, 0), wrong(first, 3), wrong(second, 4));
}
static void stream_io(int, char**) {
    std::FILE* const file = std::tmpfile();
    auto* const data = brought(3);
    say("%zu\n", std::fwrite(data, 1, kBytes, file));
    bring(data, 4);
    std::rewind(file);
    say("%zu\n", std::fread(data, 1, kBytes, file));
    say("%u\n", wrong(data, 3));
}
static void sockets(int, char**) {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    auto* const data = brought(3);
    auto* const other = brought(4);
    iovec part{data + 20000, 40000};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    say("%zd\n", sendmsg(ends[0], &message, 0));
    say("%zd\n", recv(ends[1], other + 20000, 40000, MSG_WAITALL));
    say("%u\n", wrong(other, 3, 20000, 10000));
}
static void by_number(int, char**) {
    const int file = temporary();
    const auto* const data = brought(3);
    say("%ld\n", syscall(SYS_write, file, data + 10000, 100000));
    say("%u\n", wrong(data, 3));
}

// --- copies ----------------------------------------------------------------------------------------------------------

static void copied(int, char**) {
    auto* const other = memory();
    std::memcpy(other, brought(3), kBytes);
    say("%u\n", wrong(other, 3));
}
static void to_device(int, char**) {
    const auto* const data = brought(3);
    compute(4);
    CHECK(cudaMemcpy(device, data, kBytes, cudaMemcpyHostToDevice));
    auto* const other = memory();
    CHECK(cudaMemcpy(other, device, kBytes, cudaMemcpyDeviceToHost));
    say("%u\n", wrong(other, 3));
    bring(other, 5);
    CHECK(cudaMemcpy2D(device, 4000, other, 4000, 2000, 300, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(device, other, kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}
static void pinned_later(int, char**) {
    auto* const data = brought(3);
    CHECK(cudaHostRegister(data, kBytes, cudaHostRegisterDefault));
    say("%u\n", wrong(data, 3));
    bring(data, 4);
    CHECK(cudaHostUnregister(data));
    say("%u\n", wrong(data, 4));
}
static void failing(int, char**) {
    auto* const data = brought(3);
    say("%d\n", cudaMemcpy(data, device + kMiddle, kBytes, cudaMemcpyDeviceToHost) != cudaSuccess);
    cudaGetLastError();
    say("%u\n", wrong(data, 3));
}
static void nothing(int, char**) {
    auto* const data = brought(3);
    CHECK(cudaMemcpy(data, device, 0, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(data + kMiddle, device, 0, cudaMemcpyDeviceToHost));
}
static void graph(int, char**) {
    auto* const data = memory();
    unsigned* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, kBytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphInstantiate(&ready, captured, 0));
    bring(data, 3);
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("%u\n", wrong(pinned, 3));
}

// --- mappings --------------------------------------------------------------------------------------------------------

static sigjmp_buf back;
static volatile unsigned caught;
static void catch_faults() {
    struct sigaction action {};
    action.sa_handler = [](int) {
        ++caught;
        siglongjmp(back, 1);
    };
    sigaction(SIGSEGV, &action, nullptr);
}
template <class Access>
static bool faults(Access access) {
    if (sigsetjmp(back, 1) != 0) return true;
    access();
    return false;
}
static bool faults_to_read(const char* at) {
    return faults([&] { (void)*static_cast<const volatile char*>(at); });
}
static bool faults_to_write(char* at) {
    return faults([&] { *static_cast<volatile char*>(at) = 1; });
}

static void grown(int, char**) {
    auto* const data = static_cast<unsigned*>(std::realloc(brought(3), 3 * kBytes));
    say("%u\n", wrong(data, 3));
}
static void shrunk(int, char**) {
    auto* const data = static_cast<unsigned*>(std::realloc(brought(3), kBytes / 2));
    say("%u\n", wrong(data, 3, 0, kMiddle));
}
static void protect(int, char**) {
    catch_faults();
    auto* const data = brought(3);
    say("%d\n", mprotect(page_in(data, 20), 8192, PROT_READ));
    say("%u\n", wrong(data, 3));
    say("%d %d\n", faults_to_write(page_in(data, 20)), faults_to_write(page_in(data, 22)));
    bring(memory(), 4);
    say("%d\n", mprotect(page_in(data, 20), 8192, PROT_NONE));
    say("%d %d %d\n", faults_to_read(page_in(data, 20)), faults_to_read(page_in(data, 21)),
        faults_to_write(page_in(data, 20)));
    say("%u\n", caught);
}
static void unmapped(int, char**) {
    catch_faults();
    auto* const data = brought(3);
    munmap(page_in(data, 20), 8192);
    say("%u\n", wrong(data, 3, 0, 10000));
    say("%d %d\n", faults_to_read(page_in(data, 20)), faults_to_write(page_in(data, 21)));
}
// Others' pages are where the closed ones were.
static void reused(int, char**) {
    catch_faults();
    auto* const data = brought(3);
    char* const at = page_in(data, 0);
    std::free(data);
    char* const guarded =
        static_cast<char*>(mmap(at, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    say("%d\n", guarded == at);
    say("%d %d\n", faults_to_read(at), faults_to_write(at + 4096));
    const int file = temporary();
    say("%zd\n", write(file, at, 4096));
    say("%d\n", faults_to_read(at));
}
static void emptied(int, char**) {
    auto* const data = brought(3);
    say("%d\n", madvise(page_in(data, 20), 8192, MADV_DONTNEED));
    say("%u %u\n", sum(reinterpret_cast<unsigned*>(page_in(data, 20)), 2048), wrong(data, 3, 0, 5000));
}
static void locked(int, char**) {
    auto* const data = brought(3);
    say("%d\n", mlock(page_in(data, 4), 16384));
    say("%u\n", wrong(data, 3));
}

// --- threads, signals, processes -------------------------------------------------------------------------------------

// All at the same moment, as near as threads can: several may trap before the first one's trap is over.
static void threads_read(int, char**) {
    constexpr unsigned kThreads = 2, kRounds = 100;
    static unsigned* data;
    static std::atomic<unsigned> begun, done;
    data = memory();
    struct Reader {
        unsigned number, bad;
        void operator()() {
            for (unsigned round = 1; round <= kRounds; ++round) {
                while (begun.load() < round) continue;
                read(round);
                ++done;
            }
        }
        void read(unsigned round) {
            const unsigned i = kMiddle + number * 7000;
            bad += static_cast<volatile unsigned*>(data)[i] != i * round + 1;
        }
    };
    Reader readers[kThreads]{}, own{kThreads, 0};
    pthread_t threads[kThreads];
    for (unsigned i = 0; i < kThreads; ++i) readers[i].number = i, threads[i] = start(readers[i]);
    for (unsigned round = 1; round <= kRounds; ++round) {
        bring(data, round);
        begun = round;
        own.read(round);
        while (done.load() < round * kThreads) sched_yield();
    }
    for (auto& thread : threads) pthread_join(thread, nullptr);
    for (const auto& reader : readers) say("%u\n", reader.bad);
    say("%u\n", own.bad);
}
static void threads_copy(int, char**) {
    say("%u\n", wrong(brought(3), 3));  // before there are threads
    struct Copier {
        unsigned bad = 0;
        void operator()() {
            for (unsigned round = 0; round < 10; ++round) {
                auto* const data = static_cast<unsigned*>(std::malloc(kBytes));
                CHECK(cudaMemcpy(data, device, kBytes, cudaMemcpyDeviceToHost));
                CHECK(cudaMemcpy(data, device, kBytes, cudaMemcpyDeviceToHost));
                bad += wrong(data, 3);
                CHECK(cudaMemcpy(data, device, kBytes, cudaMemcpyDeviceToHost));
                std::free(data);
            }
        }
    };
    Copier copiers[4];
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; ++i) threads[i] = start(copiers[i]);
    for (auto& thread : threads) pthread_join(thread, nullptr);
    for (const auto& copier : copiers) say("%u\n", copier.bad);
}
static unsigned* for_handler;
static volatile unsigned seen_in_handler;
static void handler(int, char**) {
    signal(SIGUSR1, [](int) { seen_in_handler = wrong(for_handler, 3) + 1; });
    for_handler = brought(3);
    raise(SIGUSR1);
    say("%u\n", seen_in_handler);
}
static void blocked(int, char**) {
    auto* const data = brought(3);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    say("%u\n", wrong(data, 3));
}
// The thread blocked SIGSEGV when libhpe did not look at masks yet.
static void blocked_before(int, char**) {
    static pthread_barrier_t barrier;
    static unsigned* data;
    pthread_barrier_init(&barrier, nullptr, 2);
    auto body = [] {
        pthread_barrier_wait(&barrier);
        say("%u\n", wrong(data, 3));
    };
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const auto thread = start(body);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    data = brought(3);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, nullptr);
}
static void forked(int, char**) {
    auto* const data = brought(3);
    const int file = temporary();
    const pid_t child = fork();
    if (child == 0) {
        const bool good = write(file, data, kBytes) == static_cast<ssize_t>(kBytes) && wrong(data, 3) == 0;
        data[kMiddle] = 0;
        _exit(good ? 5 : 6);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("%d\n", WEXITSTATUS(status));
    say("%u\n", sum_of_file(file));
}
static void forked_twice(int, char**) {
    auto* const data = brought(3);
    for (int i = 0; i < 2; ++i) {
        const pid_t child = fork();
        if (child == 0) _exit(wrong(data, 3) == 0 ? 5 : 6);
        int status = 0;
        waitpid(child, &status, 0);
        say("%d\n", WEXITSTATUS(status));
    }
    say("%u\n", wrong(data, 3));
}
static unsigned* for_exit;
static void at_exit(int, char**) {
    std::atexit([] { say("%u\n", wrong(for_exit, 3)); });  // runs after libhpe's own
    for_exit = brought(3);
}
// More than are watched at once.
static void many(int, char**) {
    memory();
    compute(3);
    constexpr unsigned kMany = 1500;
    static unsigned* all[kMany];
    for (auto& data : all) {
        data = memory(160000);
        CHECK(cudaMemcpy(data, device, 160000, cudaMemcpyDeviceToHost));
    }
    unsigned bad = 0;
    for (const auto* data : all) bad += wrong(data, 3, 0, 40000);
    say("%u\n", bad);
}

int main(int argc, char** argv) {
    mallopt(M_MMAP_THRESHOLD, 128 << 10);  // also after one was freed
    static const Case cases[] = {{"read_all", read_all},
                                 {"never", never},
                                 {"overwritten", overwritten},
                                 {"freed", freed},
                                 {"partly", partly},
                                 {"first_only", first_only},
                                 {"written", written},
                                 {"pieces", pieces},
                                 {"part_again", part_again},
                                 {"aligned", aligned},
                                 {"in_rows", in_rows},
                                 {"asynchronous_large", asynchronous_large},
                                 {"asynchronous_small", asynchronous_small},
                                 {"stack", stack},
                                 {"stack_of_malloc", stack_of_malloc},
                                 {"other_memory", other_memory},
                                 {"to_file", to_file},
                                 {"from_file", from_file},
                                 {"vector", vector},
                                 {"stream_io", stream_io},
                                 {"sockets", sockets},
                                 {"by_number", by_number},
                                 {"copied", copied},
                                 {"to_device", to_device},
                                 {"pinned_later", pinned_later},
                                 {"failing", failing},
                                 {"nothing", nothing},
                                 {"graph", graph},
                                 {"grown", grown},
                                 {"shrunk", shrunk},
                                 {"protect", protect},
                                 {"unmapped", unmapped},
                                 {"reused", reused},
                                 {"emptied", emptied},
                                 {"locked", locked},
                                 {"threads_read", threads_read},
                                 {"threads_copy", threads_copy},
                                 {"handler", handler},
                                 {"blocked", blocked},
                                 {"blocked_before", blocked_before},
                                 {"forked", forked},
                                 {"forked_twice", forked_twice},
                                 {"at_exit", at_exit},
                                 {"many", many}};
    return run_case(cases, argc, argv);
}
