// SPDX-License-Identifier: MIT
// Driver functions in the programs of this folder, which are linked with the runtime alone: each is asked for by name.
//   struct Driver { DRIVER_FUNCTION(cuLinkCreate, 6050) ... } d;     d.cuLinkCreate(...)
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "check.h"

template <class Function>
Function driver_function(const char* name, unsigned version) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    CUDA(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    EXPECT(result == cudaDriverEntryPointSuccess);
    return reinterpret_cast<Function>(found);
}
// The version is the one of its PFN_ type.
#define DRIVER_FUNCTION(name, version) \
    PFN_##name##_v##version name = driver_function<PFN_##name##_v##version>(#name, version);

// A driver call and the result that it must have.
#define ANSWERS(expected, call)                                                                              \
    do {                                                                                                     \
        const CUresult result_ = (call);                                                                     \
        if (result_ != (expected)) {                                                                         \
            std::fprintf(stderr, "%s:%d: %s: %d and not %s\n", __FILE__, __LINE__, #call, static_cast<int>(result_), \
                         #expected);                                                                         \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)
#define DRIVER(call) ANSWERS(CUDA_SUCCESS, call)
