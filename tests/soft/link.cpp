// SPDX-License-Identifier: MIT
// cuLink*: functions, variables and kernels of several PTX texts in one module; what the linker refuses and what it
// writes into the logs; options.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

#define HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"

// out[i] = scaled(i) + table[i % 4] + helper's number
static const char user[] = HEAD R"(
.extern .func (.param .b32 r) scaled (.param .b32 x);
.extern .global .align 4 .u32 table[4];
.extern .global .align 8 .u64 pointer;
.extern .shared .align 4 .b8 dynamic[];
.func (.param .b32 r) helper () { .reg .b32 %r<2>; mov.u32 %r1, 1000; st.param.b32 [r], %r1; ret; }
.weak .global .align 4 .u32 weight = 7;
.common .global .align 4 .u32 room[2];
.visible .entry sum (.param .u64 out)
{
    .reg .b32 %r<12>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    { .param .b32 p; st.param.b32 [p], %r1; .param .b32 q; call.uni (q), scaled, (p); ld.param.b32 %r2, [q]; }
    { .param .b32 q; call.uni (q), helper, (); ld.param.b32 %r3, [q]; }
    and.b32 %r4, %r1, 3;
    mov.u64 %rd2, table;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r5, [%rd2];
    ld.global.u64 %rd4, [pointer];
    ld.u32 %r6, [%rd4];
    ld.global.u32 %r7, [weight];
    st.shared.u32 [dynamic], %r7;
    ld.shared.u32 %r7, [dynamic];
    ld.global.u32 %r8, [room+12];
    add.s32 %r2, %r2, %r3; add.s32 %r2, %r2, %r5; add.s32 %r2, %r2, %r6; add.s32 %r2, %r2, %r7;
    add.s32 %r2, %r2, %r8;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";
static const char library[] = HEAD R"(
.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .global .align 8 .u64 pointer = generic(table) + 8;
.visible .global .align 4 .u32 weight = 50;
.common .global .align 4 .u32 room[4] = {0, 0, 0, 600000};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) helper () { .reg .b32 %r<2>; mov.u32 %r1, 10; st.param.b32 [r], %r1; ret; }
.visible .func (.param .b32 r) scaled (.param .b32 x)
{
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    { .param .b32 q; call.uni (q), helper, (); ld.param.b32 %r2, [q]; }
    mul.lo.s32 %r3, %r1, %r2;
    st.param.b32 [r], %r3;
    ret;
}
)";

struct Driver {
    DRIVER_FUNCTION(cuLinkCreate, 6050)
    DRIVER_FUNCTION(cuLinkAddData, 6050)
    DRIVER_FUNCTION(cuLinkAddFile, 6050)
    DRIVER_FUNCTION(cuLinkComplete, 5050)
    DRIVER_FUNCTION(cuLinkDestroy, 5050)
    DRIVER_FUNCTION(cuModuleLoadData, 2000)
    DRIVER_FUNCTION(cuModuleLoadDataEx, 2010)
    DRIVER_FUNCTION(cuModuleGetFunction, 2000)
    DRIVER_FUNCTION(cuModuleGetGlobal, 3020)
    DRIVER_FUNCTION(cuModuleUnload, 2000)
    DRIVER_FUNCTION(cuFuncGetAttribute, 2020)
    DRIVER_FUNCTION(cuLaunchKernel, 4000)
};

static CUresult add(const Driver& d, CUlinkState state, const std::string& text, const char* name = nullptr,
                    unsigned count = 0, CUjit_option* names = nullptr, void** values = nullptr) {
    return d.cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()), text.size() + 1, name, count, names,
                           values);
}

// What linking the texts ends with, and its error log.
static CUresult linked(const Driver& d, const std::vector<std::string>& texts, std::string& log) {
    char buffer[512] = "?";
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {buffer, reinterpret_cast<void*>(sizeof buffer)};
    CUlinkState state;
    DRIVER(d.cuLinkCreate(2, names, values, &state));
    char name = 'a';
    for (const std::string& text : texts) {
        const CUresult result = add(d, state, text, std::string(1, name++).c_str());
        if (result != CUDA_SUCCESS) {
            log = buffer;
            DRIVER(d.cuLinkDestroy(state));
            return result;
        }
    }
    void* image;
    const CUresult result = d.cuLinkComplete(state, &image, nullptr);
    log = buffer;
    EXPECT(log.size() == reinterpret_cast<std::size_t>(values[1]));
    DRIVER(d.cuLinkDestroy(state));
    return result;
}

