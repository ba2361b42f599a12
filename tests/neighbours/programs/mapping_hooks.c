// SPDX-License-Identifier: MIT
// Stands in front of libc's mapping functions to keep a cache of registered memory, as UCX, libfabric and Open MPI do.
// Built three times: with HOOKS_EXPORT it defines the functions and wraps them by being preloaded; with HOOKS_PATCH it
// writes jumps over libc's own functions, as those libraries do; with HOOKS_UCM the real libucm of UCX does that.
//
// mremap takes four arguments, as UCX's does: a fifth is lost.
//
// hooks_begin(at) begins to watch a byte, hooks_saw_end() says whether its range was unmapped since.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile uintptr_t watched;
static volatile int seen;

void hooks_begin(void* at) {
    watched = (uintptr_t)at;
    seen = 0;
}
int hooks_saw_end(void) { return seen; }

static void ends(uintptr_t at, size_t bytes) {
    if (watched - at < bytes) seen = 1;
}

#ifdef HOOKS_UCM
// The parts of ucm/api/ucm.h that are used here.
enum { UCM_EVENT_VM_UNMAPPED = 1 << 17 };
typedef union {
    struct {
        void* address;
        size_t size;
    } vm_unmapped;
    char room[128];
} ucm_event_t;
static void on_event(int type, ucm_event_t* event, void* argument) {
    (void)argument;
    if (type == UCM_EVENT_VM_UNMAPPED) ends((uintptr_t)event->vm_unmapped.address, event->vm_unmapped.size);
}
__attribute__((constructor)) static void begin(void) {
    dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // which libucm needs without saying so
    void* ucm = dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
    int (*set)(int, int, void (*)(int, ucm_event_t*, void*), void*) = NULL;
    if (ucm != NULL) *(void**)&set = dlsym(ucm, "ucm_set_event_handler");
    if (set == NULL || set(UCM_EVENT_VM_UNMAPPED, 0, on_event, NULL) != 0) {
        fprintf(stderr, "no events from libucm\n");
        exit(77);
    }
}
#else

#ifdef HOOKS_EXPORT
#define HOOK(name) name
#else
#define HOOK(name) hook_##name
#endif

// Not the function syscall(): one of the two ways must not depend on what the other does.
static long as_libc(long result) {
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}
static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return as_libc(number);
}

__attribute__((visibility("default"))) void* HOOK(mmap)(void* at, size_t bytes, int protection, int flags, int file,
                                                        off_t offset) {
    if ((flags & MAP_FIXED) != 0) ends((uintptr_t)at, bytes);
    return (void*)call(SYS_mmap, (long)at, (long)bytes, protection, flags, file, offset);
}
__attribute__((visibility("default"))) int HOOK(munmap)(void* at, size_t bytes) {
    ends((uintptr_t)at, bytes);
    return (int)call(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0);
}
__attribute__((visibility("default"))) void* HOOK(mremap)(void* from, size_t old_bytes, size_t bytes, int flags, ...) {
    ends((uintptr_t)from, old_bytes);
    return (void*)call(SYS_mremap, (long)from, (long)old_bytes, (long)bytes, flags, 0, 0);
}
__attribute__((visibility("default"))) int HOOK(mprotect)(void* at, size_t bytes, int protection) {
    return (int)call(SYS_mprotect, (long)at, (long)bytes, protection, 0, 0, 0);
}
__attribute__((visibility("default"))) int HOOK(madvise)(void* at, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED || advice == MADV_REMOVE) ends((uintptr_t)at, bytes);
    return (int)call(SYS_madvise, (long)at, (long)bytes, advice, 0, 0, 0);
}

#ifdef HOOKS_PATCH
static void patch(void* libc, const char* name, uintptr_t hook) {
    unsigned char* function = dlsym(libc, name);
    const uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, hook; jmp rax
    memcpy(jump + 2, &hook, sizeof hook);
    if (function == NULL || call(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0) != 0) {
        fprintf(stderr, "cannot patch %s\n", name);
        exit(77);
    }
    memcpy(function, jump, sizeof jump);
    call(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_EXEC, 0, 0, 0);
}
__attribute__((constructor)) static void begin(void) {
    void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    patch(libc, "mmap", (uintptr_t)hook_mmap);
    patch(libc, "munmap", (uintptr_t)hook_munmap);
    patch(libc, "mremap", (uintptr_t)hook_mremap);
    patch(libc, "mprotect", (uintptr_t)hook_mprotect);
    patch(libc, "madvise", (uintptr_t)hook_madvise);
}
#endif
#endif
