// SPDX-License-Identifier: MIT
// One foreign signal under one disposition: `dispositions FORM DISPOSITION FAULT WHEN`. What the handler was given and
// how the program goes on is printed; before, in between and after, the CPU and the GPU use common data.
#include <csetjmp>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

#include "program.h"

static unsigned char* page;       // PROT_NONE until a handler opens it
static unsigned char* file_page;  // behind the end of its file
static sigjmp_buf way_out;
static volatile sig_atomic_t calls;
static Data* data;
static volatile std::uintptr_t near_null = 16, noncanonical = 0x8000000000000000;
static bool leaves, opens, touches, nested;
alignas(16) static unsigned char stack_memory[64 << 10];

static void print_mask(const char* title, const sigset_t& set) {
    char text[160];
    int used = 0;
    for (int s = 1; s <= 64; ++s) {
        if (sigismember(&set, s) == 1)
            used += std::snprintf(text + used, sizeof text - static_cast<unsigned>(used), " %d", s);
        if (used > 120) break;
    }
    text[used] = 0;
    say("%s%s\n", title, text);
}

static void mask_now(const char* title) {
    sigset_t now;
    sigemptyset(&now);
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    print_mask(title, now);
}

static void raise_fault(const char* kind);

static void common(int number) {
    const int error = errno;
    calls = calls + 1;
    char here = 0;
    say("handler %d call %d errno %d alternate %d\n", number, static_cast<int>(calls), error,
        &here >= reinterpret_cast<char*>(stack_memory) &&
            &here < reinterpret_cast<char*>(stack_memory + sizeof stack_memory));
    mask_now("mask in handler");
    if (touches) say("in handler: %u wrong\n", data->touch(1000 + static_cast<unsigned>(calls)));
    if (nested && calls == 1) raise_fault("null");
    if (calls > 5) _exit(7);
    errno = error;
    if (leaves) siglongjmp(way_out, 1);
    if (opens) {
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0) _exit(8);
    }
}

static void simple(int number) { common(number); }
static void other(int number) { say("the other handler %d\n", number); }

static void informed(int number, siginfo_t* info, void*) {
    auto* address = static_cast<unsigned char*>(info->si_addr);
    say("signo %d code %d errno %d", info->si_signo, info->si_code, info->si_errno);
    if (info->si_code > 0) {
        if (address >= page && address < page + 4096) {
            say(" address page+%ld\n", static_cast<long>(address - page));
        } else if (file_page != nullptr && address >= file_page && address < file_page + 4096) {
            say(" address file+%ld\n", static_cast<long>(address - file_page));
        } else {
            say(" address %p\n", static_cast<void*>(address));
        }
    } else {
        say(" sender me %d\n", info->si_pid == getpid() && info->si_uid == getuid());
    }
    common(number);
}

static void raise_fault(const char* kind) {
    if (std::strcmp(kind, "null") == 0) *reinterpret_cast<volatile unsigned char*>(near_null) = 1;
    if (std::strcmp(kind, "read") == 0) {
        volatile unsigned char value = *static_cast<volatile unsigned char*>(page + 77);
        (void)value;
    }
    if (std::strcmp(kind, "write") == 0) static_cast<volatile unsigned char*>(page)[78] = 2;
    if (std::strcmp(kind, "raise") == 0) raise(SIGSEGV);
    if (std::strcmp(kind, "kill") == 0) kill(getpid(), SIGSEGV);
    if (std::strcmp(kind, "queue") == 0) sigqueue(getpid(), SIGSEGV, sigval{});
    if (std::strcmp(kind, "noncanonical") == 0) *reinterpret_cast<volatile unsigned char*>(noncanonical) = 3;
    if (std::strcmp(kind, "execute") == 0) reinterpret_cast<void (*)()>(page)();
    if (std::strcmp(kind, "bus") == 0) static_cast<volatile unsigned char*>(file_page)[79] = 4;
}

