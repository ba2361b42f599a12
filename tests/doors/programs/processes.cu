// SPDX-License-Identifier: MIT
// Processes: fork, exec, spawned programs, every way to end, limits, closed descriptors, CUDA from constructors.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <pthread.h>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>

#include "program.h"

static Data* data;

static void report_end(pid_t child) {
    int status = 0;
    if (waitpid(child, &status, 0) != child) say("waitpid failed\n");
    if (WIFEXITED(status)) say("child exit %d\n", WEXITSTATUS(status));
    if (WIFSIGNALED(status)) say("child signal %d\n", WTERMSIG(status));
}

template <class Work>
static void in_child(Work&& work) {
    const pid_t child = fork();
    if (child == 0) {
        work();
        _exit(40);
    }
    report_end(child);
    say("parent: %u wrong\n", data->work(3));
}

static void forks(int, char**) {
    data->launch();
    in_child([] {
        char* memory = static_cast<char*>(std::malloc(1 << 20));
        std::memset(memory, 5, 1 << 20);
        say("child sees %d\n", memory[12345]);
        std::free(memory);
        _exit(3);
    });
    data->launch();
    in_child([] { std::exit(4); });
    in_child([] { execl("/bin/echo", "echo", "from echo", static_cast<char*>(nullptr)); });
    in_child([] {
        // A handler of its own, in the child.
        signal(SIGSEGV, [](int) { _exit(9); });
        raise(SIGSEGV);
    });
    in_child([] { raise(SIGSEGV); });
    in_child([] { abort(); });
    in_child([] {
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(11);
        report_end(grandchild);
        _exit(12);
    });
    say("all: %u wrong\n", data->check_all());
}

// The device, and what the CPU last wrote, is the parent's.
static void child_touches(int, char**) {
    data->touch(1);
    in_child([] { say("child reads %u\n", static_cast<volatile unsigned*>(data->gpu)[5]); });
    in_child([] {
        signal(SIGSEGV, [](int) { _exit(9); });
        static_cast<volatile unsigned*>(data->gpu)[5] = 1;
    });
    say("all: %u wrong\n", data->check_all());
}

// What the child of a process that used CUDA is told, is the driver's business.
static void fork_cuda(int, char**) {
    in_child([] {
        void* pointer = nullptr;
        say("child: malloc %d\n", cudaMalloc(&pointer, 4096));
        int count = -1;
        say("child: count %d\n", cudaGetDeviceCount(&count));
        say("child: synchronize %d\n", cudaDeviceSynchronize());
    });
    in_child([] {
        *reinterpret_cast<volatile unsigned*>(data->gpu) = 1;  // the child has no device
        say("not reached\n");
    });
    in_child([] {
        unsigned value = static_cast<volatile unsigned*>(data->gpu)[100];
        say("not reached %u\n", value);
    });
}

static void fork_before(int, char**) {
    // Handled in main: the child is made before any use of CUDA, and uses it.
    const pid_t child = fork();
    if (child == 0) {
        Data own(3000);
        say("child: %u wrong\n", own.work(2));
        _exit(own.check_all() != 0);
    }
    report_end(child);
    Data own(3000);
    say("parent: %u wrong\n", own.work(2));
}

static void spawns(int, char**) {
    data->launch();
    say("system %d\n", std::system("echo from system; exit 3"));
    data->launch();
    FILE* pipe = popen("echo from popen", "r");
    char line[100] = "";
    if (pipe == nullptr || std::fgets(line, sizeof line, pipe) == nullptr) say("popen failed\n");
    say("popen says %s", line);
    say("pclose %d\n", pclose(pipe));
    pid_t child = 0;
    char name[] = "/bin/sh", c[] = "-c", script[] = "echo from posix_spawn; kill -SEGV $$";
    char* arguments[] = {name, c, script, nullptr};
    const int spawned = posix_spawn(&child, name, nullptr, nullptr, arguments, environ);
    report_end(child);
    say("posix_spawn %d\n", spawned);
    child = vfork();
    if (child == 0) {
        execl("/bin/echo", "echo", "from vfork", static_cast<char*>(nullptr));
        _exit(1);
    }
    report_end(child);
    child = vfork();
    if (child == 0) _exit(6);
    report_end(child);
    // Resets its dispositions, as a careful program does before exec: its own, though it shares our memory.
    static volatile sig_atomic_t handled;
    struct sigaction mine = {}, now = {};
    mine.sa_handler = [](int) { handled = handled + 1; };
    sigaction(SIGSEGV, &mine, nullptr);
    child = vfork();
    if (child == 0) {
        struct sigaction reset = {}, first = {}, second = {};
        reset.sa_handler = SIG_DFL;
        for (int number = 1; number < 32; ++number) sigaction(number, &reset, number == SIGSEGV ? &first : nullptr);
        sigaction(SIGSEGV, nullptr, &second);
        say("child had mine %d, now default %d\n", first.sa_handler == mine.sa_handler, second.sa_handler == SIG_DFL);
        raise(SIGSEGV);
        _exit(1);
    }
    report_end(child);
    sigaction(SIGSEGV, nullptr, &now);
    say("mine kept %d\n", now.sa_handler == mine.sa_handler);
    raise(SIGSEGV);
    say("handled %d\n", static_cast<int>(handled));
    say("parent: %u wrong\n", data->work(3));
    say("all: %u wrong\n", data->check_all());
}

