// SPDX-License-Identifier: MIT
// Preloaded behind libhpe.so: lets the system calls that libhpe makes fail with ENOMEM (EAGAIN for pthread_create), and
// nobody else's. libhpe makes them itself, all in one function (shim/base/kernel.h): a jump to ours is written over it,
// as UCX does with libc's functions. pthread_create is libc's, and interposed; so is what gives memory of the heap
// (malloc, for which calloc, realloc and aligned_alloc count, too).
//
// HPE_TEST_FAIL=RULE[,RULE]: NAME:N the Nth call fails; NAME:N-M those do; NAME:N+ that and all later ones;
// NAME:split every call that would split a mapping, as at the limit on mappings. HPE_TEST_COUNT=FILE: how often each
// was called, at exit.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Name { Mmap, Mremap, Mprotect, Madvise, Munmap, Sigaltstack, PthreadCreate, Malloc, kNames };
constexpr const char* names[kNames] = {"mmap",   "mremap",      "mprotect",       "madvise",
                                       "munmap", "sigaltstack", "pthread_create", "malloc"};

struct Rule {
    unsigned first = 0, last = 0;  // calls that fail, counted from 1
    bool split = false;
};
Rule rules[kNames];
std::atomic<unsigned> calls[kNames];
std::uintptr_t begin_of_libhpe = 0, end_of_libhpe = 0;
const char* file_of_libhpe = nullptr;

int look_for_libhpe(dl_phdr_info* info, std::size_t, void*) {
    const char* slash = std::strrchr(info->dlpi_name, '/');
    if (std::strcmp(slash != nullptr ? slash + 1 : info->dlpi_name, "libhpe.so") != 0) return 0;
    begin_of_libhpe = info->dlpi_addr;
    file_of_libhpe = info->dlpi_name;
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
        if (colon == nullptr) stop("a rule is NAME:N, NAME:N-M, NAME:N+ or NAME:split");
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
            } else if (*at == '-') {
                rule->last = static_cast<unsigned>(std::strtoul(at + 1, &end, 10));
                at = end;
            }
        }
        if (*at != '\0' && *at != ',') stop("a rule is NAME:N, NAME:N-M, NAME:N+ or NAME:split");
        text = *at == ',' ? at + 1 : at;
    }
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

bool fails(Name name, std::uintptr_t begin = 0, std::size_t bytes = 0) {
    const unsigned number = calls[name].fetch_add(1) + 1;
    const Rule& rule = rules[name];
    const int saved = errno;
    const bool fail = (number >= rule.first && number <= rule.last) || (rule.split && splits(begin, begin + bytes));
    errno = saved;
    return fail;
}

// In place of hpe::kernel::raw.
long raw(long number, long a, long b, long c, long d, long e, long f) noexcept {
    const auto begin = static_cast<std::uintptr_t>(a);
    const auto bytes = static_cast<std::size_t>(b);
    const bool fail = (number == SYS_mmap && fails(Mmap)) || (number == SYS_mremap && fails(Mremap)) ||
                      (number == SYS_mprotect && fails(Mprotect, begin, bytes)) ||
                      (number == SYS_madvise && fails(Madvise, begin, bytes)) ||
                      (number == SYS_munmap && fails(Munmap, begin, bytes)) ||
                      (number == SYS_sigaltstack && fails(Sigaltstack));
    if (fail) return -ENOMEM;
    // Not by syscall(): that is a door of libhpe's, too.
    long result = number;
    register long fourth asm("r10") = d;
    register long fifth asm("r8") = e;
    register long sixth asm("r9") = f;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                 : "rcx", "r11", "memory");
    return result;
}

// Where a function of libhpe.so is, by the symbol table of its file: it exports none of its own.
unsigned char* function_of_libhpe(const char* name) {
    const int fd = open(file_of_libhpe, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) stop("cannot open libhpe.so");
    const auto* file = static_cast<const unsigned char*>(
        mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0));
    close(fd);
    if (file == MAP_FAILED) stop("cannot map libhpe.so");
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
    for (int i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[i].sh_offset);
        const auto* strings = reinterpret_cast<const char*>(file + sections[sections[i].sh_link].sh_offset);
        for (std::size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
            if (std::strcmp(strings + symbols[k].st_name, name) == 0) {
                return reinterpret_cast<unsigned char*>(begin_of_libhpe + symbols[k].st_value);
            }
        }
    }
    stop("libhpe.so has no such function: is it stripped?");
    return nullptr;
}

void jump_instead(unsigned char* function, std::uintptr_t target) {
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, target; jmp rax
    std::memcpy(jump + 2, &target, sizeof target);
    constexpr std::uintptr_t kPage = 4096;
    auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(function) & ~(kPage - 1));
    if (mprotect(page, 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) stop("cannot write to libhpe's code");
    std::memcpy(function, jump, sizeof jump);
    mprotect(page, 2 * kPage, PROT_READ | PROT_EXEC);
}

__attribute__((constructor)) void start() {
    if (dl_iterate_phdr(look_for_libhpe, nullptr) == 0) return;  // a child without it
    jump_instead(function_of_libhpe("_ZN3hpe6kernel3rawElllllll"), reinterpret_cast<std::uintptr_t>(raw));
    if (const char* text = std::getenv("HPE_TEST_FAIL")) parse(text);
}

bool is_libhpe(const void* caller) {
    const auto at = reinterpret_cast<std::uintptr_t>(caller);
    return at >= begin_of_libhpe && at < end_of_libhpe;
}

}  // namespace

// glibc's own, which need not be looked for: dlsym allocates.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) noexcept {
    return is_libhpe(__builtin_return_address(0)) && fails(Malloc) ? nullptr : __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
    return is_libhpe(__builtin_return_address(0)) && fails(Malloc) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
    return is_libhpe(__builtin_return_address(0)) && fails(Malloc) ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    return is_libhpe(__builtin_return_address(0)) && fails(Malloc) ? nullptr : __libc_memalign(alignment, bytes);
}
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
    if (is_libhpe(__builtin_return_address(0)) && fails(PthreadCreate)) return EAGAIN;
    const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return real(thread, attributes, run, argument);
}
