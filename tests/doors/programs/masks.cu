// SPDX-License-Identifier: MIT
// Signal masks, and CPU accesses to device data where signals are blocked or being handled.
#include <cerrno>
#include <csetjmp>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>

#include "program.h"

static __global__ void occupy(unsigned* data, int steps) {
    volatile unsigned done = 0;
    for (int i = 0; i < steps; ++i) done = done + 1;
    data[0] = done;
}

static Data* data;
static sigjmp_buf way_out;
static volatile sig_atomic_t count;

static sigset_t only(int number) {
    sigset_t set;
    sigemptyset(&set);
    if (number != 0) sigaddset(&set, number);
    return set;
}
static sigset_t everything() {
    sigset_t set;
    sigfillset(&set);
    return set;
}
static int segv_blocked() {
    sigset_t now;
    sigemptyset(&now);
    sigprocmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, SIGSEGV) + 2 * sigismember(&now, SIGUSR1) + 4 * sigismember(&now, 16);
}
static void handle(int number, void (*handler)(int), const sigset_t& mask, int flags = 0) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_mask = mask;
    action.sa_flags = flags;
    if (sigaction(number, &action, nullptr) != 0) say("sigaction failed\n");
}
static void touching(int number) {
    count = count + 1;
    say("handler %d: blocked %d, %u wrong\n", number, segv_blocked(), data->touch(static_cast<unsigned>(100 + count)));
}
static void leaving(int number) {
    say("handler %d leaves: blocked %d\n", number, segv_blocked());
    siglongjmp(way_out, 1);
}
static void null_write() {
    static volatile std::uintptr_t address = 8;
    *reinterpret_cast<volatile unsigned char*>(address) = 1;
}

