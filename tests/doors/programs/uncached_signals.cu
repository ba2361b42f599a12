// SPDX-License-Identifier: MIT
// Signals, cancellation and traps of a program whose threads access memory of which no host copy is kept: they are what
// they would be with any other memory. Linked with libcuda too.
#include <cuda.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <immintrin.h>
#include <atomic>
#include <csetjmp>
#include <csignal>

#include "exported.h"

// What an access may use for itself.
constexpr int used_signals[] = {SIGFPE, SIGBUS, SIGTRAP};

static volatile sig_atomic_t handled;
static void count_signal(int) { handled = handled + 1; }

static void set_action(int signal, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(signal, &action, nullptr);
}
static bool action_is(int signal, void (*handler)(int)) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    return now.sa_handler == handler;
}

// So that threads meet anywhere in what they do. One goes on alone for a while.
static void pause_somehow(Random& random) {
    usleep(1);
    for (auto wait = random.below(2000); wait > 0; --wait) _mm_pause();
}

// A thread that reads a word of such memory again and again.
class Reader {
public:
    Reader() : thread_(start(*this)) { turn(); }
    void operator()() {
        while (!over_) {
            wrong_ += load(data_.gpu + 7) != data_.model[7];
            ++reads_;
            if (!plain) sched_yield();
        }
    }
    // Until it has begun to read and ended.
    void turn() const {
        for (const unsigned before = reads_; reads_ - before < 2;) sched_yield();
    }
    void stop() {
        over_ = true;
        pthread_join(thread_, nullptr);
        say("reader: %u wrong\n", wrong_);
    }
    const Data& data() const { return data_; }

private:
    Data data_ = exported();
    unsigned wrong_ = 0;
    std::atomic<unsigned> reads_{0};
    std::atomic<bool> over_{false};
    pthread_t thread_;
};

// Threads are cancelled while they access it; others go on.
static std::atomic<unsigned> loads;
static void cancelled(int, char**) {
    Reader reader;
    static unsigned on_host;
    unsigned* const word = plain ? reader.data().gpu + 9 : &on_host;
    Random random(7);
    for (unsigned round = 0; round < 100; ++round) {
        const unsigned before = loads;
        pthread_t thread;
        pthread_create(
            &thread, nullptr,
            [](void* word) -> void* {
                pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
                for (unsigned sum = 0;; ++loads) sum += *static_cast<volatile unsigned*>(word);
            },
            word);
        while (loads - before < 2) sched_yield();
        pause_somehow(random);
        pthread_cancel(thread);
        pthread_join(thread, nullptr);
        reader.turn();
    }
    reader.stop();
}

// Signals that the program ignores reach a thread while another one accesses it.
static void ignored(int, char**) {
    Reader reader;
    for (const int signal : used_signals) set_action(signal, SIG_IGN);
    Random random(23);
    for (unsigned round = 0; round < 1000; ++round) {
        pause_somehow(random);
        for (unsigned kill = 0; kill < 15; ++kill) pthread_kill(pthread_self(), used_signals[kill % 3]);
    }
    reader.stop();
}

// It says so again and again.
static void ignored_anew(int, char**) {
    Reader reader;
    Random random(11);
    for (unsigned round = 0; round < 1200; ++round) {
        for (const int signal : used_signals) set_action(signal, SIG_IGN);
        pause_somehow(random);
    }
    reader.stop();
}

// A signal is blocked and pending while its thread makes an access.
static void pending(int, char**) {
    Data data = exported();
    unsigned wrong = 0;
    for (const auto handler : {SIG_DFL, count_signal}) {
        for (const int signal : used_signals) {
            set_action(signal, handler);
            handled = 0;
            sigset_t set, before, now;
            sigemptyset(&set);
            sigaddset(&set, signal);
            pthread_sigmask(SIG_BLOCK, &set, &before);
            raise(signal);
            wrong += load(data.gpu + 100) != data.model[100];
            store(data.gpu + 101, 3u);
            sigpending(&now);
            const timespec at_once{0, 0};
            const bool pends = sigismember(&now, signal) == 1;
            say("pending %d, handled %d, got %d\n", pends, static_cast<int>(handled),
                sigtimedwait(&set, nullptr, &at_once) == signal);
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            set_action(signal, SIG_DFL);
        }
    }
    say("%u wrong\n", wrong);
}

// Actions that other threads set meanwhile are set, and stay so.
static void actions(int, char**) {
    Reader reader;
    Random random(13);
    for (const int signal : used_signals) {
        unsigned wrong = 0;
        for (unsigned round = 0; round < 300; ++round) {
            const auto handler = round % 3 == 0 ? SIG_DFL : round % 3 == 1 ? SIG_IGN : count_signal;
            pause_somehow(random);
            set_action(signal, handler);
            wrong += !action_is(signal, handler);
            pause_somehow(random);
            for (unsigned query = 0; query < 10; ++query) wrong += !action_is(signal, handler);
        }
        reader.turn();
        say("%u wrong\n", wrong);
        set_action(signal, SIG_DFL);
    }
    reader.stop();
}

// No trap of an access is the program's.
static void no_traps(int, char**) {
    Reader reader;
    Random random(17);
    for (unsigned round = 0; round < 1000; ++round) {
        pause_somehow(random);
        set_action(SIGTRAP, count_signal);
    }
    reader.turn();
    say("%d wrong\n", static_cast<int>(handled));
    reader.stop();
    raise(SIGTRAP);
    say("handled %d\n", static_cast<int>(handled));
}

