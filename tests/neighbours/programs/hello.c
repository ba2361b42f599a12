// SPDX-License-Identifier: MIT
// No CUDA anywhere. `hello` uses the heap, signals and a thread; `hello overflow` writes behind the end of its heap.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t caught;
static void on_signal(int number) { caught = number; }
static void* work(void* text) {
    puts(text);
    return NULL;
}

int main(int count, char** arguments) {
    char* text = malloc(10);
    strcpy(text, "hello");
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    pthread_t thread;
    pthread_create(&thread, NULL, work, text);
    pthread_join(thread, NULL);
    printf("caught %d\n", (int)caught);
    fflush(stdout);
    if (count > 1 && strcmp(arguments[1], "overflow") == 0) memset(text, 'x', (size_t)(8 + count));
    free(text);
}
