// SPDX-License-Identifier: MIT
// Copies between the program's own memory and the device (pageable.h).
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <cuda.h>

#include "asleep.h"
#include "pageable.h"

// Around the smallest that is staged, around pieces and blocks; host and device side at odd places.
static void sizes() {
    const std::size_t all[] = {0, 1, 4095, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, kMiB, kMiB + 4097, 3 * kMiB - 5,
                               4 * kMiB, 9 * kMiB + 3, 33 * kMiB + 12345,
                               // With 64 helpers its last piece is a little more than 64 of the smallest shares.
                               17006600};
    unsigned seed = 0;
    for (const std::size_t n : all) {
        for (const std::size_t odd : {0, 13}) {
            for (int again = 0; again < (n < 4 * kMiB ? 3 : 1); ++again, ++seed) {
                Bytes from(n + odd + 1, 1), to(n + odd + 2, 2);
                Device d(n + 64);
                fill(from.data() + odd, n, seed);
                CHECK(cudaMemcpy(d.p + odd, from.data() + odd, n, to_device));
                std::memset(from.data(), 0xee, from.size());  // it may be reused at once
                CHECK(cudaMemcpy(to.data() + odd, d.p + odd, n, to_host));
                WANT(is(to.data() + odd, n, seed) && to[n + odd] == 2 && to[n + odd + 1] == 2);
                WANT(odd == 0 || to[odd - 1] == 2);
            }
        }
    }
}

// The smallest that are staged, where that is the faster way: often enough that both ways have been tried.
static void smallest() {
    const std::size_t n = 512 * 1024;
    Device d(n);
    Bytes from(n), to(n);
    for (unsigned seed = 0; seed < 20; ++seed) {
        fill(from.data(), n, seed);
        CHECK(cudaMemcpy(d.p, from.data(), n, to_device));
        CHECK(cudaMemcpy(to.data(), d.p, n, to_host));
        WANT(is(to.data(), n, seed));
    }
}

// So much that staging has earned its start half-way, unless the user asks for it at once: 384 MiB, in all.
static void sum() {
    const std::size_t n = 64 * kMiB;
    Device d(n);
    Bytes from(n), to(n);
    for (unsigned round = 0; round < 3; ++round) {
        fill(from.data(), n, round);
        CHECK(cudaMemcpy(d.p, from.data(), n, to_device));
        CHECK(cudaMemcpy(to.data(), d.p, n, to_host));
        WANT(from == to);
    }
}

// With kernels before and after, in the default stream and in others.
static void order() {
    const std::size_t n = 2 * kMiB + 100;
    Device d(n);
    cudaStream_t blocking, other;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    Bytes host(n), got(n);
    for (int round = 0; round < 3; ++round) {
        fill(host.data(), n, 1);
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        add_one_to(d.p, n, blocking);
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));  // waits for blocking streams
        for (std::size_t i = 0; i < n; ++i) WANT(got[i] == static_cast<unsigned char>(host[i] + 1));
        for (cudaStream_t stream : {blocking, other}) {
            fill(host.data(), n, 2);
            CHECK(cudaMemcpyAsync(d.p, host.data(), n, to_device, stream));
            std::memset(host.data(), 0, n);  // pageable: it may be reused
            add_one_to(d.p, n, stream);
            add_one_to(d.p, n, stream);
            CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, stream));  // pageable: done on return
            for (std::size_t i = 0; i < n; ++i) WANT(got[i] == static_cast<unsigned char>(pattern(i, 2) + 2));
            CHECK(cudaStreamSynchronize(stream));
        }
        // A later kernel in a stream that waits for nothing sees a copy that has returned.
        fill(host.data(), n, 3);
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        add_one_to(d.p, n, other);
        CHECK(cudaStreamSynchronize(other));
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
        for (std::size_t i = 0; i < n; ++i) WANT(got[i] == static_cast<unsigned char>(pattern(i, 3) + 1));
    }
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaStreamDestroy(other));
}

// Every copy finds its stream at work.
static void busy() {
    const std::size_t n = 2 * kMiB;
    Device d(n);
    Bytes host(n), got(n);
    fill(host.data(), n, 7);
    CHECK(cudaMemset(d.p, 0, n));
    for (int round = 0; round < 20; ++round) {
        add_one_to(d.p, n);
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
        for (std::size_t i = 0; i < n; i += 1021) WANT(got[i] == round + 1);
    }
}

