// SPDX-License-Identifier: MIT
// A library that uses CUDA from its constructor and its destructor, and looks names up for the test of dlsym: what
// RTLD_NEXT finds depends on who asks.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>

static unsigned char* memory;

__attribute__((constructor)) static void begin() {
    if (cudaMalloc(reinterpret_cast<void**>(&memory), 5000) != cudaSuccess ||
        cudaMemset(memory, 42, 5000) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) {
        std::fprintf(stderr, "the plugin cannot use CUDA\n");
    }
}

__attribute__((destructor)) static void end() { cudaFree(memory); }

extern "C" unsigned char* plugin_memory() { return memory; }
