// SPDX-License-Identifier: MIT
// A plain C program that never uses CUDA: threads, signals, a fork, a library opened at run time, files.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { thread_count = 4, length = 1 << 16 };

static uint64_t checksum(const void* data, size_t bytes) {
    uint64_t value = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < bytes; ++i) value = (value ^ ((const unsigned char*)data)[i]) * 0x100000001b3ull;
    return value;
}

static unsigned char* volatile page;  // read by the handler
static size_t page_size;
static volatile sig_atomic_t faults;

static void on_fault(int number, siginfo_t* info, void* context) {
    (void)number;
    (void)context;
    if (info->si_addr != page + 5) _exit(3);
    ++faults;
    mprotect(page, page_size, PROT_READ | PROT_WRITE);
}

static void* work(void* argument) {
    unsigned* data = argument;
    unsigned value = data[0];
    for (int i = 0; i < length; ++i) data[i] = value = value * 1664525u + 1013904223u;
    return NULL;
}

// Every bit, those of the signals that libc sends its threads too.
static void* block_every_bit(void* ready) {
    sigset_t set;
    memset(&set, 0xff, sizeof set);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    sem_post(ready);
    for (;;) pause();
    return NULL;
}

int main(void) {
    static unsigned data[thread_count][length];
    pthread_t threads[thread_count];
    for (int t = 0; t < thread_count; ++t) {
        data[t][0] = (unsigned)t;
        if (pthread_create(&threads[t], NULL, work, data[t]) != 0) return 2;
    }
    for (int t = 0; t < thread_count; ++t) pthread_join(threads[t], NULL);

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    page = mmap(NULL, page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5] = 42;

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) _exit(page[5]);
    int status = 0;
    waitpid(child, &status, 0);

    void* library = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = NULL;
    if (library != NULL) *(void**)&cosine = dlsym(library, "cos");
    const double one = cosine != NULL ? cosine(0.0) : -1.0;
    if (library != NULL) dlclose(library);

    char text[32] = "";
    FILE* file = tmpfile();
    if (file != NULL) {
        fputs("written and read", file);
        rewind(file);
        if (fgets(text, sizeof text, file) == NULL) text[0] = 0;
        fclose(file);
    }
    sem_t ready;
    sem_init(&ready, 0, 0);
    pthread_t masked;
    if (pthread_create(&masked, NULL, block_every_bit, &ready) != 0) return 4;
    sem_wait(&ready);
    const int user = setuid(getuid());
    void* result = NULL;
    pthread_cancel(masked);
    pthread_join(masked, &result);
    errno = 0;
    sigset_t none;
    sigemptyset(&none);
    const int bad = pthread_sigmask(17, &none, NULL);
    printf("no_cuda setuid=%d cancelled=%d bad=%d errno=%d\n", user, result == PTHREAD_CANCELED, bad == EINVAL, errno);

    printf("no_cuda faults=%d child=%d cos=%.1f file=%s\n", (int)faults, WEXITSTATUS(status), one, text);
    printf("checksum %016llx\n", (unsigned long long)checksum(data, sizeof data));
    return 0;
}
