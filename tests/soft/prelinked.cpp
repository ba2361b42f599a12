// SPDX-License-Identifier: MIT
// What the driver does with a program in parts, as nvcc's start-up code hands it over: it links them, says what is wrong
// with them, and takes the version of each part that fits its device. The fat binaries are made here.
#include <cstring>
#include <string>
#include <vector>

#include "driver.h"

static std::string head(int arch) { return ".version 8.7\n.target sm_" + std::to_string(arch) + "\n.address_size 64\n"; }

static const char kernel[] = R"(
.extern .func (.param .b32 r) number ();
.extern .global .align 4 .u32 elsewhere;
.global .align 4 .u32 own = 1;
.visible .entry k (.param .u64 out)
{
    .reg .b32 %r<6>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    { .param .b32 q; call.uni (q), number, (); ld.param.b32 %r1, [q]; }
    ld.global.u32 %r2, [elsewhere];
    ld.global.u32 %r3, [own];
    add.s32 %r1, %r1, %r2;
    add.s32 %r1, %r1, %r3;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry plain () { ret; }
)";
static std::string number(int value) {
    return ".global .align 4 .u32 own = 2;\n.visible .func (.param .b32 r) number () { .reg .b32 %r<3>; ld.global.u32 %r1, "
           "[own]; add.u32 %r1, %r1, " + std::to_string(value) + "; st.param.b32 [r], %r1; ret; }\n";
}
static const char variable[] = ".visible .global .align 4 .u32 elsewhere = 40;\n";

// A fat binary of uncompressed entries. kind: 1 is PTX, 2 machine code.
struct Part {
    std::string bytes, entries;
    static void word(std::string& to, unsigned long long value, unsigned size) {
        for (unsigned n = 0; n < size; n++) to += static_cast<char>(value >> (8 * n) & 255);
    }
    Part& entry(int kind, int arch, std::string text) {
        text.resize((text.size() + 8) / 8 * 8);
        word(entries, kind, 2), word(entries, 0x101, 2), word(entries, 64, 4), word(entries, text.size(), 8);
        word(entries, 0, 8), word(entries, 0x00090000, 4), word(entries, arch, 4), word(entries, 0, 8);
        word(entries, 0x11, 8), word(entries, 0, 8), word(entries, 0, 8);
        entries += text;
        bytes.clear();
        word(bytes, 0xba55ed50, 4), word(bytes, 1, 2), word(bytes, 16, 2), word(bytes, entries.size(), 8);
        bytes += entries;
        return *this;
    }
    Part& ptx(int arch, const std::string& text) { return entry(1, arch, head(arch) + text); }
    Part& machine(int arch) { return entry(2, arch, "\x7f" "ELF"); }
};

struct Wrapper {
    unsigned magic = 0x466243b1, version = 2;
    const void* data;
    const void* const* parts;
};
struct Image {
    std::vector<const void*> list;
    Part linked;
    Wrapper wrapper;
    explicit Image(const std::vector<Part>& parts) {
        for (const Part& part : parts) list.push_back(part.bytes.data());
        list.push_back(nullptr);
        linked.machine(80);
        wrapper.data = linked.bytes.data();
        wrapper.parts = list.data();
    }
    const void* get() const { return &wrapper; }
};

struct Driver {
    DRIVER_FUNCTION(cuModuleLoadFatBinary, 2000)
    DRIVER_FUNCTION(cuModuleLoadDataEx, 2010)
    DRIVER_FUNCTION(cuModuleGetFunction, 2000)
    DRIVER_FUNCTION(cuModuleUnload, 2000)
    DRIVER_FUNCTION(cuLibraryLoadData, 12000)
    DRIVER_FUNCTION(cuLibraryGetModule, 12000)
    DRIVER_FUNCTION(cuLibraryUnload, 12000)
    DRIVER_FUNCTION(cuLaunchKernel, 4000)
};

