// SPDX-License-Identifier: MIT
// Linking as the soft device alone does it: machine code is refused, and a variable that a module declares and nobody
// defines is memory of the host, as cuda.h says of CU_JIT_GLOBAL_SYMBOL_NAMES. (The driver of an H200, 580.159, refuses
// these options, and gives such a variable memory of its own.)
#include <cstdio>

#include "driver.h"

struct Driver {
    DRIVER_FUNCTION(cuLinkCreate, 6050)
    DRIVER_FUNCTION(cuLinkAddData, 6050)
    DRIVER_FUNCTION(cuLinkDestroy, 5050)
    DRIVER_FUNCTION(cuModuleLoadData, 2000)
    DRIVER_FUNCTION(cuModuleLoadDataEx, 2010)
    DRIVER_FUNCTION(cuModuleGetFunction, 2000)
    DRIVER_FUNCTION(cuModuleUnload, 2000)
    DRIVER_FUNCTION(cuLaunchKernel, 4000)
};

static void machine_code(const Driver& d) {
    CUlinkState state;
    DRIVER(d.cuLinkCreate(0, nullptr, nullptr, &state));
    char bytes[64] = "\x7f" "ELF";
    for (const CUjitInputType type : {CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_LIBRARY})
        ANSWERS(CUDA_ERROR_NOT_SUPPORTED,
                d.cuLinkAddData(state, type, bytes, sizeof bytes, nullptr, 0, nullptr, nullptr));
    DRIVER(d.cuLinkDestroy(state));
}

static void host_variable(const Driver& d) {
    static const char text[] = R"(.version 7.0
.target sm_75
.address_size 64
.extern .global .align 4 .u32 counter[2];
.visible .entry count () { .reg .b32 %r<3>; ld.global.u32 %r1, [counter+4]; add.s32 %r1, %r1, 1;
    st.global.u32 [counter], %r1; ret; }
)";
    unsigned* counter;
    CUDA(cudaMallocHost(&counter, 8));
    counter[0] = 0, counter[1] = 41;
    const char* symbols[] = {"counter"};
    void* addresses[] = {counter};
    CUjit_option names[] = {CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_GLOBAL_SYMBOL_COUNT};
    void* values[] = {symbols, addresses, reinterpret_cast<void*>(1)};
    CUmodule module;
    EXPECT(d.cuModuleLoadData(&module, text) != CUDA_SUCCESS);
    DRIVER(d.cuModuleLoadDataEx(&module, text, 3, names, values));
    CUfunction kernel;
    DRIVER(d.cuModuleGetFunction(&kernel, module, "count"));
    DRIVER(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CUDA(cudaDeviceSynchronize());
    EXPECT(counter[0] == 42);
    DRIVER(d.cuModuleUnload(module));
    CUDA(cudaFreeHost(counter));
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    machine_code(d);
    host_variable(d);
    std::puts("link soft: ok");
}
