// SPDX-License-Identifier: MIT
// A host function uses memory while a kernel is under way that writes beside it. Another thread that wants the kernel's
// bytes has to wait for them, however it asks.
#include <sched.h>

#include <atomic>

#include "program.h"

namespace {

constexpr std::size_t kSmall = 4096;  // several share a block
constexpr unsigned char kBefore = 6, kByKernel = 5, kByFunction = 1;

__global__ void write_when(volatile int* go, unsigned char* to) {
    while (*go == 0) {
    }
    *to = kByKernel;
}

unsigned char* allocated(std::size_t bytes) {
    unsigned char* memory = nullptr;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemset(memory, kBefore, bytes));
    return memory;
}
cudaStream_t stream() {
    cudaStream_t made = nullptr;
    CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
}

// A kernel that is to write to `written`, and a host function that has written to `used` and goes on.
class UnderWay {
public:
    UnderWay(unsigned char* written, unsigned char* used) {
        CHECK(cudaMallocHost(const_cast<int**>(&go_), sizeof(int)));
        CHECK(cudaMallocHost(&copied_, 1));
        // All of it once, so that nothing is loaded while the kernel waits.
        *go_ = 1;
        write_when<<<1, 1, 0, kernels_>>>(go_, written);
        copy_out(used);
        CHECK(cudaMemset(written, kBefore, 1));
        CHECK(cudaDeviceSynchronize());
        *go_ = 0;
        write_when<<<1, 1, 0, kernels_>>>(go_, written);
        used_ = used;
        const auto function = [](void* of) {
            auto& self = *static_cast<UnderWay*>(of);
            if (plain) self.used_[0] = kByFunction;
            self.runs_ = true;
            while (!self.may_end_) sched_yield();
        };
        CHECK(cudaLaunchHostFunc(functions_, function, this));
        while (!runs_) sched_yield();
    }
    void copy_out(const unsigned char* from) {
        CHECK(cudaMemcpyAsync(copied_, from, 1, cudaMemcpyDeviceToHost, copies_));
    }
    void let_kernel_go() { *go_ = 1; }
    void wait_for_kernel() const { CHECK(cudaStreamSynchronize(kernels_)); }
    void let_function_end() { may_end_ = true; }
    // Both go on when this thread has begun to ask.
    template <class Ask>
    void meanwhile(Ask&& ask) {
        std::atomic<bool> asks{false};
        auto let_go = [&] {
            while (!asks) sched_yield();
            for (int i = 0; i < 100; ++i) sched_yield();  // time for who does not wait
            let_kernel_go();
            let_function_end();
        };
        const pthread_t lets_go = start(let_go);
        asks = true;
        ask();
        pthread_join(lets_go, nullptr);
        CHECK(cudaDeviceSynchronize());
    }

private:
    const cudaStream_t kernels_ = stream(), functions_ = stream(), copies_ = stream();
    volatile int* go_ = nullptr;
    unsigned char *copied_ = nullptr, *used_ = nullptr;
    std::atomic<bool> runs_{false}, may_end_{false};
};

void read_beside(bool copied) {
    auto *const other = allocated(kSmall), *const used = allocated(kSmall);
    UnderWay under_way(other, used);
    if (copied) under_way.copy_out(used);
    unsigned char first = 0;
    under_way.meanwhile([&] {
        if (plain) first = load(other);
    });
    if (!plain) first = load(other);
    say("%d\n", first);
}
void read_beside(int, char**) { read_beside(false); }
void copied_beside(int, char**) { read_beside(true); }

// By a call that neither traps nor copies where the bytes are at hand.
void sent_beside(int, char**) {
    auto *const other = allocated(kSmall), *const used = allocated(kSmall);
    int ends[2];
    unsigned char first = 0;
    UnderWay under_way(other, used);
    if (pipe(ends) != 0) std::exit(1);
    under_way.meanwhile([&] {
        if (plain && write(ends[1], other, 1) != 1) std::exit(1);
    });
    if (plain ? read(ends[0], &first, 1) != 1 : (first = load(other), false)) std::exit(1);
    say("%d\n", first);
}

// What is stored comes after the kernel that was launched before, also where it is what the memory held.
void stored_beside(int, char**) {
    auto *const other = allocated(kSmall), *const used = allocated(kSmall);
    int ends[2];
    UnderWay under_way(other, used);
    if (pipe(ends) != 0 || write(ends[1], &kBefore, 1) != 1) std::exit(1);
    under_way.meanwhile([&] {
        if (plain && read(ends[0], other, 1) != 1) std::exit(1);
    });
    if (!plain) store(other, kBefore);
    say("%d\n", load(other));
}

// A copy out of the very memory that the function uses, and whose next byte the kernel writes.
void copied_itself(int, char**) {
    auto* const used = allocated(std::size_t{4} << 20);
    UnderWay under_way(used + 1, used);
    under_way.copy_out(used);
    under_way.let_kernel_go();
    under_way.wait_for_kernel();
    under_way.let_function_end();
    CHECK(cudaDeviceSynchronize());
    say("%d\n", load(used + 1));
    say("%d\n", plain ? load(used) : kByFunction);
}

}  // namespace

int main(int argc, char** argv) {
    static const Case cases[] = {{"read_beside", read_beside},
                                 {"copied_beside", copied_beside},
                                 {"sent_beside", sent_beside},
                                 {"stored_beside", stored_beside},
                                 {"copied_itself", copied_itself}};
    return run_case(cases, argc, argv);
}
