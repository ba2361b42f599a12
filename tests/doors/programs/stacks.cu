// SPDX-License-Identifier: MIT
// Accesses and calls whose call stacks are known, from every place where taking a stack could do harm: for the test of
// the report's call stacks.
#include <alloca.h>
#include <dlfcn.h>
#include <link.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <stdexcept>
#include <string>

#include "program.h"

// So many that the first elements of two arrays that share a chunk do not share a block.
constexpr unsigned kOwnBlocks = 20'000;

#define NEVER_INLINED __attribute__((noinline, noclone))

// One access that traps, since the device has had the object meanwhile.
NEVER_INLINED static unsigned read_first(Data& data) {
    const unsigned value = data.get(0);
    return value != data.model[0];
}
NEVER_INLINED static unsigned launch_and_read(Data& data) {
    data.launch();
    CHECK(cudaDeviceSynchronize());
    return read_first(data) * 5;
}
NEVER_INLINED static unsigned first_caller(Data& data) { return launch_and_read(data) * 2; }
NEVER_INLINED static unsigned second_caller(Data& data) { return launch_and_read(data) * 3; }

static void chain(int, char**) {
    Data data(1000);
    unsigned wrong = 0;
    for (int i = 0; i < 50; ++i) wrong += first_caller(data);
    for (int i = 0; i < 30; ++i) wrong += second_caller(data);
    say("%u wrong\n", wrong);
}

NEVER_INLINED static void write_out(int fd, Data& data) {
    data.launch();
    CHECK(cudaDeviceSynchronize());
    if (!plain) CHECK(cudaMemcpy(data.model, data.gpu, 4000, cudaMemcpyDeviceToHost));
    say("wrote %zd\n", write(fd, plain ? data.gpu : data.model, 4000));
}
static void calls(int, char**) {
    Data data(1000);
    int ends[2];
    if (pipe(ends) != 0) return;
    for (int i = 0; i < 10; ++i) write_out(ends[1], data);
}

// --- a library whose constructor waits while another thread's accesses trap -----------------------------------------

static sem_t inside, finished;
static Data* shared = nullptr;
static bool wait_in_constructor = false;
extern "C" void constructor_of_library() {
    if (!wait_in_constructor) return;
    sem_post(&inside);
    sem_wait(&finished);
    if (first_caller(*shared) != 0) say("wrong in the constructor\n");
}
static void constructor(int, char** argv) {
    Data data(1000);
    shared = &data;
    sem_init(&inside, 0, 0);
    sem_init(&finished, 0, 0);
    wait_in_constructor = true;
    auto open = [&] {
        void* const library = dlopen(argv[0], RTLD_NOW);
        say("library %s\n", library != nullptr ? "opened" : dlerror());
    };
    const pthread_t opens = start(open);
    sem_wait(&inside);
    unsigned wrong = 0;
    for (int i = 0; i < 100; ++i) wrong += second_caller(data);
    sem_post(&finished);
    pthread_join(opens, nullptr);
    say("%u wrong\n", wrong);
}

// The library comes and goes a thousand times, and its accesses trap, too, while another thread's do.
static void libraries(int, char** argv) {
    Data data(kOwnBlocks), mine(kOwnBlocks);
    unsigned wrong = 0, in_library = 0;
    auto open = [&] {
        for (int i = 0; i < 1000; ++i) {
            void* const library = dlopen(argv[0], RTLD_NOW);
            if (library == nullptr) say("%s\n", dlerror());
            const auto read = reinterpret_cast<unsigned (*)(const unsigned*)>(dlsym(library, "read_in_library"));
            if (i % 10 == 0) {
                mine.launch();
                CHECK(cudaDeviceSynchronize());
                const unsigned value = plain ? read(mine.gpu) : mine.get(0);
                in_library += value != mine.model[0];
            }
            dlclose(library);
        }
    };
    const pthread_t opens = start(open);
    for (int i = 0; i < 300; ++i) wrong += first_caller(data);
    pthread_join(opens, nullptr);
    say("%u %u wrong\n", wrong, in_library);
}

