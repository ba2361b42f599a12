// SPDX-License-Identifier: MIT
// Memory that other processes may write, for programs of this folder.
#pragma once

#include "program.h"

// Others may write it from now on.
inline void export_to_others(void* memory) {
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, memory));
}

// Of a size that has addresses of its own, exported.
constexpr unsigned many = 1u << 20;
inline Data exported(unsigned n = many) {
    Data data(n);
    data.set(1, 5);  // the CPU has used it before
    data.work(1);
    export_to_others(data.gpu);
    return data;
}