// A copy that waits also waits for what came before it: the other copy has landed.
static void waits_for_earlier() {
    const std::size_t n = 2 * kMiB;
    Device d(n), e(n);
    unsigned char* pinned;
    CHECK(cudaMallocHost(&pinned, n));
    Bytes host(n);
    for (int round = 0; round < 8; ++round) {
        fill(host.data(), n, 5 + round);
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        std::memset(pinned, 0, n);
        CHECK(cudaLaunchHostFunc(
            nullptr, [](void*) { usleep(5000); }, nullptr));
        CHECK(cudaMemcpyAsync(pinned, d.p, n, to_host, nullptr));
        CHECK(cudaMemcpy(e.p, host.data(), n, to_device));
        WANT(is(pinned, n, 5 + round));
    }
    CHECK(cudaFreeHost(pinned));
}

// Behind a callback that waits for what the caller does after the call: an ordered copy must return before. Other
// threads' copies go on meanwhile, though this one's blocks are taken.
static std::atomic<bool> released{false};
static void behind_callback() {
    const std::size_t n = 2 * kMiB;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<Device*> devices;
    std::vector<Bytes> hosts;
    for (int i = 0; i < 24; ++i) devices.push_back(new Device(n)), hosts.emplace_back(n);
    {
        Device warm(n);  // the blocks are there
        for (int i = 0; i < 4; ++i) CHECK(cudaMemcpy(warm.p, hosts[0].data(), n, to_device));
    }
    CHECK(cudaLaunchHostFunc(
        stream,
        [](void*) {
            while (!released.load()) usleep(100);
        },
        nullptr));
    fill(hosts[0].data(), n, 70);
    CHECK(cudaMemcpyAsync(devices[0]->p, hosts[0].data(), n, to_device, stream));
    std::memset(hosts[0].data(), 0, n);
    std::thread([&] {
        cudaStream_t mine;
        CHECK(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
        for (int i = 1; i < 24; ++i) {
            fill(hosts[i].data(), n, 70 + i);
            CHECK(cudaMemcpyAsync(devices[i]->p, hosts[i].data(), n, to_device, mine));
            std::memset(hosts[i].data(), 0, n);
            CHECK(cudaMemcpyAsync(hosts[i].data(), devices[i]->p, n, to_host, mine));
            WANT(is(hosts[i].data(), n, 70 + i));
        }
        CHECK(cudaStreamDestroy(mine));
    }).join();
    released = true;
    CHECK(cudaStreamSynchronize(stream));
    Bytes got(n);
    CHECK(cudaMemcpy(got.data(), devices[0]->p, n, to_host));
    WANT(is(got.data(), n, 70));
    for (Device* d : devices) delete d;
    CHECK(cudaStreamDestroy(stream));
}

static void threads() {
    std::vector<std::thread> all;
    for (int t = 0; t < 10; ++t) {
        all.emplace_back([t] {
            for (int round = 0; round < 4; ++round) {
                const std::size_t n = (1 + (t * 7 + round * 3) % 5) * kMiB + t * 17;
                Device d(n);
                Bytes host(n), got(n);
                cudaStream_t stream;
                CHECK(cudaStreamCreate(&stream));
                fill(host.data(), n, t * 100 + round);
                if (round % 2 == 0) {
                    CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
                    CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
                } else {
                    CHECK(cudaMemcpyAsync(d.p, host.data(), n, to_device, stream));
                    CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, stream));
                }
                WANT(is(got.data(), n, t * 100 + round));
                CHECK(cudaStreamDestroy(stream));
            }
        });
    }
    for (auto& t : all) t.join();
}

// Memory that the driver knows.
static void known_memory() {
    const std::size_t n = 3 * kMiB;
    Device d(n);
    Bytes got(n);
    unsigned char *pinned, *managed;
    auto* registered =
        static_cast<unsigned char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(cudaMallocHost(&pinned, n));
    CHECK(cudaMallocManaged(&managed, n));
    CHECK(cudaHostRegister(registered, n, cudaHostRegisterDefault));
    for (unsigned char* host : {pinned, managed, registered}) {
        fill(host, n, 11);
        CHECK(cudaMemcpy(d.p, host, n, to_device));
        std::memset(host, 0, n);
        CHECK(cudaMemcpy(host, d.p, n, to_host));
        CHECK(cudaDeviceSynchronize());
        WANT(is(host, n, 11));
        CHECK(cudaMemcpy(d.p, host, n, cudaMemcpyDefault));
        constexpr std::size_t few = 256 << 10;  // too little to be staged
        for (std::size_t at = 0; at < n; at += few) CHECK(cudaMemcpy(got.data() + at, d.p + at, few, to_host));
        WANT(is(got.data(), n, 11));
    }
    CHECK(cudaHostUnregister(registered));
    // Memory that it knows in part, which it may refuse.
    CHECK(cudaHostRegister(registered + n / 2, n / 2, cudaHostRegisterDefault));
    for (int i = 0; i < 12; ++i) {
        std::printf("known in part: %d ", cudaMemcpy(d.p, registered + kMiB, kMiB, to_device));
        std::printf("%d\n", cudaMemcpy(registered + kMiB, d.p, kMiB, to_host));
    }
    cudaGetLastError();
    CHECK(cudaHostUnregister(registered + n / 2));
    munmap(registered, n);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(managed));
}

