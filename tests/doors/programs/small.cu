// SPDX-License-Identifier: MIT
// A short program for the tests of options and reports: `small FORM work` uses two arrays, `small FORM idle` no CUDA at
// all, `small FORM device_only` CUDA, but nothing that the CPU touches, `small FORM sites` touches from three functions
// whose shares are known, `small FORM strided` reads one word in 160,000 bytes.
#include <sys/resource.h>
#include <sys/wait.h>

#include "program.h"

static void work(int, char**) {
    Data first(600'000), second(530'000);  // objects of their own
    unsigned wrong = 0;
    for (unsigned round = 0; round < 4; ++round) wrong += first.work(round) + second.work(round);
    say("%u wrong\n", wrong + first.check_all() + second.check_all());
    CHECK(cudaFree(second.gpu));
}
static void idle(int, char**) { say("no CUDA here\n"); }
static void device_only(int, char**) {
    unsigned* array = nullptr;
    CHECK(cudaMalloc(&array, 4000));
    CHECK(cudaMemset(array, 0, 4000));
    advance<><<<8, 128>>>(array, 1000, 3);
    CHECK(cudaDeviceSynchronize());
    unsigned value = 0;
    CHECK(cudaMemcpy(&value, array + 5, sizeof value, cudaMemcpyDeviceToHost));
    say("value %u\n", value);
}
// The CPU writes behind an allocation, in the page that its end lies in, as it may in host memory.
static void past_the_end(int, char**) {
    unsigned char* bytes = nullptr;
    CHECK(cudaMalloc(&bytes, 100));
    if (plain) *const_cast<volatile unsigned char*>(bytes + 3000) = 1;
    CHECK(cudaFree(bytes));
}
// Linked with -rdynamic, so that the loader knows the first two by name.
namespace sites {
__attribute__((noinline)) unsigned read_all(const Data& data) {
    unsigned wrong = 0;
    for (unsigned i = 0; i < data.count; ++i) wrong += data.get(i) != data.model[i];
    return wrong;
}
__attribute__((noinline)) unsigned read_first(const Data& data) { return data.get(0) != data.model[0]; }
}  // namespace sites
__attribute__((noinline)) static void write_first(Data& data) { data.set(0, data.model[0] + 1); }
static void sites_of_faults(int, char**) {
    Data data(100000);
    unsigned wrong = 0;
    for (int round = 0; round < 3; ++round) {
        data.launch();
        CHECK(cudaDeviceSynchronize());
        if (round < 2) {
            wrong += sites::read_all(data);
        } else {
            wrong += sites::read_first(data);
            write_first(data);
        }
    }
    say("%u wrong\n", wrong);
}
static void strided(int, char**) {
    Data data(4u << 20);
    unsigned wrong = 0;
    for (int round = 0; round < 2; ++round) {
        data.launch();
        CHECK(cudaDeviceSynchronize());
        for (unsigned i = 0; i < data.count; i += 40000) wrong += data.get(i) != data.model[i];
    }
    say("%u wrong\n", wrong);
}
// The child of a process that used CUDA writes no report.
static void forked(int, char**) {
    Data data(3000);
    say("%u wrong\n", data.work(1));
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    waitpid(child, nullptr, 0);
}
// From here on its files may not grow beyond 100 bytes.
static void limited(int, char**) {
    Data data(3000);
    say("%u wrong\n", data.work(1));
    const rlimit most{100, 100};
    setrlimit(RLIMIT_FSIZE, &most);
}
static void before_cuda(int, char**) {
    say("not lost\n");
    std::printf("not lost either\n");
    say("malloc follows\n");
    void* memory = nullptr;
    say("malloc %d\n", cudaMalloc(&memory, 100));
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"work", work},
                                 {"idle", idle},
                                 {"device_only", device_only},
                                 {"past_the_end", past_the_end},
                                 {"sites", sites_of_faults},
                                 {"strided", strided},
                                 {"limited", limited},
                                 {"forked", forked},
                                 {"before_cuda", before_cuda}};
    return run_case(cases, argc, argv);
}
