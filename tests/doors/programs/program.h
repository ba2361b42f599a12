// SPDX-License-Identifier: MIT
// What the programs of this folder share. Each is run as `program FORM CASE...`: with FORM "copy" it copies its data
// explicitly and needs no libhpe, with "plain" the CPU uses the pointer that cudaMalloc returned. Both forms print the
// same lines. Nothing here knows of libhpe.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

#include "../../apps/app.h"

inline bool plain = false;

// write(2), so that it may be used in signal handlers and keeps its order with a crash.
__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0 && write(STDOUT_FILENO, text, static_cast<std::size_t>(length)) != length) _exit(99);
}

// CHECK for the driver API, of programs that are linked with libcuda too.
#define CHECK_CU(call)                                                   \
    do {                                                                 \
        const CUresult check_result = (call);                            \
        if (check_result != CUDA_SUCCESS) {                              \
            std::fprintf(stderr, "%s: error %d\n", #call, check_result); \
            std::exit(1);                                                \
        }                                                                \
    } while (0)

// CHECK for threads that may still run while the process exits: the runtime has been taken down under them then, with
// libhpe and without, and they have nothing more to say.
#define CHECK_WHILE_LOADED(call)                             \
    do {                                                     \
        const cudaError_t result_ = (call);                  \
        while (result_ == cudaErrorCudartUnloading) pause(); \
        CHECK(result_);                                      \
    } while (false)

// Threads of no library but libc. `work` outlives the thread.
template <class Work>
inline pthread_t start(Work& work) {
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void* argument) -> void* {
            (*static_cast<Work*>(argument))();
            return nullptr;
        },
        &work);
    return thread;
}

template <int = 0>
__global__ void advance(unsigned* data, unsigned n, unsigned key) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * 1664525u + key + i;
}

// A CPU access to a value in device memory.
template <class T>
T load(const T* from) {
    T value;
    if (plain) {
        value = *const_cast<const volatile T*>(from);
    } else {
        CHECK(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    }
    return value;
}
template <class T>
void store(T* to, T value) {
    if (plain) {
        *const_cast<volatile T*>(to) = value;
    } else {
        CHECK(cudaMemcpy(to, &value, sizeof value, cudaMemcpyHostToDevice));
    }
}

// An array that the CPU and the GPU use, and a plain array beside it that says what it must hold.
struct Data {
    unsigned* gpu = nullptr;
    unsigned count = 0;
    unsigned* model = nullptr;
    unsigned round = 0;

    explicit Data(unsigned n) : Data(n, allocated(n)) {}
    // In memory of the caller's, which may hold anything.
    Data(unsigned n, unsigned* memory)
        : gpu(memory), count(n), model(static_cast<unsigned*>(std::calloc(n, sizeof(unsigned)))) {
        CHECK_WHILE_LOADED(cudaMemset(gpu, 0, n * sizeof(unsigned)));
        CHECK_WHILE_LOADED(cudaDeviceSynchronize());
    }
    static unsigned* allocated(unsigned n) {
        unsigned* memory = nullptr;
        CHECK_WHILE_LOADED(cudaMalloc(&memory, n * sizeof(unsigned)));
        return memory;
    }
    unsigned get(unsigned i) const {
        if (plain) return static_cast<volatile unsigned*>(gpu)[i];
        unsigned value = 0;
        CHECK_WHILE_LOADED(cudaMemcpy(&value, gpu + i, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }
    void set(unsigned i, unsigned value) {
        model[i] = value;
        if (plain) {
            static_cast<volatile unsigned*>(gpu)[i] = value;
        } else {
            CHECK_WHILE_LOADED(cudaMemcpy(gpu + i, &value, sizeof value, cudaMemcpyHostToDevice));
        }
    }
    void launch() {
        launch_quietly();
        CHECK(cudaGetLastError());
    }
    // Leaves the last error as it is.
    void launch_quietly() {
        advance<><<<blocks_for(count, 128), 128>>>(gpu, count, ++round);
        for (unsigned i = 0; i < count; ++i) model[i] = model[i] * 1664525u + round + i;
    }
    // CPU accesses only: reads some elements and writes some. Returns how many were wrong.
    unsigned touch(unsigned seed) {
        unsigned wrong = 0;
        for (unsigned k = 0; k < 8; ++k) {
            const unsigned i = (seed * 2654435761u + k * 40503u) % count;
            wrong += get(i) != model[i];
            set(i, seed + k);
            wrong += get(i) != seed + k;
        }
        return wrong;
    }
    // A launch, a wait, CPU accesses.
    unsigned work(unsigned seed) {
        launch();
        CHECK(cudaDeviceSynchronize());
        return touch(seed);
    }
    unsigned check_all() const {
        CHECK(cudaDeviceSynchronize());
        unsigned wrong = 0;
        const unsigned step = plain ? 1 : 97;
        for (unsigned i = 0; i < count; i += step) wrong += get(i) != model[i];
        return wrong;
    }
};

struct Case {
    const char* name;
    void (*run)(int argc, char** argv);
};

template <std::size_t n>
int run_case(const Case (&cases)[n], int argc, char** argv) {
    if (argc < 3) {
        for (const Case& c : cases) std::printf("%s\n", c.name);
        return argc == 1 ? 0 : 2;
    }
    plain = std::strcmp(argv[1], "plain") == 0;
    for (const Case& c : cases) {
        if (std::strcmp(c.name, argv[2]) != 0) continue;
        c.run(argc - 3, argv + 3);
        say("end of %s\n", c.name);
        return 0;
    }
    std::fprintf(stderr, "no case %s\n", argv[2]);
    return 2;
}