// A range that ends behind its allocation is refused, and nothing is moved.
static void too_long() {
    Bytes host(64 * kMiB);
    unsigned char* p;
    CHECK(cudaMalloc(&p, 2 * kMiB));
    CHECK(cudaMemset(p, 7, 2 * kMiB));
    fill(host.data(), host.size(), 1);
    for (int i = 0; i < 3; ++i) {
        std::printf("%s ", cudaGetErrorName(cudaMemcpy(p + kMiB, host.data(), std::size_t{1} << 40, to_device)));
        std::printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    }
    Bytes got(2 * kMiB);
    CHECK(cudaMemcpy(got.data(), p, got.size(), to_host));
    for (const auto byte : got) WANT(byte == 7);
    CHECK(cudaFree(p));
    // The end lies behind the allocation, but not the first pieces.
    CHECK(cudaMalloc(&p, 40 * kMiB));
    CHECK(cudaMemset(p, 7, 40 * kMiB));
    for (int i = 0; i < 3; ++i) std::printf("%s\n", cudaGetErrorName(cudaMemcpy(p, host.data(), 48 * kMiB, to_device)));
    cudaGetLastError();
    got.resize(40 * kMiB);
    CHECK(cudaMemcpy(got.data(), p, got.size(), to_host));
    for (const auto byte : got) WANT(byte == 7);
    CHECK(cudaFree(p));
    for (int i = 0; i < 3; ++i) std::printf("%s\n", cudaGetErrorName(cudaMemcpy(host.data(), p, kMiB, to_host)));
    cudaGetLastError();
}

static void capture() {
    const std::size_t n = 2 * kMiB;
    Device d(n);
    Bytes host(n), got(n);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpyAsync(d.p, host.data(), n, to_device, stream));
    add_one_to(d.p, n, stream);
    CHECK(cudaMemcpyAsync(got.data(), d.p, n, to_host, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    std::printf("%zu nodes\n", nodes);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; ++round) {
        fill(host.data(), n, round);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (std::size_t i = 0; i < n; ++i) WANT(got[i] == static_cast<unsigned char>(host[i] + 1));
    }
    // Outside the captured stream, while it is captured in the strictest mode.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::printf("%s\n", cudaGetErrorName(cudaMemcpy(d.p, host.data(), n, to_device)));
    cudaGetLastError();
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
}

// Streams that go while they are captured; the one that a capture began with, and one that joined it.
static void capture_abandoned() {
    const std::size_t n = 2 * kMiB;
    Device d(n);
    Bytes host(n), got(n);
    for (unsigned round = 0; round < 20; ++round) {
        if (round < 2) {
            cudaStream_t first, second;
            cudaEvent_t event;
            CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
            CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
            CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
            add_one_to(d.p, n, first);
            CHECK(cudaEventRecord(event, first));
            CHECK(cudaStreamWaitEvent(second, event, 0));
            add_one_to(d.p, n, second);
            if (round == 0) cudaStreamDestroy(second);
            cudaStreamDestroy(first);
            if (round == 1) cudaStreamDestroy(second);
            cudaGetLastError();
            CHECK(cudaEventDestroy(event));
        }
        fill(host.data(), n, round);
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
        WANT(is(got.data(), n, round));
    }
    std::printf("right\n");
}

// A copy that waits for what came before it, while another thread begins to capture a stream.
static void capture_meanwhile() {
    const std::size_t n = 4 * kMiB;
    Device d(n);
    Bytes host(n), got(n);
    cudaStream_t captured;
    CHECK(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    add_one_to(d.p, n);
    for (int i = 0; i < 16; ++i) {
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
    }
    Device other(n);
    for (int round = 0; round < 4; ++round) {
        fill(host.data(), n, round);
        // NVIDIA's driver lets no capture begin before such a copy has ended: nothing here may wait for the capture.
        CHECK(cudaLaunchHostFunc(
            nullptr, [](void*) { usleep(60000); }, nullptr));
        std::atomic<pid_t> copying{0};
        std::thread copies([&] {
            copying = gettid();
            if (round % 2 == 0) {
                CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
            } else {
                CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
            }
        });
        wait_until_it_waits(copying);
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
        copies.join();
        add_one_to(other.p, n, captured);
        CHECK(cudaStreamEndCapture(captured, &graph));
        CHECK(cudaGraphDestroy(graph));
        if (round % 2 != 0) WANT(is(got.data(), n, round - 1));
    }
}

static void child() {
    const std::size_t n = 4 * kMiB;
    Device d(n);
    Bytes host(n), got(n);
    for (int round = 0; round < 3; ++round) {
        fill(host.data(), n, round);
        CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
        const pid_t pid = fork();
        if (pid == 0) {
            std::memcpy(got.data(), host.data(), n);
            std::_Exit(is(got.data(), n, round) ? 17 : 1);
        }
        int status = 0;
        WANT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 17);
        CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
        WANT(is(got.data(), n, round));
    }
}