// --- ends: with dirty blocks and work under way
// ------------------------------------------------------------------------

static void end_exit(int, char**) {
    data->touch(1);
    data->launch();
    data->touch(2);
    std::exit(5);
}
static void end_underscore_exit(int, char**) {
    data->touch(1);
    _exit(6);
}
static void end_quick(int, char**) {
    data->touch(1);
    at_quick_exit([] { say("at quick exit: %u wrong\n", data->touch(9)); });
    std::quick_exit(7);
}
static void end_abort(int, char**) {
    data->touch(1);
    std::abort();
}
static void end_thread(int, char**) {
    data->touch(1);
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
            data->touch(2);
            std::exit(8);
        },
        nullptr);
    pthread_join(thread, nullptr);
}
static void end_exec(int, char**) {
    data->touch(1);
    data->launch();
    execl("/bin/echo", "echo", "the program is another now", static_cast<char*>(nullptr));
}
static void end_kill(int, char**) {
    data->touch(1);
    kill(getpid(), SIGKILL);
}
static void end_fault(int, char**) {
    data->touch(1);
    raise(SIGSEGV);
}
static void at_exit(int, char**) {
    data->touch(1);
    std::atexit([] { say("at exit: %u wrong\n", data->touch(9)); });
    std::atexit([] { say("at exit: %u wrong\n", data->work(10)); });
}
static void other_threads_at_exit(int, char**) {
    static std::atomic<int> at_work{0};
    for (int t = 0; t < 3; ++t) {
        pthread_t thread;
        pthread_create(
            &thread, nullptr,
            [](void* seed) -> void* {
                Data own(3000);
                for (unsigned i = 0;; ++i) {
                    if (i == 2) ++at_work;
                    if (own.touch(i + static_cast<unsigned>(reinterpret_cast<std::size_t>(seed))) != 0) _exit(33);
                }
            },
            reinterpret_cast<void*>(static_cast<std::size_t>(t)));
    }
    while (at_work < 3) sched_yield();
}

// --- static objects
// ----------------------------------------------------------------------------------------------------

struct Static {
    Data* own = nullptr;
    bool used = false;
    void start() {
        own = new Data(2000);
        say("made: %u wrong\n", own->work(1));
    }
    ~Static() {
        if (used) say("static destructor: %u wrong\n", own->touch(4));
    }
};
static Static earlier;

static void statics(int, char**) {
    earlier.start();
    earlier.used = true;
    earlier.own->touch(8);
}

// --- surroundings
// ------------------------------------------------------------------------------------------------------

static void closed_descriptors(int, char**) {
    const int out = dup(1);
    const pid_t child = fork();
    if (child != 0) {
        report_end(child);
        return;
    }
    setsid();
    umask(0);
    if (chdir("/") != 0) _exit(1);
    for (int fd = 0; fd < 256; ++fd) {
        if (fd != out) close(fd);
    }
    dup2(out, 1);
    Data own(6000);
    say("daemon: %u wrong\n", own.work(1));
    for (int fd = 0; fd < 256; ++fd) {
        if (fd != 1) close(fd);
    }
    say("daemon: %u wrong\n", own.work(2));
    say("daemon: %u wrong\n", own.check_all());
    _exit(0);
}

static void set_limit(__rlimit_resource what, rlim_t value) {
    rlimit limit{};
    getrlimit(what, &limit);
    limit.rlim_cur = value;
    if (setrlimit(what, &limit) != 0) say("setrlimit failed\n");
}

static void limit_files(int, char**) {
    set_limit(RLIMIT_NOFILE, 4);
    say("%u wrong\n", data->work(1));
    Data more(7000);
    say("%u wrong\n", more.work(2));
    set_limit(RLIMIT_NOFILE, 0);
    say("%u wrong\n", more.work(2));
    Data last(7000);
    say("%u wrong\n", last.work(2));
}

