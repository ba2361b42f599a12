// SPDX-License-Identifier: MIT
// Variables of modules, used by the CPU: found by name in kernels and by address here, beside others, and gone with
// their modules. Linked with libcuda too.
#include <cuda.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "program.h"

__device__ unsigned counter = 7, table[100], late[3] = {11, 12, 13}, longer[5000];
__device__ unsigned long_one[700'001];  // has pages of its own, the last of which it does not fill
__constant__ unsigned factors[4] = {1, 2, 3, 4}, beside_factors[33] = {5};

__global__ void by_name(unsigned key) {
    counter = counter * factors[key % 4] + late[1];
    for (unsigned i = 0; i < 100; ++i) table[i] += key + i;
}

template <class Variable>
static unsigned* address_of(const Variable& variable) {
    void* address = nullptr;
    CHECK(cudaGetSymbolAddress(&address, variable));
    return static_cast<unsigned*>(address);
}
static unsigned get(const unsigned* at) {
    if (plain) return *static_cast<const volatile unsigned*>(at);
    unsigned value = 0;
    CHECK(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}
static void set(unsigned* at, unsigned value) {
    if (plain) {
        *static_cast<volatile unsigned*>(at) = value;
    } else {
        CHECK(cudaMemcpy(at, &value, sizeof value, cudaMemcpyHostToDevice));
    }
}

// Kernels use them by their names.
static void variables(int, char**) {
    unsigned *const count = address_of(counter), *const numbers = address_of(table), *const by = address_of(factors);
    unsigned wrong = get(count) != 7;
    for (unsigned i = 0; i < 4; ++i) wrong += get(by + i) != i + 1;
    unsigned model = 7;
    for (unsigned round = 0; round < 6; ++round) {
        const unsigned factor = round % 4 + 1 + round / 4 * 10;
        set(by + round % 4, factor);
        by_name<<<1, 1>>>(round);
        model = model * factor + 12;
        CHECK(cudaDeviceSynchronize());
        wrong += get(count) != model;
        set(count, ++model);
        for (unsigned i = 0; i < 100; i += 7)
            wrong += get(numbers + i) != (round + i) * (round + 1) - round * (round + 1) / 2;
    }
    say("%u wrong\n", wrong);
    // One that the program asks for while the CPU writes to its neighbours holds its own bytes.
    for (unsigned i = 0; i < 100; ++i) set(numbers + i, i);
    unsigned* const found = address_of(late);
    for (unsigned i = 0; i < 3; ++i) wrong += get(found + i) != 11 + i;
    // Constants lie side by side in one range of the driver's.
    unsigned* const beside = address_of(beside_factors);
    for (unsigned i = 0; i < 33; ++i) {
        wrong += get(beside + i) != (i == 0 ? 5 : 0);
        set(beside + i, 50 + i);
    }
    for (unsigned i = 0; i < 33; ++i) wrong += get(beside + i) != 50 + i;
    by_name<<<1, 1>>>(0);
    wrong += get(count) != model * get(by) + 12;
    for (unsigned i = 0; i < 100; ++i) wrong += get(numbers + i) != 2 * i;
    Data some(5000, address_of(longer)), many(700'001, address_of(long_one));
    for (unsigned round = 0; round < 4; ++round) wrong += some.work(round) + many.work(round);
    many.set(700'000, 5);
    some.launch();
    many.launch();
    wrong += some.check_all() + many.check_all();
    const auto range_of = [](const unsigned* variable) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        CHECK_CU(cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(variable)));
        return std::pair{reinterpret_cast<const unsigned*>(base), bytes};
    };
    for (const unsigned* variable : {count, numbers, found, some.gpu, many.gpu}) {
        const auto [base, bytes] = range_of(variable);
        say("%d %zu\n", base == variable, bytes);
    }
    say("constants in one range: %d, of %zu bytes\n", range_of(by) == range_of(beside), range_of(by).second);
    say("%u wrong\n", wrong);
}

// A module that comes again has its first values, wherever they are, and another one keeps its own.
static void unloaded(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n"
        ".visible .global .align 4 .u32 values[400] = {21, 22, 23};\n.visible .global .align 4 .u32 beside = 5;\n"
        ".visible .const .align 4 .u32 constant = 31;\n.visible .const .align 4 .u32 constants[2] = {32, 33};\n";
    unsigned wrong = 0;
    const auto find = [](CUmodule module, const char* name) {
        CUdeviceptr address = 0;
        CHECK_CU(cuModuleGetGlobal(&address, nullptr, module, name));
        return reinterpret_cast<unsigned*>(address);
    };
    CHECK(cudaFree(nullptr));
    CUmodule kept, module;
    CUlibrary library;
    CHECK_CU(cuModuleLoadData(&kept, ptx));
    unsigned *const mine = find(kept, "values"), *const kept_constants = find(kept, "constants");
    set(mine + 1, 77);
    set(kept_constants, 78);
    for (unsigned round = 0; round < 3; ++round) {
        if (round % 2 == 0) {
            CHECK_CU(cuModuleLoadData(&module, ptx));
        } else {
            CHECK_CU(cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
            CHECK_CU(cuLibraryGetModule(&module, library));
        }
        unsigned* const values = find(module, "values");
        for (unsigned i = 0; i < 4; ++i) wrong += get(values + i) != (i < 3 ? 21 + i : 0);
        for (unsigned i = 0; i < 400; ++i) set(values + i, round + i);
        advance<><<<blocks_for(400, 128), 128>>>(values, 400, round);
        for (unsigned i = 0; i < 400; ++i) wrong += get(values + i) != (round + i) * 1664525u + round + i;
        CUdeviceptr other = 0;
        if (round % 2 != 0) CHECK_CU(cuLibraryGetGlobal(&other, nullptr, library, "beside"));
        unsigned* const beside = round % 2 == 0 ? find(module, "beside") : reinterpret_cast<unsigned*>(other);
        wrong += get(beside) != 5;
        set(beside, 6);
        unsigned *const constant = find(module, "constant"), *const constants = find(module, "constants");
        wrong += get(constant) != 31 || get(constants) != 32 || get(constants + 1) != 33;
        for (unsigned* one : {constant, constants, constants + 1}) set(one, round);
        CHECK_CU(round % 2 == 0 ? cuModuleUnload(module) : cuLibraryUnload(library));
        wrong += get(mine) != 21 || get(mine + 1) != 77 + round;
        wrong += get(kept_constants) != 78 + round || get(kept_constants + 1) != 33;
        set(mine + 1, 78 + round);
        set(kept_constants, 79 + round);
        advance<><<<1, 1>>>(mine + 2, 1, round);
    }
    CHECK(cudaDeviceSynchronize());
    unsigned last = 23;
    for (unsigned round = 0; round < 3; ++round) last = last * 1664525u + round;
    wrong += get(mine + 2) != last;
    CHECK_CU(cuModuleUnload(kept));
    say("%u wrong\n", wrong);
}

// What the CPU wrote is there still after the driver refused to end a variable.
static void refused(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n"
        ".visible .global .align 4 .u32 first = 1;\n.visible .global .align 4 .u32 second = 2;\n";
    CHECK(cudaFree(nullptr));
    CUlibrary library;
    CUmodule module;
    CUdeviceptr addresses[2];
    CHECK_CU(cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_CU(cuLibraryGetModule(&module, library));
    CHECK_CU(cuModuleGetGlobal(&addresses[0], nullptr, module, "first"));
    CHECK_CU(cuModuleGetGlobal(&addresses[1], nullptr, module, "second"));
    unsigned* const both[] = {reinterpret_cast<unsigned*>(addresses[0]), reinterpret_cast<unsigned*>(addresses[1])};
    for (unsigned i = 0; i < 2; ++i) set(both[i], 10 + i);
    const bool unloads = cuModuleUnload(module) == CUDA_SUCCESS;
    unsigned wrong = 0;
    for (unsigned i = 0; i < 2; ++i) wrong += get(both[i]) != 10 + i;
    for (unsigned i = 0; i < 2; ++i) set(both[i], 20 + i);
    // The same one, found in two ways.
    CUdeviceptr again = 0;
    CHECK_CU(cuLibraryGetGlobal(&again, nullptr, library, "first"));
    wrong += again != addresses[0];
    const bool frees = cudaFree(both[1]) == cudaSuccess;
    cudaGetLastError();
    for (unsigned i = 0; i < 2; ++i) wrong += get(both[i]) != 20 + i;
    say("%d %d, %u wrong\n", unloads, frees, wrong);
    CHECK_CU(cuLibraryUnload(library));
}

// A context that ends, or does so only when it is asked again. Its large variable is an object of its own.
static void ends_of_context(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n"
        ".visible .global .align 4 .u32 small[4] = {1};\n.visible .global .align 4 .u32 large[800000];\n";
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUdeviceptr addresses[2];
    CHECK(cudaFree(nullptr));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuCtxCreate(&context, nullptr, 0, device));
    const auto load = [&] {
        CHECK_CU(cuModuleLoadData(&module, ptx));
        CHECK_CU(cuModuleGetGlobal(&addresses[0], nullptr, module, "small"));
        CHECK_CU(cuModuleGetGlobal(&addresses[1], nullptr, module, "large"));
        return get(reinterpret_cast<unsigned*>(addresses[0])) != 1 ||
               get(reinterpret_cast<unsigned*>(addresses[1]) + 2) != 0;
    };
    unsigned wrong = load(), refused = 0;
    for (unsigned round = 0; round < 2; ++round) {
        for (const CUdeviceptr at : {addresses[0], addresses[1]}) set(reinterpret_cast<unsigned*>(at) + 2, round + 5);
        if (cuCtxDestroy(context) == CUDA_SUCCESS) break;
        ++refused;
        for (const CUdeviceptr at : {addresses[0], addresses[1]}) {
            unsigned on_device = 0;
            wrong += get(reinterpret_cast<unsigned*>(at) + 2) != round + 5;
            CHECK_CU(cuMemcpyDtoH(&on_device, at + 8, 4));
            wrong += on_device != round + 5;
        }
        CHECK_CU(cuModuleUnload(module));
        wrong += load();
    }
    say("refused %u times, %u wrong\n", refused, wrong);
}

// Found by a kernel's module, of which nobody says that it is the library's.
static void of_a_kernel(int, char**) {
    static const char* const ptx[] = {
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 values[64] = {1};\n"
        ".visible .entry nothing() { ret; }\n",
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 values[2000] = {5};\n"
        ".visible .entry nothing() { ret; }\n"};
    CHECK(cudaFree(nullptr));
    CUmodule kept;
    CUdeviceptr beside = 0;
    CHECK_CU(cuModuleLoadData(&kept, ptx[0]));
    CHECK_CU(cuModuleGetGlobal(&beside, nullptr, kept, "values"));
    unsigned wrong = get(reinterpret_cast<unsigned*>(beside)) != 1;
    for (unsigned round = 0; round < 5; ++round) {
        const unsigned which = round / 2 % 2;  // the same one twice in a row, too
        CUlibrary library;
        CUkernel kernel;
        CUfunction function;
        CUmodule module;
        CUdeviceptr found = 0, base = 0;
        std::size_t bytes = 0, range = 0;
        CHECK_CU(cuLibraryLoadData(&library, ptx[which], nullptr, nullptr, 0, nullptr, nullptr, 0));
        CHECK_CU(cuLibraryGetKernel(&kernel, library, "nothing"));
        CHECK_CU(cuKernelGetFunction(&function, kernel));
        CHECK_CU(cuFuncGetModule(&module, function));
        CHECK_CU(cuModuleGetGlobal(&found, &bytes, module, "values"));
        CHECK_CU(cuMemGetAddressRange(&base, &range, found));
        unsigned* const values = reinterpret_cast<unsigned*>(found);
        wrong += range != bytes || get(values) != (which == 0 ? 1 : 5) || get(values + bytes / 4 - 1) != 0;
        set(values + bytes / 4 - 1, round + 1);
        wrong += get(values + bytes / 4 - 1) != round + 1;
        CHECK_CU(cuLibraryUnload(library));
    }
    say("%u wrong\n", wrong);
}

// Large ones side by side, which end within pages, where libhpe's kernel copies.
static void ends_within_pages(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n"
        ".visible .global .align 4 .u32 one[1048566];\n.visible .global .align 4 .u32 other[1048566];\n";
    CHECK(cudaFree(nullptr));
    CUmodule module;
    CUdeviceptr found[2];
    CHECK_CU(cuModuleLoadData(&module, ptx));
    CHECK_CU(cuModuleGetGlobal(&found[0], nullptr, module, "one"));
    CHECK_CU(cuModuleGetGlobal(&found[1], nullptr, module, "other"));
    std::vector<Data> small;
    for (unsigned i = 0; i < 300; ++i) small.emplace_back(64);
    constexpr unsigned count = 1048566;
    unsigned wrong = 0;
    for (unsigned round = 0; round < 4; ++round) {
        for (auto& data : small) data.set(0, round);
        for (unsigned i = 0; i < 2; ++i) {
            unsigned* const values = reinterpret_cast<unsigned*>(found[i]);
            set(values, i);
            set(values + count - 1, round + i);
        }
        for (unsigned i = 0; i < 2; ++i) {
            unsigned* const last = reinterpret_cast<unsigned*>(found[i]) + count - 1;
            advance<><<<1, 1>>>(last, 1, round);
            wrong += get(last) != (round + i) * 1664525u + round;
        }
        for (auto& data : small) wrong += data.get(0) != round;
    }
    CHECK_CU(cuModuleUnload(module));
    for (auto& data : small) CHECK(cudaFree(data.gpu));
    say("%u wrong\n", wrong);
}

// Threads whose modules come and go at once, at each other's addresses.
static void threads(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 values[4] = {21};\n";
    CHECK(cudaFree(nullptr));
    CUcontext context;
    CHECK_CU(cuCtxGetCurrent(&context));
    std::vector<std::thread> all;
    std::atomic<unsigned> wrong{0};
    for (unsigned id = 0; id < 12; ++id) {
        all.emplace_back([&] {
            CHECK_CU(cuCtxSetCurrent(context));
            for (unsigned i = 0; i < 300; ++i) {
                CUmodule module;
                CUdeviceptr found;
                CHECK_CU(cuModuleLoadData(&module, ptx));
                CHECK_CU(cuModuleGetGlobal(&found, nullptr, module, "values"));
                unsigned* const values = reinterpret_cast<unsigned*>(found);
                unsigned on_device = 0;
                wrong += get(values) != 21;
                set(values, i);
                CHECK_CU(cuMemcpyDtoH(&on_device, found, 4));
                wrong += on_device != i;
                CHECK_CU(cuModuleUnload(module));
            }
        });
    }
    for (auto& thread : all) thread.join();
    say("%u wrong\n", wrong.load());
}

// A symbol that the program places into memory of its own, where the driver allows that, is not the module's to end.
static void placed(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n.extern .global .align 4 .u32 mine[64];\n"
        ".visible .entry nothing() { ret; }\n";
    unsigned* memory = nullptr;
    CHECK(cudaMalloc(&memory, 256));
    const char* names[] = {"mine"};
    void* places[] = {memory};
    CUjit_option options[] = {CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_GLOBAL_SYMBOL_COUNT};
    void* values[] = {names, places, reinterpret_cast<void*>(std::size_t{1})};
    CUmodule module;
    CUdeviceptr found = 0;
    if (cuModuleLoadDataEx(&module, ptx, 3, options, values) == CUDA_ERROR_INVALID_VALUE) return say("refused\n");
    CHECK_CU(cuModuleGetGlobal(&found, nullptr, module, "mine"));
    set(memory + 3, 5);
    CHECK_CU(cuModuleUnload(module));
    unsigned wrong = found != reinterpret_cast<CUdeviceptr>(memory) || get(memory + 3) != 5;
    advance<><<<1, 1>>>(memory + 3, 1, 7);
    wrong += get(memory + 3) != 5 * 1664525u + 7;
    CHECK(cudaFree(memory));
    say("%u wrong\n", wrong);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"variables", variables},     {"unloaded", unloaded},
                                 {"refused", refused},         {"ends_of_context", ends_of_context},
                                 {"of_a_kernel", of_a_kernel}, {"threads", threads},
                                 {"placed", placed},           {"ends_within_pages", ends_within_pages}};
    return run_case(cases, argc, argv);
}
