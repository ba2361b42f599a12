// SPDX-License-Identifier: MIT
// A program without MPI, which looks for one as programs do, and may open a library that has it.
// usage: mpi_opens [LIBRARY [now] WAY]
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern int MPI_Initialized(int*) __attribute__((weak));
extern int MPI_Send(void) __attribute__((weak));

int main(int argc, char** argv) {
    void* object;
    cudaMalloc(&object, 100);
    memset(object, 1, 100);
    if (MPI_Initialized || MPI_Send || dlsym(RTLD_DEFAULT, "MPI_Send") || dlsym(RTLD_DEFAULT, "MPI_Initialized") ||
        dlsym(RTLD_NEXT, "PMPI_Send")) {
        printf("an MPI was found\n");
        return 1;
    }
    if (argc == 1) return printf("no MPI\n") < 0;
    void* library = dlopen(argv[1], RTLD_LOCAL | (argc == 4 ? RTLD_NOW : RTLD_LAZY));
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    int (*exchange)(const char*) = (int (*)(const char*))dlsym(library, "exchange");
    return exchange(argv[argc - 1]);
}
