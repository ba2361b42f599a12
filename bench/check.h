// SPDX-License-Identifier: MIT
// What the programs of this folder share: a CUDA call without which there is nothing to measure.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#define CHECK(call)                                                                 \
    do {                                                                            \
        const cudaError_t check_error = (call);                                     \
        if (check_error != cudaSuccess) {                                           \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(check_error)); \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)
