// SPDX-License-Identifier: MIT
// CPU accesses to device memory that was exported, so that others may write it at any time: every instruction sees the
// device's bytes of its moment, and the program's signals and threads are what they were.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <immintrin.h>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <vector>

#include "exported.h"

// Kernels and CPU accesses take turns; nothing but the launches' order says when.
static void turns(int, char**) {
    Data data = exported();
    unsigned wrong = 0;
    for (unsigned round = 0; round < 20; ++round) {
        data.launch();
        wrong += data.touch(round);
    }
    std::vector<unsigned> all(many);
    CHECK(cudaMemcpy(all.data(), data.gpu, many * 4, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < many; ++i) wrong += all[i] != data.model[i];
    say("%u wrong\n", wrong);
    CHECK(cudaMemset(data.gpu, 7, many * 4));
    say("%08x\n", load(data.gpu + 77));
    CHECK(cudaFree(data.gpu));
}

// Instructions of all kinds.
static void instructions(int, char**) {
    Data data = exported(), object(5000);
    auto* const bytes = reinterpret_cast<char*>(data.gpu);
    std::vector<char> host(64 << 10);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i * 7 + i / 256);
    Checksum sum;
    std::vector<char> back(128 << 10);
    if (plain) {
        char* to = bytes + 100;
        const char* from = host.data();
        std::size_t count = 9000;  // over page borders
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        say("moved %td, left %zu\n", to - bytes, count);
        from = bytes + 90;
        to = bytes + 20000;
        count = 1200;
        asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        to = bytes + 40000;
        count = 3000;
        asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(9) : "memory");
        // Of all widths; what is left of an element at a page's end is one instruction.
        const auto repeat = [&](auto run, std::size_t at, std::size_t bytes_from, std::size_t elements) {
            to = bytes + at;
            from = bytes + bytes_from;
            count = elements;
            run();
            say("to %td, from %td\n", to - bytes, from - bytes);
        };
        repeat([&] { asm volatile("rep movsw" : "+D"(to), "+S"(from), "+c"(count) : : "memory"); }, 65001, 200, 3000);
        repeat([&] { asm volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(count) : : "memory"); }, 73001, 302, 2500);
        repeat([&] { asm volatile("rep stosw" : "+D"(to), "+c"(count) : "a"(0x1234) : "memory"); }, 90001, 0, 2500);
        repeat([&] { asm volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(0x1234567) : "memory"); }, 96002, 0, 1200);
        repeat([&] { asm volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(7ull << 40) : "memory"); }, 102003, 0, 600);
        repeat(
            [&] {
                asm volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
            },
            120000, 9000, 90);
        // Over a page border, and between this memory and an object.
        for (int k = 0; k < 4; ++k) {
            auto* const at = reinterpret_cast<__m128i*>(bytes + 4096 * (k + 12) - 5);
            _mm_storeu_si128(at, _mm_loadu_si128(reinterpret_cast<const __m128i*>(host.data() + k)));
        }
        auto* target = reinterpret_cast<char*>(object.gpu) + 50;
        from = bytes + 99;
        count = 100;
        asm volatile("rep movsb" : "+D"(target), "+S"(from), "+c"(count) : : "memory");
        target = bytes + 60000;
        from = reinterpret_cast<char*>(object.gpu) + 52;
        count = 90;
        asm volatile("rep movsb" : "+D"(target), "+S"(from), "+c"(count) : : "memory");
        auto* const words = reinterpret_cast<std::atomic<unsigned>*>(data.gpu + 20000);
        words->store(3);
        words->fetch_add(4);
        unsigned expected = 7;
        words->compare_exchange_strong(expected, 50);
        words->exchange(words->load() + 1);
        asm volatile("pushq (%0)\n\tpopq 16(%0)" : : "r"(data.gpu + 20000) : "memory");
        asm volatile("btsq $40, (%0)" : : "r"(data.gpu + 20010) : "memory", "cc");
    } else {
        const auto put = [&](std::size_t to, const void* from, std::size_t count) {
            CHECK(cudaMemcpy(bytes + to, from, count, cudaMemcpyDefault));
        };
        put(100, host.data(), 9000);
        say("moved %d, left 0\n", 9100);
        put(20000, bytes + 90, 9600);
        CHECK(cudaMemset(bytes + 40000, 9, 3000));
        const auto moved = [](std::size_t to, std::size_t from) { say("to %zu, from %zu\n", to, from); };
        put(65001, bytes + 200, 6000);
        moved(71001, 6200);
        put(73001, bytes + 302, 10000);
        moved(83001, 10302);
        const auto fill = [&](std::size_t at, auto value, std::size_t elements) {
            std::vector<char> filled(elements * sizeof value);
            for (std::size_t i = 0; i < elements; ++i) std::memcpy(&filled[i * sizeof value], &value, sizeof value);
            put(at, filled.data(), filled.size());
            moved(at + filled.size(), 0);
        };
        fill(90001, std::uint16_t{0x1234}, 2500);
        fill(96002, std::uint32_t{0x1234567}, 1200);
        fill(102003, std::uint64_t{7} << 40, 600);
        put(119911, bytes + 8911, 90);
        moved(119910, 8910);
        for (int k = 0; k < 4; ++k) put(4096 * (k + 12) - 5, host.data() + k, 16);
        CHECK(cudaMemcpy(reinterpret_cast<char*>(object.gpu) + 50, bytes + 99, 100, cudaMemcpyDefault));
        put(60000, reinterpret_cast<char*>(object.gpu) + 52, 90);
        unsigned words[20];
        CHECK(cudaMemcpy(words, data.gpu + 20000, sizeof words, cudaMemcpyDefault));
        words[0] = 51;
        words[4] = words[0];
        words[5] = words[1];
        std::uint64_t bits;
        std::memcpy(&bits, words + 10, 8);
        bits |= std::uint64_t{1} << 40;
        std::memcpy(words + 10, &bits, 8);
        put(80000, words, sizeof words);
    }
    CHECK(cudaMemcpy(back.data(), bytes, back.size(), cudaMemcpyDefault));
    sum.add(back.data(), back.size());
    CHECK(cudaMemcpy(back.data(), data.gpu + 20000, 80, cudaMemcpyDefault));
    sum.add(back.data(), 80);
    CHECK(cudaMemcpy(back.data(), object.gpu, 400, cudaMemcpyDefault));
    sum.add(back.data(), 400);
    say("checksum %016llx\n", static_cast<unsigned long long>(sum.value()));
}

