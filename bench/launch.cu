// SPDX-License-Identifier: MIT
// What libhpe adds to a launch: LAUNCHES launches of an empty kernel, back to back and without waiting, through the
// function that programs are given (libhpe's door, when it is preloaded) and through the driver's own, in turn within
// one process. From one process to the next the same launch differs by more than what is asked here.
//
//   launch [LAUNCHES [BATCH]]   prints, for every BATCH launches: nanoseconds a launch given, nanoseconds a launch true
//   launch startup              initialises CUDA and ends
//
// Without libhpe both are one function: the control.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda.h>
#include <cuda_runtime.h>

__global__ void empty() {}

using Launch = decltype(&cuLaunchKernel);

// The definition in libcuda's own symbol table, which no preloaded library can answer for.
static Launch true_launch(void* libcuda) {
    link_map* map = nullptr;
    if (dlinfo(libcuda, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    }
    if (symbols == nullptr || names == nullptr) return nullptr;
    // The string table follows the symbols in every linker's layout.
    for (const ElfW(Sym)* symbol = symbols; reinterpret_cast<const char*>(symbol) < names; ++symbol) {
        if (symbol->st_value != 0 && std::strcmp(names + symbol->st_name, "cuLaunchKernel") == 0) {
            return reinterpret_cast<Launch>(map->l_addr + symbol->st_value);
        }
    }
    return nullptr;
}

static double time_launches(Launch launch, CUfunction kernel, int count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / count;
}

int main(int argc, char** argv) {
    if (cudaFree(nullptr) != cudaSuccess) return 1;
    if (argc > 1 && std::strcmp(argv[1], "startup") == 0) return 0;
    const int launches = argc > 1 ? std::atoi(argv[1]) : 100000, batch = argc > 2 ? std::atoi(argv[2]) : 250;
    void* object = nullptr;  // one that the CPU never touches
    cudaFunction_t function = nullptr;
    if (cudaMalloc(&object, 1 << 20) != cudaSuccess ||
        cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(empty)) != cudaSuccess)
        return 1;
    void* libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    const auto given = reinterpret_cast<Launch>(dlsym(libcuda, "cuLaunchKernel"));
    const Launch own = true_launch(libcuda);
    if (given == nullptr || own == nullptr) return 1;
    const auto kernel = static_cast<CUfunction>(function);
    for (int done = -10 * batch, turn = 0; done < launches; done += batch, ++turn) {
        double took[2];
        for (int k = 0; k < 2; ++k) {
            const bool first = (k == 0) == (turn % 2 == 0);
            took[first ? 0 : 1] = time_launches(first ? given : own, kernel, batch);
            if (cudaDeviceSynchronize() != cudaSuccess) return 1;
        }
        if (done >= 0) std::printf("%.1f %.1f\n", took[0], took[1]);
    }
    return 0;
}