static void set_action(int number, int flags, bool mask_all) {
    struct sigaction action = {};
    if ((flags & SA_SIGINFO) != 0) {
        action.sa_sigaction = informed;
    } else {
        action.sa_handler = simple;
    }
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    if (mask_all) sigfillset(&action.sa_mask);
    struct sigaction old = {};
    if (sigaction(number, &action, &old) != 0) say("sigaction failed: %d\n", errno);
    say("before it was %s\n", old.sa_handler == SIG_DFL ? "default" : "something");
}

static void print_action(int number) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    const char* name = now.sa_handler == SIG_DFL      ? "default"
                       : now.sa_handler == SIG_IGN    ? "ignored"
                       : now.sa_handler == simple     ? "simple"
                       : now.sa_handler == other      ? "other"
                       : now.sa_sigaction == informed ? "informed"
                                                      : "strange";
    say("now %s flags %x\n", name, static_cast<unsigned>(now.sa_flags));
    print_mask("its mask", now.sa_mask);
}

static bool has(const char* list, const char* word) { return std::strstr(list, word) != nullptr; }

static void install(const char* how) {
    const int number = has(how, "bus") ? SIGBUS : SIGSEGV;
    stack_t stack = {};
    stack.ss_sp = stack_memory;
    stack.ss_size = sizeof stack_memory;
    if (has(how, "onstack")) sigaltstack(&stack, nullptr);
    if (has(how, "smallstack")) {
        stack.ss_size = 8192;
        sigaltstack(&stack, nullptr);
    }
    int flags = 0;
    if (has(how, "siginfo")) flags |= SA_SIGINFO;
    if (has(how, "stack")) flags |= SA_ONSTACK;
    if (has(how, "resethand")) flags |= static_cast<int>(SA_RESETHAND);
    if (has(how, "nodefer")) flags |= SA_NODEFER;
    if (has(how, "restart")) flags |= SA_RESTART;
    if (has(how, "handler") || has(how, "siginfo")) set_action(number, flags, has(how, "maskall"));
    if (has(how, "signal()")) {
        say("signal() returned %s\n", signal(number, other) == SIG_DFL ? "default" : "something");
        say("signal() returned the earlier one: %d\n", signal(number, simple) == other);
    }
    if (has(how, "ignore")) signal(number, SIG_IGN);
    if (has(how, "default")) signal(number, SIG_DFL);
    if (has(how, "sysv")) __sysv_signal(number, simple);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    if (has(how, "blockall")) sigfillset(&set);
    if (has(how, "block")) sigprocmask(SIG_BLOCK, &set, nullptr);
    leaves = has(how, "leaves");
    opens = has(how, "opens");
    touches = has(how, "touches");
    nested = has(how, "nested");
    print_action(number);
}

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    plain = std::strcmp(argv[1], "plain") == 0;
    const char *how = argv[2], *kind = argv[3];
    const bool early = std::strcmp(argv[4], "early") == 0;
    page = static_cast<unsigned char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (has(kind, "bus")) {
        const int file = memfd_create("short", 0);
        file_page = static_cast<unsigned char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        close(file);
    }
    if (early) install(how);
    data = new Data(5000);
    say("before: %u wrong\n", data->work(1));
    if (!early) install(how);
    mask_now("mask");
    say("installed: %u wrong\n", data->work(2));
    for (unsigned round = 0; round < 3; ++round) {
        if (sigsetjmp(way_out, 1) == 0) {
            errno = 77;
            raise_fault(kind);
            say("went on, errno %d\n", errno);
        } else {
            say("left the handler\n");
        }
        if (opens) mprotect(page, 4096, PROT_NONE);
        mask_now("mask");
        print_action(has(how, "bus") ? SIGBUS : SIGSEGV);
        say("round %u: %u wrong\n", round, data->work(10 + round));
    }
    if (has(how, "block")) {
        sigset_t set, old;
        sigpending(&set);
        print_mask("unblocking; pending", set);
        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        sigprocmask(SIG_UNBLOCK, &set, &old);
        print_mask("mask was", old);
        say("unblocked: %u wrong\n", data->work(20));
    }
    say("all: %u wrong\n", data->check_all());
    return 0;
}