// Threads that change words side by side, while a signal interrupts them again and again, whose handler accesses the
// same memory.
static void threads(int, char**) {
    Data data = exported();
    store_in_handler(data);
    std::atomic<int> counting{3};
    auto count = [&](unsigned first) {
        for (unsigned round = 0; round < 100; ++round) {
            for (unsigned i = first; i < first + 3; ++i) store(data.gpu + i, load(data.gpu + i) + i);
        }
        --counting;
    };
    for (unsigned i = 0; i < 16; ++i) store(data.gpu + i, 0u);
    auto a = [&] { count(0); };
    auto b = [&] { count(4); };
    auto c = [&] { count(8); };
    const pthread_t running[] = {start(a), start(b), start(c)};
    // Not to the process: the driver's own threads would take them, too.
    for (int round = 0; round < 60; ++round) {
        const int before = times_handled;
        pthread_kill(running[round % 3], SIGUSR1);
        while (times_handled == before && counting != 0) sched_yield();
    }
    for (const auto thread : running) pthread_join(thread, nullptr);
    store(data.gpu + 3000, 12u);
    unsigned wrong = load(data.gpu + 3000) != 12;
    for (unsigned i : {0u, 1u, 2u, 4u, 5u, 6u, 8u, 9u, 10u}) wrong += load(data.gpu + i) != 100 * i;
    say("%u wrong\n", wrong);
}

// The program's own SIGTRAP, masks and faults are what they were.
static volatile sig_atomic_t traps;
static sigjmp_buf back_there;
static void* volatile faulted;
static void signals(int, char**) {
    Data data = exported();
    struct sigaction action = {}, now = {};
    action.sa_handler = [](int) { traps = traps + 1; };
    sigaction(SIGTRAP, &action, nullptr);
    sigset_t mask, before, after;
    sigfillset(&mask);
    sigdelset(&mask, SIGSEGV);
    sigprocmask(SIG_SETMASK, &mask, &before);
    store(data.gpu + 9, 4u);
    say("read %u\n", load(data.gpu + 9));
    sigprocmask(SIG_SETMASK, &before, &after);
    for (const int signal : {SIGTRAP, SIGUSR1, SIGSEGV, SIGSTKFLT}) say("blocked %d\n", sigismember(&after, signal));
    sigaction(SIGTRAP, nullptr, &now);
    say("kept %d\n", now.sa_handler == action.sa_handler);
    raise(SIGTRAP);
    asm volatile("int3");
    say("traps %d\n", static_cast<int>(traps));
    // A copy from there to nowhere.
    struct sigaction fault = {};
    fault.sa_sigaction = [](int, siginfo_t* info, void*) {
        faulted = info->si_addr;
        siglongjmp(back_there, 1);
    };
    fault.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &fault, nullptr);
    void* const nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 3; ++round) {
        if (sigsetjmp(back_there, 1) == 0) {
            if (plain) {
                const void* from = data.gpu + 9;
                void* to = nowhere;
                asm volatile("movsl" : "+D"(to), "+S"(from) : : "memory");
            } else {
                *static_cast<volatile unsigned*>(nowhere) = 1;
            }
            say("not reached\n");
        }
        say("faulted there %d\n", faulted == nowhere);
        say("read %u\n", load(data.gpu + 9));
    }
    sigprocmask(SIG_SETMASK, nullptr, &after);
    for (const int signal : {SIGTRAP, SIGUSR1, SIGSEGV}) say("blocked %d\n", sigismember(&after, signal));
    // A division by what lies there, which is zero.
    struct sigaction division = {};
    division.sa_handler = [](int) { siglongjmp(back_there, 2); };
    sigaction(SIGFPE, &division, nullptr);
    store(data.gpu + 20, 0u);
    for (int round = 0; round < 2; ++round) {
        const int how = sigsetjmp(back_there, 1);
        if (how == 0) {
            unsigned zero = 0, low = 7, high = 0;
            const unsigned* const by = plain ? data.gpu + 20 : &zero;
            asm volatile("divl (%2)" : "+a"(low), "+d"(high) : "r"(by) : "memory", "cc");
            say("not reached\n");
        }
        say("divided %d, read %u\n", how, load(data.gpu + 9));
    }
    sigprocmask(SIG_SETMASK, nullptr, &after);
    say("blocked %d\n", sigismember(&after, SIGUSR1));
    // Stacks that are small.
    static char stack[32 << 10];
    const stack_t alternate{stack, 0, sizeof stack};
    sigaltstack(&alternate, nullptr);
    fault.sa_flags |= SA_ONSTACK;
    sigaction(SIGSEGV, &fault, nullptr);
    struct sigaction user = {};
    user.sa_handler = [](int) { say("in a handler %u\n", load(stored_to->gpu + 9)); };
    user.sa_flags = SA_ONSTACK;
    stored_to = &data;
    sigaction(SIGUSR1, &user, nullptr);
    raise(SIGUSR1);
    store(data.gpu + 9, 6u);
    say("read %u\n", load(data.gpu + 9));
    sigaction(SIGTRAP, nullptr, &now);
    say("kept %d\n", now.sa_handler == action.sa_handler);
}