static void blocked_segv(int, char**) {
    const auto set = only(SIGSEGV);
    say("sigprocmask %d\n", sigprocmask(SIG_BLOCK, &set, nullptr));
    for (unsigned i = 0; i < 3; ++i) say("blocked %d, %u wrong\n", segv_blocked(), data->work(i));
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(5));
}
// To the process, not to a thread: only the program's threads get it, when they unblock it or wait for it. The driver
// has threads of its own as soon as it launches.
static volatile pid_t handled_by;
static void sent_to_the_process(int, char**) {
    void* object = nullptr;
    CHECK(cudaMalloc(&object, 4096));
    handle(
        SIGSEGV,
        [](int) {
            count = count + 1;
            handled_by = gettid();
        },
        only(0));
    const sigset_t fault = only(SIGSEGV), all = everything();
    sigset_t pending;
    sigprocmask(SIG_BLOCK, &fault, nullptr);
    kill(getpid(), SIGSEGV);
    sigpending(&pending);
    say("handled %d pending %d\n", static_cast<int>(count), sigismember(&pending, SIGSEGV));
    sigprocmask(SIG_UNBLOCK, &fault, nullptr);
    say("handled %d by this thread %d\n", static_cast<int>(count), handled_by == gettid());
    sigprocmask(SIG_SETMASK, &all, nullptr);
    kill(getpid(), SIGBUS);
    const sigset_t bus = only(SIGBUS);
    int got = 0;
    say("waited %d", sigwait(&bus, &got));
    say(" got %d\n", got);
}
static void blocked_all(int, char**) {
    const auto set = everything();
    sigset_t old;
    say("pthread_sigmask %d\n", pthread_sigmask(SIG_SETMASK, &set, &old));
    for (unsigned i = 0; i < 3; ++i) say("blocked %d, %u wrong\n", segv_blocked(), data->work(i));
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(5));
    null_write();  // dies
}
static void blocked_twice(int, char**) {
    // Blocked, a longjmp back to where it was not: a handler must run again.
    handle(SIGSEGV, leaving, only(0));
    for (int round = 0; round < 3; ++round) {
        if (sigsetjmp(way_out, 1) == 0) {
            const auto set = everything();
            sigprocmask(SIG_BLOCK, &set, nullptr);
            say("blocked %d, %u wrong\n", segv_blocked(), data->work(1));
            siglongjmp(way_out, 1);
        }
        say("blocked %d\n", segv_blocked());
        if (sigsetjmp(way_out, 1) == 0) null_write();
        say("blocked %d, %u wrong\n", segv_blocked(), data->work(2));
    }
}
static void in_handlers(int, char**) {
    for (const sigset_t& mask : {only(0), only(SIGSEGV), everything()}) {
        for (const int flags : {0, SA_NODEFER, SA_RESTART}) {
            handle(SIGUSR1, touching, mask, flags);
            data->launch();
            raise(SIGUSR1);
            struct sigaction now = {};
            sigaction(SIGUSR1, nullptr, &now);
            say("its mask: %d %d %d\n", sigismember(&now.sa_mask, SIGSEGV), sigismember(&now.sa_mask, SIGUSR2),
                sigismember(&now.sa_mask, 16));
            say("%u wrong\n", data->work(3));
        }
    }
}
static void on_alternate_stacks(int, char**) {
    for (const auto size : {static_cast<std::size_t>(sysconf(_SC_SIGSTKSZ)), std::size_t{65536}}) {
        stack_t stack = {};
        stack.ss_sp = std::malloc(size);
        stack.ss_size = size;
        sigaltstack(&stack, nullptr);
        for (int number : {SIGUSR1, SIGALRM, SIGSEGV}) {
            handle(number, touching, everything(), SA_ONSTACK);
            data->launch();
            raise(number);
            say("%u wrong\n", data->work(3));
        }
    }
}
static void handler_fault_dies(int, char**) {
    // A foreign fault in a handler that blocks SIGSEGV kills.
    handle(SIGSEGV, leaving, only(0));
    handle(
        SIGUSR1, [](int) { null_write(); }, only(SIGSEGV));
    if (sigsetjmp(way_out, 1) == 0) raise(SIGUSR1);
    say("not reached\n");
}
static void handler_fault_handled(int, char**) {
    handle(SIGSEGV, leaving, only(0));
    handle(
        SIGUSR1, [](int) { null_write(); }, only(SIGUSR2));
    for (int i = 0; i < 3; ++i) {
        if (sigsetjmp(way_out, 1) == 0) raise(SIGUSR1);
        say("blocked %d, %u wrong\n", segv_blocked(), data->work(static_cast<unsigned>(i)));
    }
}
static void sleeping(int, char**) {
    auto all_but = everything();
    sigdelset(&all_but, SIGUSR1);
    handle(SIGUSR1, touching, only(0));
    const auto set = only(SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    data->launch();
    raise(SIGUSR1);
    say("sigsuspend %d", sigsuspend(&all_but));
    say(" errno %d\n", errno);
    data->launch();
    raise(SIGUSR1);
    const timespec soon = {5, 0};
    say("ppoll %d\n", ppoll(nullptr, 0, &soon, &all_but));
    data->launch();
    raise(SIGUSR1);
    say("pselect %d\n", pselect(0, nullptr, nullptr, nullptr, &soon, &all_but));
    const int file = epoll_create1(0);
    epoll_event event;
    data->launch();
    raise(SIGUSR1);
    say("epoll_pwait %d\n", epoll_pwait(file, &event, 1, 5000, &all_but));
#if __GLIBC_PREREQ(2, 35)
    data->launch();
    raise(SIGUSR1);
    say("epoll_pwait2 %d\n", epoll_pwait2(file, &event, 1, &soon, &all_but));
#endif
    const timespec now = {0, 0};
    say("ppoll %d\n", ppoll(nullptr, 0, &now, nullptr));
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(3));
}
static void threads_inherit(int, char**) {
    const auto set = only(SIGSEGV);
    handle(SIGSEGV, leaving, only(0));
    for (const int how : {SIG_BLOCK, SIG_UNBLOCK}) {
        sigprocmask(how, &set, nullptr);
        data->launch();
        pthread_t thread;
        pthread_create(
            &thread, nullptr,
            [](void*) -> void* {
                say("thread: blocked %d, %u wrong\n", segv_blocked(), data->touch(7));
                return nullptr;
            },
            nullptr);
        pthread_join(thread, nullptr);
        say("blocked %d, %u wrong\n", segv_blocked(), data->work(3));
    }
}
static void thread_attributes(int, char**) {
    handle(SIGSEGV, leaving, only(0));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    sigset_t mask;
    say("none %d\n", pthread_attr_getsigmask_np(&attributes, &mask));
    for (const sigset_t& set : {only(SIGSEGV), everything(), only(SIGUSR1)}) {
        say("set %d\n", pthread_attr_setsigmask_np(&attributes, &set));
        const int got = pthread_attr_getsigmask_np(&attributes, &mask);
        say("get %d: %d %d %d\n", got, sigismember(&mask, SIGSEGV), sigismember(&mask, SIGUSR1),
            sigismember(&mask, 16));
        data->launch();
        pthread_t thread;
        pthread_create(
            &thread, &attributes,
            [](void*) -> void* {
                say("thread: %u wrong, ", data->touch(7));
                say("blocked %d\n", segv_blocked());
                return nullptr;
            },
            nullptr);
        pthread_join(thread, nullptr);
        say("%u wrong\n", data->work(3));
    }
    say("unset %d", pthread_attr_setsigmask_np(&attributes, nullptr));
    say(" %d\n", pthread_attr_getsigmask_np(&attributes, &mask));
    pthread_attr_destroy(&attributes);
}
// Every bit, those of the signals that libc sends its threads too.
static void every_bit(int, char**) {
    static std::atomic<bool> ready{false};
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
            sigset_t set;
            std::memset(&set, 0xff, sizeof set);
            say("pthread_sigmask %d\n", pthread_sigmask(SIG_SETMASK, &set, nullptr));
            say("sigprocmask %d\n", sigprocmask(SIG_BLOCK, &set, nullptr));
            say("thread: blocked %d, %u wrong\n", segv_blocked(), data->work(1));
            ready = true;
            for (;;) pause();
        },
        nullptr);
    while (!ready) usleep(1000);
    say("setuid %d\n", setuid(getuid()));
    pthread_cancel(thread);
    void* result = nullptr;
    pthread_join(thread, &result);
    say("cancelled %d\n", result == PTHREAD_CANCELED);
}
// Memory is no cancellation point, not even where an access waits for the device.
static void cancelled(int, char**) {
    static std::atomic<bool> pending{false};
    occupy<<<1, 1>>>(data->gpu, 1 << 20);
    data->model[0] = 1 << 20;
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
            while (!pending) sched_yield();
            int state = PTHREAD_CANCEL_ENABLE;
            if (!plain) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);  // a copy may be one
            const unsigned wrong = (data->get(0) != data->model[0]) + data->touch(4);
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, plain ? &state : nullptr);
            say("thread: %u wrong, could be cancelled %d\n", wrong, state == PTHREAD_CANCEL_ENABLE);
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
            pthread_testcancel();
            return nullptr;
        },
        nullptr);
    pthread_cancel(thread);
    pending = true;
    void* result = nullptr;
    pthread_join(thread, &result);
    say("cancelled %d, %u wrong\n", result == PTHREAD_CANCELED, data->work(3));
}
static void errors_kept(int, char**) {
    // The first allocation of the process, too (main made none for this case).
    errno = 777;
    void* memory = nullptr;
    const cudaError_t made = cudaMalloc(&memory, 4096);
    say("cudaMalloc %d errno %d\n", made, errno);
    data = new Data(50000);
    for (unsigned round = 0; round < 3; ++round) {
        errno = 777;
        unsigned wrong = data->touch(round);
        say("%u wrong, errno %d\n", wrong, errno);
        errno = 777;
        data->launch();
        say("launch: errno %d\n", errno);
        errno = 777;
        cudaDeviceSynchronize();
        say("cudaDeviceSynchronize: errno %d\n", errno);
        errno = 777;
        wrong = data->touch(round + 7);
        say("%u wrong, errno %d\n", wrong, errno);
    }
}
static void thread_from_before(int, char**) {
    // Blocked before the first allocation of the process (main made none for this case).
    const auto set = everything();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 2);
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
            pthread_barrier_wait(&barrier);
            static volatile std::uintptr_t nowhere = 16;
            const int file = open("/dev/null", O_RDONLY);
            const auto got = readv(file, reinterpret_cast<const iovec*>(nowhere), 2);
            say("thread: readv %d %d\n", static_cast<int>(got), errno);
            close(file);
            say("thread: synchronize %d\n", cudaDeviceSynchronize());
            say("thread: blocked %d, %u wrong\n", segv_blocked(), data->touch(7));
            return nullptr;
        },
        nullptr);
    data = new Data(5000);
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(3));
    data->launch();
    pthread_barrier_wait(&barrier);
    pthread_join(thread, nullptr);
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(3));
}
// Everything but SIGSEGV, as threads have it that leave signals to others: a fault is still the handler's. Said before
// the first allocation of the process (main made none for this case) or after.
static void faults_once(const char* where) {
    if (sigsetjmp(way_out, 1) == 0) null_write();
    say("%s: blocked %d, %u wrong\n", where, segv_blocked(), data->touch(7));
}
static void all_but_segv(int, char**) {
    auto set = everything();
    sigdelset(&set, SIGSEGV);
    handle(SIGSEGV, leaving, only(0));
    handle(
        SIGUSR1, [](int) { faults_once("handler"); }, set);
    static std::atomic<const char*> turn{""};
    static const auto body = [](void* name) -> void* {
        while (turn != name) usleep(1000);
        faults_once(static_cast<const char*>(name));
        return nullptr;
    };
    static char inherited[] = "inherited", attribute[] = "attribute";
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    sigset_t mask;
    pthread_attr_setsigmask_np(&attributes, &set);
    pthread_attr_getsigmask_np(&attributes, &mask);
    say("attribute: %d %d %d\n", sigismember(&mask, SIGSEGV), sigismember(&mask, SIGUSR1), sigismember(&mask, 16));
    pthread_t threads[2];
    pthread_create(&threads[1], &attributes, body, attribute);
    sigset_t old;
    sigprocmask(SIG_SETMASK, &set, &old);
    pthread_create(&threads[0], nullptr, body, inherited);
    say("blocked %d\n", segv_blocked());
    if (data == nullptr) data = new Data(5000);
    say("%u wrong\n", data->work(3));
    turn = inherited;
    pthread_join(threads[0], nullptr);
    turn = attribute;
    pthread_join(threads[1], nullptr);
    faults_once("here");
    sigprocmask(SIG_SETMASK, &old, nullptr);
    raise(SIGUSR1);
    say("blocked %d\n", segv_blocked());
}
static void contexts_of_swap(int, char**) {
    static ucontext_t back, other;
    static char stack[64 << 10];
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    other.uc_link = &back;
    const auto set = everything();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    makecontext(
        &other, [] { say("other: blocked %d, %u wrong\n", segv_blocked(), data->work(1)); }, 0);
    swapcontext(&back, &other);
    say("back: blocked %d, %u wrong\n", segv_blocked(), data->work(2));
}
static void old_calls(int, char**) {
    handle(SIGSEGV, leaving, only(0));
    say("sigblock %d\n", sigblock(1 << (SIGSEGV - 1)));
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(1));
    say("sigblock %d\n", sigblock(1 << (SIGUSR1 - 1)));
    say("sigsetmask %d\n", sigsetmask(0));
    say("sighold %d\n", sighold(SIGSEGV));
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(1));
    say("sigrelse %d\n", sigrelse(SIGSEGV));
    say("sigset %d\n", sigset(SIGSEGV, SIG_HOLD) == leaving);
    say("sigset %d\n", sigset(SIGSEGV, leaving) == SIG_HOLD);
    say("siginterrupt %d\n", siginterrupt(SIGUSR1, 1));
    signal(SIGUSR1, touching);
    struct sigaction now = {};
    sigaction(SIGUSR1, nullptr, &now);
    say("flags %x\n", static_cast<unsigned>(now.sa_flags));
    say("sigignore %d\n", sigignore(SIGSEGV));
    raise(SIGSEGV);
    say("blocked %d, %u wrong\n", segv_blocked(), data->work(1));
}
static void bad_arguments(int, char**) {
    auto* const nowhere = reinterpret_cast<const sigset_t*>(8);
    const timespec at_once{};
    epoll_event event;
    const int events = epoll_create1(0);
    const auto refused = [](const char* what, int result) {
        say("%s %d errno %d\n", what, result, errno);
        errno = 0;
    };
    refused("pselect", pselect(0, nullptr, nullptr, nullptr, &at_once, nowhere));
    refused("ppoll", ppoll(nullptr, 0, &at_once, nowhere));
    refused("epoll_pwait", epoll_pwait(events, &event, 1, 0, nowhere));
    refused("sigsuspend", sigsuspend(nowhere));
    const auto set = only(SIGSEGV);
    errno = 0;
    say("%d", sigprocmask(17, &set, nullptr));
    say(" errno %d\n", errno);
    errno = 0;
    say("%d", pthread_sigmask(17, &set, nullptr));
    say(" errno %d\n", errno);
    struct sigaction action = {};
    for (int number : {0, -1, 65, SIGKILL, 32, 33}) {
        errno = 0;
        const int result = sigaction(number, &action, nullptr);
        say("sigaction %d: %d errno %d\n", number, result, errno);
        errno = 0;
        const bool error = signal(number, SIG_DFL) == SIG_ERR;
        say("signal %d: %d errno %d\n", number, error, errno);
    }
    errno = 0;
    const bool error = signal(SIGSEGV, SIG_ERR) == SIG_ERR;
    say("signal SIG_ERR: %d errno %d\n", error, errno);
    say("%u wrong\n", data->work(1));
}
static void bad_pointers(int, char**) {
    static volatile std::uintptr_t nowhere = 16;
    handle(SIGSEGV, leaving, only(0));
    static auto* const bad = reinterpret_cast<struct sigaction*>(nowhere);
    static auto* const bad_set = reinterpret_cast<sigset_t*>(nowhere);
    static int (*const calls[])() = {
        [] { return sigaction(SIGSEGV, bad, nullptr); },
        [] { return sigaction(SIGSEGV, nullptr, bad); },
        [] { return sigaction(SIGUSR1, bad, nullptr); },
        [] { return sigaction(SIGUSR1, nullptr, bad); },
        [] { return pthread_sigmask(SIG_BLOCK, bad_set, nullptr); },
        [] { return pthread_sigmask(SIG_BLOCK, nullptr, bad_set); },
    };
    for (const auto& call : calls) {
        if (sigsetjmp(way_out, 1) == 0) say("result %d\n", call());
        say("blocked %d, %u wrong\n", segv_blocked(), data->work(2));
    }
    if (sigsetjmp(way_out, 1) == 0) null_write();
}
// The kernel reads eight bytes of a mask: here the last ones of a page.
static void eight_bytes(int, char**) {
    auto* const pages =
        static_cast<unsigned char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages + 4096, 4096, PROT_NONE);
    const auto* const mask = reinterpret_cast<const sigset_t*>(pages + 4088);
    const timespec now = {};
    say("%d %d\n", sigprocmask(SIG_BLOCK, mask, nullptr), pthread_sigmask(SIG_SETMASK, mask, nullptr));
    say("%d %d\n", ppoll(nullptr, 0, &now, mask), pselect(0, nullptr, nullptr, nullptr, &now, mask));
}
static void in_the_segv_handler(int, char**) {
    // The program's own handler opens its page with bytes that lie in an object that the GPU just wrote.
    static auto* page = static_cast<unsigned char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t* info, void* context) {
        auto* user = static_cast<ucontext_t*>(context);
        say("page %d, mask to return to: %d\n", info->si_addr == page + 5, sigismember(&user->uc_sigmask, SIGSEGV));
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        page[5] = static_cast<unsigned char>(data->get(11));
        say("in handler %u wrong\n", data->touch(55));
        if (count != 0) sigaddset(&user->uc_sigmask, SIGSEGV);
        count = count + 1;
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    for (int round = 0; round < 3; ++round) {
        data->launch();
        const unsigned char value = static_cast<volatile unsigned char*>(page)[5];
        say("%d, blocked %d, %u wrong\n", value == static_cast<unsigned char>(data->model[11]), segv_blocked(),
            data->work(1));
        mprotect(page, 4096, PROT_NONE);
    }
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"blocked_segv", blocked_segv},
        {"blocked_all", blocked_all},
        {"sent_to_the_process", sent_to_the_process},
        {"blocked_twice", blocked_twice},
        {"in_handlers", in_handlers},
        {"on_alternate_stacks", on_alternate_stacks},
        {"handler_fault_dies", handler_fault_dies},
        {"handler_fault_handled", handler_fault_handled},
        {"sleeping", sleeping},
        {"threads_inherit", threads_inherit},
        {"thread_attributes", thread_attributes},
        {"every_bit", every_bit},
        {"cancelled", cancelled},
        {"errors_kept", errors_kept},
        {"thread_from_before", thread_from_before},
        {"all_but_segv", all_but_segv},
        {"all_but_segv_before", all_but_segv},
        {"contexts_of_swap", contexts_of_swap},
        {"old_calls", old_calls},
        {"bad_arguments", bad_arguments},
        {"bad_pointers", bad_pointers},
        {"eight_bytes", eight_bytes},
        {"eight_bytes_before", eight_bytes},
        {"in_the_segv_handler", in_the_segv_handler},
    };
    bool made_later = argc < 3;
    for (const char* name :
         {"thread_from_before", "errors_kept", "all_but_segv_before", "eight_bytes_before", "sent_to_the_process"}) {
        made_later |= argc >= 3 && std::strcmp(argv[2], name) == 0;
    }
    if (made_later) {
        plain = argc >= 3 && std::strcmp(argv[1], "plain") == 0;
    } else {
        plain = std::strcmp(argv[1], "plain") == 0;
        data = new Data(5000);
        if (data->work(0) != 0) return 77;
    }
    return run_case(cases, argc, argv);
}
