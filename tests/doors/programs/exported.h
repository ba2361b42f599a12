// SPDX-License-Identifier: MIT
// Memory that other processes may write, for programs of this folder.
#pragma once

#include <atomic>
#include <csignal>

#include "program.h"

// Others may write it from now on.
inline void export_to_others(void* memory) {
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, memory));
}

// SIGUSR1 has a handler that stores to the memory.
inline Data* stored_to;
inline std::atomic<int> times_handled{0};
inline void store_in_handler(Data& data) {
    stored_to = &data;
    struct sigaction action = {};
    action.sa_handler = [](int) {
        if (plain) *static_cast<volatile unsigned*>(stored_to->gpu + 3000) = 12;
        ++times_handled;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
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