// A host function, while the device is at work.
static void host_functions(int, char**) {
    Data data = exported(), other(1000);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 10; ++round) {
        data.launch();
        struct Numbers {
            unsigned *memory, seen;
        } numbers{data.gpu, 0};
        CHECK(cudaLaunchHostFunc(
            nullptr,
            [](void* argument) {
                auto& all = *static_cast<Numbers*>(argument);
                if (!plain) return;
                all.seen = static_cast<volatile unsigned*>(all.memory)[4];
                static_cast<volatile unsigned*>(all.memory)[6] = 21;
            },
            &numbers));
        other.launch();
        CHECK(cudaDeviceSynchronize());
        if (!plain) {
            numbers.seen = data.get(4);
            data.set(6, 21);
        }
        data.model[6] = 21;
        wrong += numbers.seen != data.model[4];
        data.launch();
        wrong += data.get(6) != data.model[6];
        wrong += other.get(3) != other.model[3];
    }
    say("%u wrong\n", wrong);
}

// Children have no device.
static void forks(int, char**) {
    Data data = exported();
    std::atomic<bool> over{false};
    auto work = [&] {
        while (!over) store(data.gpu + 5, load(data.gpu + 6));
    };
    const pthread_t thread = start(work);
    for (int round = 0; round < 10; ++round) {
        const pid_t child = fork();
        if (child == 0) _exit(7);
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) say("child %d\n", status);
    }
    over = true;
    pthread_join(thread, nullptr);
    say("done\n");
}

// Destructors of a thread that has made use of memory, when the driver may have forgotten it already.
static Data* used_last[2];
static unsigned wrong_last;
static void ending_threads(int, char**) {
    Data data = exported(), object(50000);
    used_last[0] = &data;
    used_last[1] = &object;
    pthread_key_t key;
    pthread_key_create(&key, [](void*) {
        for (Data* const used : used_last) {
            wrong_last += used->get(7) != used->model[7];
            used->set(7, used->model[7] + 1);
        }
    });
    for (int round = 0; round < 5; ++round) {
        object.launch();
        data.launch();
        auto work = [&] {
            for (Data* const used : used_last) wrong_last += used->get(9) != used->model[9];
            object.launch();
            pthread_setspecific(key, &data);
        };
        pthread_join(start(work), nullptr);
    }
    wrong_last += data.get(7) != data.model[7] || object.get(7) != object.model[7];
    say("%u wrong\n", wrong_last);
}

// What was freed is nobody's.
static void freed(int, char**) {
    Data data = exported(), other(100);
    say("%u\n", load(data.gpu + 1) == data.model[1]);
    CHECK(cudaFree(data.gpu));
    signal(SIGSEGV, [](int) {
        say("faulted\n");
        _exit(0);
    });
    static_cast<volatile unsigned*>(data.gpu)[1] = 1;
    say("not reached\n");
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"turns", turns},
                                 {"instructions", instructions},
                                 {"threads", threads},
                                 {"signals", signals},
                                 {"host_functions", host_functions},
                                 {"forks", forks},
                                 {"ending_threads", ending_threads},
                                 {"freed", freed}};
    return run_case(cases, argc, argv);
}
