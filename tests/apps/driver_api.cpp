// SPDX-License-Identifier: MIT
// A program of the driver API: its own context, a module from PTX text, launches by handle. Linked with libcuda, and
// with no CUDA runtime. The explicit form copies with cuMemcpyHtoD and cuMemcpyDtoH.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK_CU(call)                                                                              \
    do {                                                                                            \
        const CUresult check_result = (call);                                                       \
        if (check_result != CUDA_SUCCESS) {                                                         \
            std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, check_result); \
            std::exit(1);                                                                           \
        }                                                                                           \
    } while (0)

static const char* const ptx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 rounds;

// data[i] = data[i] * factor + i, and one thread counts the launches
.visible .entry scale(.param .u64 data, .param .u32 n, .param .u32 factor)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    setp.ne.u32 %p2, %r4, 0;
    @%p2 bra work;
    atom.global.add.u32 %r8, [rounds], 1;
work:
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r6, [%rd4];
    ld.param.u32 %r7, [factor];
    mad.lo.s32 %r6, %r6, %r7, %r4;
    st.global.u32 [%rd4], %r6;
done:
    ret;
}
)";

int main(int argc, char** argv) {
    unsigned n = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 30011;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuCtxCreate(&context, nullptr, 0, device));
    CHECK_CU(cuModuleLoadData(&module, ptx));
    CHECK_CU(cuModuleGetFunction(&function, module, "scale"));

    CUdeviceptr data;
    const std::size_t bytes = n * sizeof(unsigned);
    CHECK_CU(cuMemAlloc(&data, bytes));
#ifdef EXPLICIT_COPIES
    std::vector<unsigned> buffer(n);
    unsigned* values = buffer.data();
#else
    unsigned* values = reinterpret_cast<unsigned*>(data);
#endif
    for (unsigned i = 0; i < n; ++i) values[i] = i ^ 0x55u;
    std::uint64_t checksum = 0xcbf29ce484222325ull;
    for (unsigned round = 0; round < 4; ++round) {
#ifdef EXPLICIT_COPIES
        CHECK_CU(cuMemcpyHtoD(data, values, bytes));
#endif
        unsigned factor = 3 + 2 * round;
        void* arguments[] = {&data, &n, &factor};
        CHECK_CU(cuLaunchKernel(function, (n + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK_CU(cuCtxSynchronize());
#ifdef EXPLICIT_COPIES
        CHECK_CU(cuMemcpyDtoH(values, data, bytes));
#endif
        for (unsigned i = 0; i < n; ++i) {
            for (unsigned b = 0; b < 32; b += 8) checksum = (checksum ^ (values[i] >> b & 255)) * 0x100000001b3ull;
        }
        values[round] = round;
    }
    CUdeviceptr rounds_address;
    std::size_t rounds_size = 0;
    unsigned rounds = 0;
    CHECK_CU(cuModuleGetGlobal(&rounds_address, &rounds_size, module, "rounds"));
    CHECK_CU(cuMemcpyDtoH(&rounds, rounds_address, sizeof rounds));
    std::printf("driver_api n=%u rounds=%u size=%zu\n", n, rounds, rounds_size);
    std::printf("checksum %016llx\n", static_cast<unsigned long long>(checksum));
    CHECK_CU(cuMemFree(data));
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuCtxDestroy(context));
    return rounds != 4;
}