static void reset() {
    const std::size_t n = 4 * kMiB;
    for (int round = 0; round < 4; ++round) {
        for (int device = 0; device < 2; ++device) {
            CHECK(cudaSetDevice(device));
            Device d(n);
            Bytes host(n), got(n);
            fill(host.data(), n, round);
            CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
            CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
            WANT(is(got.data(), n, round));
        }
        CHECK(cudaSetDevice(round % 2));
        CHECK(cudaDeviceReset());
    }
    // Memory of one device while the other is current.
    CHECK(cudaSetDevice(0));
    Device d(n);
    CHECK(cudaSetDevice(1));
    Bytes host(n), got(n);
    fill(host.data(), n, 9);
    CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
    CHECK(cudaMemcpy(got.data(), d.p, n, to_host));
    WANT(is(got.data(), n, 9));
}

// Source and destination that the program's own handler makes accessible, on whatever thread the access happens.
static unsigned char* guarded = nullptr;
static std::atomic<int> handled{0};
static void own_handler() {
    const std::size_t n = 4 * kMiB;
    guarded = static_cast<unsigned char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill(guarded, n, 21);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
        auto* page =
            reinterpret_cast<unsigned char*>(reinterpret_cast<std::size_t>(info->si_addr) & ~std::size_t{0xffff});
        if (page < guarded || page >= guarded + 4 * kMiB) _exit(99);
        mprotect(page, 0x10000, PROT_READ | PROT_WRITE);
        ++handled;
    };
    sigaction(SIGSEGV, &action, nullptr);
    Device d(n);
    for (int round = 0; round < 3; ++round) {
        mprotect(guarded, n, PROT_NONE);
        CHECK(cudaMemcpy(d.p, guarded, n, to_device));
        std::memset(guarded, 0, n);
        mprotect(guarded, n, PROT_READ);
        CHECK(cudaMemcpy(guarded, d.p, n, to_host));
        WANT(is(guarded, n, 21));
    }
    WANT(handled.load() >= 3 * 64);
    munmap(guarded, n);
}

// From a static object's destructor, after main.
struct Last {
    unsigned char* device = nullptr;
    ~Last() {
        if (device == nullptr) return;
        const std::size_t n = 4 * kMiB;
        Bytes got(n);
        const auto result = cudaMemcpy(got.data(), device, n, to_host);
        std::printf("%s\n", result == cudaErrorCudartUnloading || (result == cudaSuccess && is(got.data(), n, 3))
                                ? "right"
                                : "WRONG");
    }
} last;
static void at_exit() {
    const std::size_t n = 4 * kMiB;
    CHECK(cudaMalloc(&last.device, n));
    Bytes host(n);
    fill(host.data(), n, 3);
    CHECK(cudaMemcpy(last.device, host.data(), n, to_device));
}

// A kernel that fails: the copy behind it says so.
__global__ void fail() { asm volatile("trap;"); }
static void after_error() {
    const std::size_t n = 4 * kMiB;
    Device d(n);
    Bytes host(n);
    for (int i = 0; i < 3; ++i) CHECK(cudaMemcpy(d.p, host.data(), n, to_device));
    fail<<<1, 1>>>();
    for (int i = 0; i < 3; ++i) std::printf("%s\n", cudaGetErrorName(cudaMemcpy(host.data(), d.p, n, to_host)));
}

constexpr Case cases[] = {{"sizes", sizes},
                          {"smallest", smallest},
                          {"sum", sum},
                          {"order", order},
                          {"busy", busy},
                          {"waits_for_earlier", waits_for_earlier},
                          {"threads", threads},
                          {"behind_callback", behind_callback},
                          {"known_memory", known_memory},
                          {"too_long", too_long},
                          {"capture", capture},
                          {"capture_abandoned", capture_abandoned},
                          {"capture_meanwhile", capture_meanwhile},
                          {"own_handler", own_handler},
                          {"child", child},
                          {"reset", reset},
                          {"at_exit", at_exit},
                          {"after_error", after_error}};

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
