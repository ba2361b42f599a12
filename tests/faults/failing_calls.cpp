// SPDX-License-Identifier: MIT
// Preloaded behind libhpe.so: lets the system calls that libhpe makes fail with ENOMEM (EAGAIN for pthread_create), and
// nobody else's.
//
// HPE_TEST_FAIL=RULE[,RULE]: NAME:N the Nth call fails; NAME:N+ that and all later ones; NAME:split every call that
// would split a mapping, as at the limit on mappings. HPE_TEST_COUNT=FILE: how often each was called, at exit.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Name { Mmap, Mremap, Mprotect, Madvise, Munmap, Sigaltstack, PthreadCreate, kNames };
constexpr const char* names[kNames] = {"mmap",   "mremap",      "mprotect",      "madvise",
                                       "munmap", "sigaltstack", "pthread_create"};

struct Rule {
    unsigned first = 0, last = 0;  // calls that fail, counted from 1
    bool split = false;
};
Rule rules[kNames];
std::atomic<unsigned> calls[kNames];
std::uintptr_t begin_of_libhpe = 0, end_of_libhpe = 0;

int look_for_libhpe(dl_phdr_info* info, std::size_t, void*) {
    const char* slash = std::strrchr(info->dlpi_name, '/');
    if (std::strcmp(slash != nullptr ? slash + 1 : info->dlpi_name, "libhpe.so") != 0) return 0;
    begin_of_libhpe = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        const auto end = info->dlpi_addr + part.p_vaddr + part.p_memsz;
        if (part.p_type == PT_LOAD && end > end_of_libhpe) end_of_libhpe = end;
    }
    return 1;
}

void stop(const char* what) {
    std::fprintf(stderr, "failing_calls: %s\n", what);
    _exit(99);
}

void parse(const char* text) {
    while (*text != '\0') {
        const char* colon = std::strchr(text, ':');
        if (colon == nullptr) stop("a rule is NAME:N, NAME:N+ or NAME:split");
        Rule* rule = nullptr;
        for (int i = 0; i < kNames; ++i) {
            const auto length = static_cast<std::size_t>(colon - text);
            if (std::strlen(names[i]) == length && std::strncmp(names[i], text, length) == 0) rule = &rules[i];
        }
        if (rule == nullptr) stop("unknown name");
        const char* at = colon + 1;
        if (std::strncmp(at, "split", 5) == 0) {
            rule->split = true;
            at += 5;
        } else {
            char* end = nullptr;
            rule->first = rule->last = static_cast<unsigned>(std::strtoul(at, &end, 10));
            at = end;
            if (*at == '+') {
                rule->last = ~0u;
                ++at;
            }
        }
        if (*at != '\0' && *at != ',') stop("a rule is NAME:N, NAME:N+ or NAME:split");
        text = *at == ',' ? at + 1 : at;
    }
}

__attribute__((constructor)) void start() {
    dl_iterate_phdr(look_for_libhpe, nullptr);
    if (const char* text = std::getenv("HPE_TEST_FAIL")) parse(text);
}

__attribute__((destructor)) void finish() {
    const char* file = std::getenv("HPE_TEST_COUNT");
    FILE* out = file != nullptr ? std::fopen(file, "w") : nullptr;
    if (out == nullptr) return;
    for (int i = 0; i < kNames; ++i) std::fprintf(out, "%s %u\n", names[i], calls[i].load());
    std::fclose(out);
}

// Whether [begin, end) ends within a mapping on either side. Reads the kernel's list, with system calls only.
bool splits(std::uintptr_t begin, std::uintptr_t end) {
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
    if (fd < 0) return false;
    bool found = false, in_line = false;
    std::uintptr_t value = 0, first = 0;
    char buffer[4096];
    for (;;) {
        const auto n = syscall(SYS_read, fd, buffer, sizeof buffer);
        if (n <= 0) break;
        for (long i = 0; i < n; ++i) {
            const char c = buffer[i];
            if (c == '\n') {
                in_line = false;
                value = 0;
            } else if (in_line) {
                continue;
            } else if (c == '-') {
                first = value;
                value = 0;
            } else if (c == ' ') {
                found |= (first < begin && begin < value) || (first < end && end < value);
                in_line = true;
            } else {
                value = value * 16 + static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
            }
        }
    }
    syscall(SYS_close, fd);
    return found;
}

bool fails(Name name, void* caller, const void* address = nullptr, std::size_t bytes = 0) {
    const auto at = reinterpret_cast<std::uintptr_t>(caller);
    if (at < begin_of_libhpe || at >= end_of_libhpe) return false;
    const unsigned number = calls[name].fetch_add(1) + 1;
    const Rule& rule = rules[name];
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const int saved = errno;
    const bool fail = (number >= rule.first && number <= rule.last) || (rule.split && splits(begin, begin + bytes));
    errno = fail ? ENOMEM : saved;
    return fail;
}

template <class Function>
Function* real(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
    if (fails(Mmap, CALLER)) return MAP_FAILED;
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

// The name under which programs with 64-bit file offsets call it.
void* mmap64(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
    if (fails(Mmap, CALLER)) return MAP_FAILED;
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

void* mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, ...) noexcept {
    va_list rest;
    va_start(rest, flags);
    void* target = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
    va_end(rest);
    if (fails(Mremap, CALLER)) return MAP_FAILED;
    return reinterpret_cast<void*>(syscall(SYS_mremap, old, old_bytes, bytes, flags, target));
}

int mprotect(void* address, std::size_t bytes, int protection) noexcept {
    if (fails(Mprotect, CALLER, address, bytes)) return -1;
    return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
}

int madvise(void* address, std::size_t bytes, int advice) noexcept {
    if (fails(Madvise, CALLER, address, bytes)) return -1;
    return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
}

int munmap(void* address, std::size_t bytes) noexcept {
    if (fails(Munmap, CALLER, address, bytes)) return -1;
    return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
    if (fails(Sigaltstack, CALLER)) return -1;
    return static_cast<int>(syscall(SYS_sigaltstack, stack, old));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
    if (fails(PthreadCreate, CALLER)) return EAGAIN;
    return real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create")(thread, attributes,
                                                                                                   run, argument);
}

}  // extern "C"