// Forked children have the program's actions.
static void children(int, char**) {
    Reader reader;
    Random random(19);
    set_action(SIGTRAP, SIG_IGN);
    set_action(SIGFPE, count_signal);
    set_action(SIGBUS, SIG_IGN);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 200; ++round) {
        pause_somehow(random);
        const pid_t child = fork();
        if (child == 0) {
            _exit(!action_is(SIGTRAP, SIG_IGN) + !action_is(SIGFPE, count_signal) + !action_is(SIGBUS, SIG_IGN));
        }
        int status = 0;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    say("%u wrong\n", wrong);
    reader.stop();
}

// A handler whose stack is not there ends the process.
static void no_stack(int, char**) {
    Data data = exported();
    say("%u\n", load(data.gpu));
    const pid_t child = fork();
    if (child == 0) {
        stack_t stack = {};
        stack.ss_size = 1 << 16;
        stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sigaltstack(&stack, nullptr);
        struct sigaction action = {};
        action.sa_handler = [](int) { _exit(1); };
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR1, &action, nullptr);
        raise(SIGUSR1);
        _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    CHECK(cudaFree(data.gpu));
}

// The program steps through its own instructions, one of which accesses it.
static volatile sig_atomic_t steps;
static std::uintptr_t stepped[16];
__attribute__((noinline)) static unsigned step_through(const unsigned* word) {
    unsigned value = 0;
    asm volatile(
        "leaq -256(%%rsp), %%rsp\n\t"
        "pushfq\n\t"
        "orq $0x100, (%%rsp)\n\t"
        "popfq\n\t"
        "nop\n\t"
        "movl (%1), %0\n\t"
        "nop\n\t"
        "pushfq\n\t"
        "andq $~0x100, (%%rsp)\n\t"
        "popfq\n\t"
        "nop\n\t"
        "leaq 256(%%rsp), %%rsp"
        : "=&r"(value)
        : "r"(word)
        : "memory", "cc");
    return value;
}
static void own_steps(int, char**) {
    Data data = exported();
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
        if (steps < 16) stepped[steps] = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
        steps = steps + 1;
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    static unsigned on_host = 4;
    store(data.gpu + 100, 4u);
    step_through(&on_host);
    const int wanted = steps;
    std::uintptr_t places[16];
    std::memcpy(places, stepped, sizeof places);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 10; ++round) {
        steps = 0;
        wrong += step_through(plain ? data.gpu + 100 : &on_host) != 4;
        wrong += steps != wanted || std::memcmp(places, stepped, sizeof places) != 0;
    }
    say("%d steps, %u wrong\n", wanted, wrong);
}

// An instruction that goes on to itself until what it reads is something else: jumps by way of the memory.
static void jump_to_itself(int, char**) {
    Data data = exported();
    static std::uintptr_t on_host[1];
    auto* const target = plain ? reinterpret_cast<std::uintptr_t*>(data.gpu + 1000) : on_host;
    for (unsigned round = 0; round < 3; ++round) {
        std::uintptr_t out_of_it = 0;
        std::atomic<unsigned> jumps{0};
        auto work = [&] {
            asm volatile(
                "leaq 1f(%%rip), %%rax\n\t"
                "movq %%rax, (%0)\n\t"
                "leaq 2f(%%rip), %%rax\n\t"
                "movq %%rax, (%1)\n\t"
                "movl $1, (%2)\n\t"
                "1: jmp *(%0)\n\t"
                "2:"
                :
                : "r"(target), "r"(&out_of_it), "r"(&jumps)
                : "rax", "memory");
        };
        const pthread_t thread = start(work);
        while (jumps == 0) sched_yield();
        // Until it has run for another 2 ms.
        clockid_t clock;
        pthread_getcpuclockid(thread, &clock);
        const auto run = [&] {
            timespec now;
            clock_gettime(clock, &now);
            return now.tv_sec * 1000000000l + now.tv_nsec;
        };
        for (const auto before = run(); run() - before < 2000000;) sched_yield();
        if (plain) {
            CHECK(cudaMemcpy(target, &out_of_it, sizeof out_of_it, cudaMemcpyHostToDevice));
        } else {
            *const_cast<volatile std::uintptr_t*>(target) = out_of_it;
        }
        pthread_join(thread, nullptr);
    }
    say("left it\n");
}

// Memory that not even the device may write.
static sigjmp_buf back_there;
static void* volatile faulted;
static void read_only(int, char**) {
    constexpr std::size_t size = 2 << 20;
    CHECK(cudaFree(nullptr));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = access.location;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr place;
    CHECK_CU(cuMemCreate(&handle, size, &properties, 0));
    CHECK_CU(cuMemAddressReserve(&place, size, 0, 0, 0));
    CHECK_CU(cuMemMap(place, size, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(place, size, &access, 1));
    void* const memory =
        plain ? reinterpret_cast<void*>(place) : mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const word = static_cast<volatile unsigned*>(memory) + 5000;
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
        faulted = info->si_addr;
        siglongjmp(back_there, 1);
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 6; ++round) {
        wrong += *word != 0;
        faulted = nullptr;
        if (sigsetjmp(back_there, 1) == 0) {
            if (round % 2 == 0) *word = 5;
            if (round % 2 == 1) asm volatile("lock addl $1, (%0)" : : "r"(word) : "memory", "cc");
            say("stored\n");
        }
        wrong += faulted != const_cast<unsigned*>(word);
    }
    Data data(1000);
    wrong += data.work(1) + data.check_all();
    say("%u wrong\n", wrong);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"cancelled", cancelled},       {"ignored", ignored},
                                 {"ignored_anew", ignored_anew}, {"pending", pending},
                                 {"actions", actions},           {"no_traps", no_traps},
                                 {"no_stack", no_stack},         {"children", children},
                                 {"own_steps", own_steps},       {"jump_to_itself", jump_to_itself},
                                 {"read_only", read_only}};
    return run_case(cases, argc, argv);
}