static void limit_stack(int, char**) {
    set_limit(RLIMIT_STACK, 64 << 10);
    say("%u wrong\n", data->work(1));
}

static void limit_core(int, char**) {
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_MEMLOCK, 0);
    set_limit(RLIMIT_FSIZE, 0);
    signal(SIGXFSZ, SIG_IGN);
    Data more(700000);
    for (unsigned i = 0; i < 6; ++i) {
        const unsigned wrong = more.work(i);
        if (wrong != 0) _exit(5);
    }
}

// No room for host copies: the device goes on alone. Not for the plain form.
static void limit_address_space(int, char**) {
    Data more(5000);
    if (more.work(1) != 0) _exit(5);
    unsigned long pages = 0;
    FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) _exit(6);
    std::fclose(file);
    set_limit(RLIMIT_AS, pages * 4096 + (1400ul << 20));
    unsigned* big = nullptr;
    say("cudaMalloc %d\n", cudaMalloc(&big, 1200u << 20));
    advance<><<<100, 128>>>(big, 12800, 1);
    say("launch %d, wait %d\n", cudaGetLastError(), cudaDeviceSynchronize());
    say("cudaMemset %d\n", cudaMemset(big, 7, 16u << 20));
    unsigned value = 0;
    say("cudaMemcpy %d\n", cudaMemcpy(&value, big + 100, sizeof value, cudaMemcpyDeviceToHost));
    say("value %x\n", value);
    say("%u wrong\n", more.work(2));
    say("cudaFree %d\n", cudaFree(big));
    say("%u wrong\n", more.check_all());
}

static void run_small_stack(std::size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    say("set size %d\n", pthread_attr_setstacksize(&attributes, bytes));
    data->launch();
    pthread_t thread;
    const int made = pthread_create(
        &thread, &attributes,
        [](void*) -> void* {
            unsigned wrong = 0;
            for (unsigned i = 0; i < 20; ++i) wrong += data->touch(i);
            return reinterpret_cast<void*>(static_cast<std::size_t>(wrong));
        },
        nullptr);
    void* wrong = nullptr;
    if (made == 0) pthread_join(thread, &wrong);
    say("thread: %zu wrong\n", reinterpret_cast<std::size_t>(wrong));
    say("%u wrong\n", data->work(1));
}
static void small_stacks(int, char**) {
    run_small_stack(static_cast<std::size_t>(PTHREAD_STACK_MIN));
    run_small_stack(32 << 10);
    say("all: %u wrong\n", data->check_all());
}

// A library that uses CUDA from its constructor: `plugin PATH`.
static void plugin(int argc, char** argv) {
    if (argc < 1) {
        say("no plugin named\n");
        return;
    }
    for (int round = 0; round < 2; ++round) {
        void* handle = dlopen(argv[0], RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            say("dlopen: %s\n", dlerror());
            return;
        }
        auto* const memory = reinterpret_cast<unsigned char* (*)()>(dlsym(handle, "plugin_memory"));
        unsigned char value = 0;
        if (plain) {
            value = static_cast<volatile unsigned char*>(memory())[999];
        } else {
            CHECK(cudaMemcpy(&value, memory() + 999, 1, cudaMemcpyDeviceToHost));
        }
        say("the plugin's byte %d\n", value);
        say("dlclose %d\n", dlclose(handle));
    }
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"forks", forks},
        {"fork_cuda", fork_cuda},
        {"child_touches", child_touches},
        {"fork_before", fork_before},
        {"spawns", spawns},
        {"end_exit", end_exit},
        {"end_underscore_exit", end_underscore_exit},
        {"end_quick", end_quick},
        {"end_abort", end_abort},
        {"end_thread", end_thread},
        {"end_exec", end_exec},
        {"end_kill", end_kill},
        {"end_fault", end_fault},
        {"at_exit", at_exit},
        {"other_threads_at_exit", other_threads_at_exit},
        {"statics", statics},
        {"closed_descriptors", closed_descriptors},
        {"limit_files", limit_files},
        {"limit_stack", limit_stack},
        {"limit_core", limit_core},
        {"small_stacks", small_stacks},
        {"limit_address_space", limit_address_space},
        {"plugin", plugin},
    };
    if (argc >= 3 && std::strcmp(argv[2], "fork_before") != 0 && std::strcmp(argv[2], "closed_descriptors") != 0 &&
        std::strcmp(argv[2], "plugin") != 0) {
        plain = std::strcmp(argv[1], "plain") == 0;
        data = new Data(5000);
        if (data->work(0) != 0) return 77;
    }
    return run_case(cases, argc, argv);
}