// The library was opened by a relative path, in a folder that the program has left before it uses CUDA.
static void left_folder(int, char** argv) {
    const std::string path = argv[0], folder = path.substr(0, path.rfind('/'));
    void* const library =
        chdir(folder.c_str()) == 0 ? dlopen(("." + path.substr(folder.size())).c_str(), RTLD_NOW) : nullptr;
    if (library == nullptr || chdir("/") != 0) say("%s\n", dlerror());
    const auto read = reinterpret_cast<unsigned (*)(const unsigned*)>(dlsym(library, "read_in_library"));
    Data data(kOwnBlocks);
    unsigned wrong = 0;
    for (int i = 0; i < 20; ++i) {
        data.launch();
        CHECK(cudaDeviceSynchronize());
        wrong += (plain ? read(data.gpu) : data.get(0)) != data.model[0];
    }
    say("%u wrong\n", wrong);
}

// --- before main ----------------------------------------------------------------------------------------------------

__attribute__((constructor)) static void early(int argc, char** argv) {
    if (argc < 3 || std::strcmp(argv[2], "early") != 0) return;
    plain = std::strcmp(argv[1], "plain") == 0;
    Data data(1000);
    say("%u wrong before main\n", read_first(data) * 7);
}
static void early_case(int, char**) { say("main\n"); }

// --- odd stacks -----------------------------------------------------------------------------------------------------

static char other_stack[1 << 16];
static void on_other_stack() {
    stack_t stack{};
    stack.ss_sp = other_stack;
    stack.ss_size = sizeof other_stack;
    sigaltstack(&stack, nullptr);
}
static void handle(int) {
    if (plain) {
        if (read_first(*shared) != 0) say("wrong in the handler\n");
    }
}
static void alternate(int, char**) {
    Data data(1000);
    shared = &data;
    on_other_stack();
    struct sigaction action {};
    action.sa_handler = handle;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (int i = 0; i < 20; ++i) {
        data.launch();
        CHECK(cudaDeviceSynchronize());
        raise(SIGUSR1);
    }
    say("%u wrong\n", data.check_all());
}

static sigjmp_buf back;
static void leave(int) { siglongjmp(back, 1); }
NEVER_INLINED static unsigned for_ever(volatile unsigned* above) {
    volatile unsigned here[200];
    here[0] = above[0] + 1;
    return for_ever(here) + here[0];
}
static void overflow(int, char**) {
    Data data(1000);
    unsigned wrong = first_caller(data);
    on_other_stack();
    struct sigaction action {};
    action.sa_handler = leave;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    for (int i = 0; i < 3; ++i) {
        volatile unsigned first[1] = {0};
        if (sigsetjmp(back, 1) == 0) say("%u\n", for_ever(first));
        say("back\n");
        wrong += second_caller(data);
    }
    say("%u wrong\n", wrong);
}

NEVER_INLINED static unsigned deeper(Data& data, unsigned depth) {
    volatile char room[100];
    room[0] = static_cast<char>(depth);
    const unsigned wrong = depth == 0 ? launch_and_read(data) : deeper(data, depth - 1);
    asm volatile("" : : "r"(room) : "memory");  // no loop instead
    return wrong;
}
static void deep(int, char**) {
    Data data(1000);
    unsigned wrong = 0;
    for (int i = 0; i < 20; ++i) wrong += deeper(data, 20) + deeper(data, 1000);
    say("%u wrong\n", wrong);
}

// Code that no table describes: with a frame pointer, and without.
static void generated(int, char**) {
    constexpr unsigned char with_frame[] = {0x55, 0x48, 0x89, 0xe5, 0x8b, 0x07, 0x5d, 0xc3};  // push, mov, load, pop
    constexpr unsigned char without[] = {0x48, 0x83, 0xec, 0x18, 0x8b, 0x07, 0x48, 0x83, 0xc4, 0x18, 0xc3};
    auto* const code = static_cast<unsigned char*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memcpy(code, with_frame, sizeof with_frame);
    std::memcpy(code + 64, without, sizeof without);
    Data data(1000);
    unsigned wrong = 0;
    for (int i = 0; i < 20; ++i) {
        data.launch();
        CHECK(cudaDeviceSynchronize());
        const auto read = reinterpret_cast<unsigned (*)(const unsigned*)>(code + (i % 2) * 64);
        wrong += (plain ? read(data.gpu) : data.get(0)) != data.model[0];
    }
    say("%u wrong\n", wrong);
}

// --- exceptions and threads -----------------------------------------------------------------------------------------

NEVER_INLINED static unsigned throws(Data& data, int depth) {
    const std::string kept(static_cast<std::size_t>(depth) + 20, 'x');  // has a destructor to be run
    if (depth > 0) return throws(data, depth - 1) + static_cast<unsigned>(kept.size());
    if (first_caller(data) == 0) throw std::runtime_error("thrown");
    return 0;
}
static void exceptions(int, char**) {
    Data data(1000);
    unsigned caught = 0;
    for (int i = 0; i < 50; ++i) {
        try {
            throws(data, 5);
        } catch (const std::runtime_error&) {
            ++caught;
        }
    }
    say("%u caught\n", caught);
}

