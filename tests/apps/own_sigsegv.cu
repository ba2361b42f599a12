// SPDX-License-Identifier: MIT
// A program with a SIGSEGV handler of its own, as garbage collectors and persistent heaps have: it opens pages of its
// own when they are touched, and leaves by siglongjmp when a page may not be touched at all. Between those faults the
// program uses objects that the GPU writes.
#include <csetjmp>
#include <csignal>

#include <sys/mman.h>
#include <unistd.h>

#include "app.h"

static unsigned char* pages;
static std::size_t page_size;
constexpr std::size_t page_count = 8;  // of which the last is never opened
static sigjmp_buf way_out;
static volatile sig_atomic_t opened, refused;

static void on_fault(int number, siginfo_t* info, void*) {
    unsigned char* address = static_cast<unsigned char*>(info->si_addr);
    if (number != SIGSEGV || address < pages || address >= pages + page_count * page_size) _exit(3);
    const std::size_t page = static_cast<std::size_t>(address - pages) / page_size;
    if (page == page_count - 1) {
        refused = refused + 1;
        siglongjmp(way_out, 1);
    }
    opened = opened + 1;
    if (mprotect(pages + page * page_size, page_size, PROT_READ | PROT_WRITE) != 0) _exit(4);
}

static void install() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, nullptr) != 0) std::exit(5);
}

__global__ void advance(unsigned* data, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = data[i] * 48271u + 1;
}

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 9001);
    page_size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* mapped = mmap(nullptr, page_count * page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return 2;
    pages = static_cast<unsigned char*>(mapped);

    install();  // before the first CUDA call
    Object<unsigned> data = allocate<unsigned>(n);
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned>(i);

    Checksum checksum;
    volatile unsigned back = 0;
    for (unsigned round = 0; round < page_count - 1; ++round) {
        to_gpu(data);
        advance<<<blocks_for(n, 128), 128>>>(data.gpu, n);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        // From an object into a page of our own, and back: either side may fault.
        to_cpu(data);
        for (std::size_t i = 0; i < 64; ++i) {
            pages[round * page_size + i] = static_cast<unsigned char>(data[i * 131 % n]);
            data[i * 131 % n] += pages[round * page_size + 63 - i];
        }
        checksum.add(pages + round * page_size, page_size);
        if (sigsetjmp(way_out, 1) == 0) {
            pages[(page_count - 1) * page_size] = static_cast<unsigned char>(data[round]);
            return 6;  // not reached: the page is never opened
        }
        back = back + 1;
        if (round == 3) install();  // once more, now that CUDA is in use
    }
    checksum.add(data.cpu, n * sizeof(unsigned));

    struct sigaction now = {};
    const bool ours = sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction == on_fault;
    std::printf("own_sigsegv n=%zu opened=%d refused=%d back=%u ours=%d\n", n, static_cast<int>(opened),
                static_cast<int>(refused), back, ours);
    checksum.print();
    release(data);
    munmap(pages, page_count * page_size);
    return !ours;
}