static void run(const Driver& d) {
    char info[4096], error[64];
    CUjit_option names[] = {CU_JIT_WALL_TIME,    CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_LOG_VERBOSE,  CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_MAX_REGISTERS};
    void* values[] = {nullptr, info, reinterpret_cast<void*>(sizeof info), reinterpret_cast<void*>(1), error,
                      reinterpret_cast<void*>(sizeof error), reinterpret_cast<void*>(16)};
    CUlinkState state;
    DRIVER(d.cuLinkCreate(7, names, values, &state));
    DRIVER(add(d, state, user, "user"));
    DRIVER(add(d, state, library, "library"));
    void* image = nullptr;
    std::size_t size = 0;
    DRIVER(d.cuLinkComplete(state, &image, &size));
    EXPECT(size > 100);
    void* again;
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, d.cuLinkComplete(state, &again, nullptr));  // it is complete
    float milliseconds = 0;
    std::memcpy(&milliseconds, &values[0], sizeof milliseconds);
    EXPECT(milliseconds > 0);
    EXPECT(std::strlen(info) > 0 && std::strlen(info) == reinterpret_cast<std::size_t>(values[2]));
    EXPECT(error[0] == 0 && values[5] == nullptr);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, add(d, state, user));  // too late
    CUmodule module;
    DRIVER(d.cuModuleLoadData(&module, image));
    DRIVER(d.cuLinkDestroy(state));  // the module has what it needs
    CUfunction kernel;
    DRIVER(d.cuModuleGetFunction(&kernel, module, "sum"));
    int registers = 0;
    DRIVER(d.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel));
    EXPECT(registers > 0 && registers <= 24);  // a kernel that calls has no fewer on an H200
    Buffer<unsigned> out(32);
    void* arguments[] = {&out.p};
    DRIVER(d.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 64, nullptr, arguments, nullptr));
    unsigned got[32];
    out.get(got);
    for (unsigned i = 0; i < 32; i++) EXPECT(got[i] == i * 10 + 1000 + (i % 4 + 1) + 3 + 50 + 600000);
    CUdeviceptr room;
    DRIVER(d.cuModuleGetGlobal(&room, &size, module, "room"));
    EXPECT(size == 16);
    DRIVER(d.cuModuleUnload(module));
}

#define CALLS_F                                                                                 \
    ".visible .entry e () { .reg .b64 %r<2>; mov.u64 %r1, 1; { .param .b64 p; st.param.b64 [p], %r1; " \
    "call.uni f, (p); } ret; }"
#define READS_V ".visible .entry e () { .reg .b32 %r<2>; ld.global.u32 %r1, [v]; ret; }"

static void refusals(const Driver& d) {
    std::string log;
    const auto says = [&](const char* part) { return log.find(part) != std::string::npos; };
    ANSWERS(CUDA_ERROR_INVALID_SOURCE, linked(d, {user}, log));
    EXPECT(says("error   : Undefined reference to 'scaled' in 'a'") && !says("dynamic") && !says("helper"));
    // Found as soon as the second one is added.
    ANSWERS(CUDA_ERROR_INVALID_SOURCE, linked(d, {user, library, library}, log));
    EXPECT(says("error   : Multiple definition of '") && says("' in 'c', first defined in 'b'") && !says("helper"));
    ANSWERS(CUDA_ERROR_INVALID_SOURCE, linked(d, {HEAD ".visible .func f (.param .b32 x) { ret; }",
                                                  HEAD ".extern .func f (.param .b64 x);" CALLS_F}, log));
    EXPECT(log == "error   : Prototype doesn't match for 'f' in 'b', first defined in 'a'");
    ANSWERS(CUDA_ERROR_INVALID_SOURCE, linked(d, {HEAD ".visible .global .u32 v;",
                                                  HEAD ".extern .global .u32 v[2];" READS_V}, log));
    EXPECT(log == "error   : Size doesn't match for 'v' in 'b', first specified in 'a'");
    DRIVER(linked(d, {HEAD ".extern .func f (.param .b64 x); .visible .entry k () { ret; }"}, log));
    EXPECT(log.empty());  // nobody calls it
    DRIVER(linked(d, {}, log));
    ANSWERS(CUDA_ERROR_INVALID_PTX, linked(d, {HEAD ".visible .entry k () { no such thing }"}, log));
    EXPECT(says("line 4") && says("thing"));
    ANSWERS(CUDA_ERROR_INVALID_PTX, linked(d, {".version 9.0\n.target sm_121\n.address_size 64\n"}, log));
    DRIVER(linked(d, {HEAD ".weak .global .u32 v = 1;", HEAD ".weak .global .u32 v = 2;"}, log));
    CUmodule module;
    ANSWERS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            d.cuModuleLoadData(&module, ".version 99.0\n.target sm_75\n.address_size 64\n"));
    unsigned nothing[64] = {0xba55ed50, 0x00100001};
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, d.cuModuleLoadData(&module, nothing));
    CUjit_option target[] = {CU_JIT_TARGET};
    for (const auto& [number, result] : {std::pair{50, CUDA_ERROR_INVALID_PTX}, {121, CUDA_ERROR_INVALID_SOURCE}}) {
        void* value[] = {reinterpret_cast<void*>(static_cast<std::intptr_t>(number))};
        ANSWERS(result, d.cuModuleLoadDataEx(&module, HEAD ".visible .entry k () { ret; }", 1, target, value));
    }
    CUlinkState state;
    DRIVER(d.cuLinkCreate(0, nullptr, nullptr, &state));
    char bytes[64] = "text";
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuLinkAddData(state, CU_JIT_INPUT_PTX, nullptr, 5, nullptr, 0, nullptr, nullptr));
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            d.cuLinkAddData(state, static_cast<CUjitInputType>(99), bytes, 5, nullptr, 0, nullptr, nullptr));
    ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, d.cuLinkAddFile(state, CU_JIT_INPUT_PTX, "no such file", 0, nullptr, nullptr));
    CUjit_option time[] = {CU_JIT_WALL_TIME}, unknown[] = {static_cast<CUjit_option>(99)};
    void* none[] = {nullptr};
    ANSWERS(CUDA_ERROR_INVALID_VALUE, add(d, state, user, nullptr, 1, time, none));  // only for the whole link
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuLinkCreate(1, unknown, none, &state));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuLinkCreate(0, nullptr, nullptr, nullptr));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuLinkComplete(state, nullptr, nullptr));
    DRIVER(d.cuLinkDestroy(state));
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    run(d);
    refusals(d);
    std::printf("link: ok\n");
}