static void threads(int, char**) {
    struct Work {
        unsigned wrong = 0;
        void operator()() {
            Data data(kOwnBlocks);
            for (int i = 0; i < 50; ++i) wrong += first_caller(data);
        }
    };
    for (int round = 0; round < 3; ++round) {
        Work works[4];
        pthread_t all[4];
        for (int i = 0; i < 4; ++i) all[i] = start(works[i]);
        unsigned wrong = 0;
        for (int i = 0; i < 4; ++i) {
            pthread_join(all[i], nullptr);
            wrong += works[i].wrong;
        }
        say("%u wrong\n", wrong);
    }
}

// Half of the work, a line, and the rest when a line comes.
static void halves(int, char**) {
    Data data(1000);
    unsigned wrong = 0;
    for (int i = 0; i < 50; ++i) wrong += first_caller(data);
    say("half\n");
    char line[2] = {};
    while (read(STDIN_FILENO, line, 1) == 1 && line[0] != '\n') {
    }
    for (int i = 0; i < 50; ++i) wrong += first_caller(data);
    say("%s%u wrong\n", line[0] == '\n' ? "" : "interrupted ", wrong);
}

// --- two coroutines, of which the second's stack ends where the first one's had its callers -------------------------

static ucontext_t outside, coroutine;
static Data* of_coroutine = nullptr;
static unsigned wrong_there = 0;
static std::size_t room = 0;

NEVER_INLINED static void with_room(std::size_t bytes) {
    volatile char* const local = static_cast<char*>(alloca(bytes));
    local[0] = local[bytes - 1] = 1;
    wrong_there += first_caller(*of_coroutine) * static_cast<unsigned>(local[0]);
}
static void run_coroutine() { with_room(room); }

static void coroutines(int, char**) {
    constexpr std::size_t page = 4096, bytes = 16 * page;
    Data data(1000);
    of_coroutine = &data;
    auto* const stack =
        static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const auto run_on = [&](std::size_t size, std::size_t its_room) {
        room = its_room;
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = stack;
        coroutine.uc_stack.ss_size = size;
        coroutine.uc_link = &outside;
        makecontext(&coroutine, run_coroutine, 0);
        swapcontext(&outside, &coroutine);
    };
    for (int i = 0; i < 20; ++i) run_on(bytes, 1024 + page);
    mprotect(stack + bytes - page, page, PROT_NONE);
    for (int i = 0; i < 20; ++i) run_on(bytes - page, 1024);
    say("%u wrong\n", wrong_there);
}

// --- the end of the process inside dl_iterate_phdr ------------------------------------------------------------------

static int end_here(dl_phdr_info*, std::size_t, void* data) {
    unsigned wrong = 0;
    for (int i = 0; i < 50; ++i) wrong += second_caller(*static_cast<Data*>(data));
    say("%u wrong\n", wrong);
    exit(0);
}
static void held_up(int, char**) {
    Data data(1000);
    say("%u wrong\n", first_caller(data));
    // A library that another thread is opening would keep exit() waiting for that thread, and that one for the lock
    // that is held here: not what this is about.
    while (plain && dlopen("libunwind-x86_64.so.8", RTLD_NOW | RTLD_NOLOAD) == nullptr) sched_yield();
    dl_iterate_phdr(end_here, &data);
}

// A child that gets the signal at which the parent says what it has done. Both leave the folder of the report.
static void forked(int, char**) {
    Data data(1000);
    if (chdir("/") != 0) return;
    const pid_t child = fork();
    if (child == 0) {
        raise(SIGUSR2);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("%u wrong, the child ended by signal %d\n", first_caller(data), WTERMSIG(status));
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"chain", chain},
                                 {"calls", calls},
                                 {"constructor", constructor},
                                 {"libraries", libraries},
                                 {"left_folder", left_folder},
                                 {"early", early_case},
                                 {"alternate", alternate},
                                 {"overflow", overflow},
                                 {"deep", deep},
                                 {"generated", generated},
                                 {"exceptions", exceptions},
                                 {"threads", threads},
                                 {"coroutines", coroutines},
                                 {"held_up", held_up},
                                 {"forked", forked},
                                 {"halves", halves}};
    return run_case(cases, argc, argv);
}
