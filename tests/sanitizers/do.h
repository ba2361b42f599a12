// SPDX-License-Identifier: MIT
// What the programs of this folder share: a driver call that has to succeed.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#define DO(call)                                                                      \
    do {                                                                              \
        const CUresult result_ = (call);                                              \
        if (result_ != CUDA_SUCCESS) {                                                \
            std::fprintf(stderr, "%s: error %d\n", #call, static_cast<int>(result_)); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)