static unsigned run(const Driver& d, CUmodule module) {
    Buffer<unsigned> out(1);
    CUfunction function = nullptr;
    DRIVER(d.cuModuleGetFunction(&function, module, "k"));
    void* arguments[] = {&out.p};
    DRIVER(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    unsigned got = 0;
    out.get(&got);
    return got;
}

// What loading ends with, and its error log.
static CUresult loaded(const Driver& d, const std::vector<Part>& parts, std::string& log) {
    char buffer[512] = {};
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {buffer, reinterpret_cast<void*>(sizeof buffer)};
    CUmodule module = nullptr;
    const CUresult result = d.cuModuleLoadDataEx(&module, Image(parts).get(), 2, names, values);
    if (result == CUDA_SUCCESS) d.cuModuleUnload(module);
    log = buffer;
    return result;
}

int main() {
    CUDA(cudaFree(nullptr));
    const Driver d;
    const Part uses = Part().machine(80).ptx(75, kernel), defines = Part().ptx(75, number(100)).ptx(90, number(200)),
               holds = Part().ptx(75, variable);

    CUmodule module = nullptr;
    DRIVER(d.cuModuleLoadFatBinary(&module, Image({uses, defines, holds}).get()));
    EXPECT(run(d, module) == 243);
    DRIVER(d.cuModuleUnload(module));
    // In any order, and for a library.
    CUlibrary library = nullptr;
    DRIVER(d.cuLibraryLoadData(&library, Image({holds, defines, uses}).get(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    DRIVER(d.cuLibraryGetModule(&module, library));
    EXPECT(run(d, module) == 243);
    DRIVER(d.cuLibraryUnload(library));

    std::string log;
    const auto says = [&](const char* part) { return log.find(part) != std::string::npos; };
    ANSWERS(CUDA_ERROR_INVALID_PTX, loaded(d, {uses, holds}, log));
    EXPECT(says("undefined reference to 'number' in 'part 1'"));
    ANSWERS(CUDA_ERROR_INVALID_PTX, loaded(d, {uses}, log));
    EXPECT(says("'number'") && says("'elsewhere'"));
    ANSWERS(CUDA_ERROR_INVALID_PTX, loaded(d, {uses, defines, holds, holds}, log));
    EXPECT(says("multiple definition of 'elsewhere' in 'part 4', first defined in 'part 3'"));
    ANSWERS(CUDA_ERROR_INVALID_PTX, loaded(d, {uses, Part().ptx(75, ".visible .func number () { no such thing }")}, log));
    EXPECT(says("part 2"));
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, loaded(d, {uses, Part().machine(80), holds}, log));
    EXPECT(says("part 2") && says("machine code"));
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, loaded(d, {uses, Part().ptx(120, number(1)), holds}, log));
    EXPECT(says("part 2") && says("12.0"));
    Part damaged = defines;
    damaged.bytes[16 + 4] = 0x7f;  // the length of the first entry's header
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, loaded(d, {uses, damaged, holds}, log));
    EXPECT(says("part 2"));

    // The device runtime is known by its version: it need not run here, and what it defines is refused when called.
    const Part runtime = Part().ptx(121, ".visible .global .align 4 .u32 __CNPRT_VERSION_NUMBER__ = 1;\n"),
               calls = Part().ptx(75, ".extern .func cudaSomething ();\n.visible .entry l () { call cudaSomething, (); ret; }");
    ANSWERS(CUDA_ERROR_INVALID_PTX, loaded(d, {uses, defines, holds, calls}, log));
    EXPECT(says("undefined reference to 'cudaSomething' in 'part 4'"));
    DRIVER(d.cuModuleLoadFatBinary(&module, Image({uses, runtime, defines, holds, calls}).get()));
    EXPECT(run(d, module) == 243);
    CUfunction function = nullptr;
    DRIVER(d.cuModuleGetFunction(&function, module, "l"));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    DRIVER(d.cuModuleUnload(module));
    std::printf("prelinked: ok\n");
}
