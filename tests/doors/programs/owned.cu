// SPDX-License-Identifier: MIT
// Device memory of which libhpe keeps no host copy: of graphs, mapped twice or exported, given no pages of its own; and
// memory that it shares (of pools, mapped once), or that is shared always (managed). Everything that CUDA does with it
// works; a CPU access is served, or ends as it would without libhpe.
// `owned copy KIND use` and `owned copy KIND touch`. Linked with libcuda too.
#include <cuda.h>
#include <unistd.h>

#include "program.h"

constexpr unsigned count = 600'001;  // too many to share a chunk of the driver's with others
constexpr std::size_t bytes = count * sizeof(unsigned);

// Launches, copies both ways, copies with an ordinary object and memsets; `array` holds `count` numbers.
static void use(unsigned* array, cudaStream_t stream) {
    static unsigned host[count], back[count];
    for (unsigned i = 0; i < count; ++i) host[i] = i * 3;
    CHECK(cudaMemcpyAsync(array, host, bytes, cudaMemcpyHostToDevice, stream));
    advance<><<<blocks_for(count, 128), 128, 0, stream>>>(array, count, 5);
    CHECK(cudaGetLastError());
    CHECK(cudaMemsetAsync(array + 100, 1, 400, stream));
    unsigned* object = nullptr;
    CHECK(cudaMalloc(&object, bytes));
    CHECK(cudaMemcpyAsync(object, array, bytes, cudaMemcpyDeviceToDevice, stream));
    advance<><<<blocks_for(count, 128), 128, 0, stream>>>(object, count, 6);
    CHECK(cudaStreamSynchronize(stream));
    if (plain) {
        for (unsigned i = 0; i < count; i += 50) object[i] += 1;  // one faulting page after the other
    } else {
        CHECK(cudaMemcpy(back, object, bytes, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < count; i += 50) back[i] += 1;
        CHECK(cudaMemcpy(object, back, bytes, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpyAsync(array, object, bytes / 2, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(back, array, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    Checksum checksum;
    checksum.add(back, bytes);
    say("checksum %016llx\n", static_cast<unsigned long long>(checksum.value()));
    cudaPointerAttributes attributes;
    say("attributes %d", cudaPointerGetAttributes(&attributes, array + 5));
    say(" type %d device %d\n", attributes.type, attributes.device);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    say("range %d", cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(array + 5)));
    say(" size %zu\n", size);
    CHECK(cudaFree(object));
}

static bool touches;
static void finish(unsigned* array) {
    if (!touches) return;
    say("touching\n");
    static_cast<volatile unsigned*>(array)[77] = 3;
    say("touched %u\n", static_cast<volatile unsigned*>(array)[77]);
}

static void stream_ordered(int, char**) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned* array = nullptr;
    for (int round = 0; round < 3; ++round) {
        CHECK(cudaMallocAsync(&array, bytes, stream));
        use(array, stream);
        if (round == 2) finish(array);
        CHECK(cudaFreeAsync(array, stream));
    }
    CHECK(cudaMallocAsync(&array, bytes, stream));
    use(array, stream);
    CHECK(cudaStreamSynchronize(stream));
    say("plain free %d\n", cudaFree(array));
    CHECK(cudaStreamDestroy(stream));
}

static void pool(int, char**) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t made;
    CHECK(cudaMemPoolCreate(&made, &properties));
    unsigned* array = nullptr;
    CHECK(cudaMallocFromPoolAsync(&array, bytes, made, nullptr));
    use(array, nullptr);
    finish(array);
    CHECK(cudaFreeAsync(array, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(made));
}

enum class Mapped { Once, Twice, ForOthers, ForOthersFirst };
static void map_and_use(Mapped how) {
    CHECK(cudaFree(nullptr));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (how >= Mapped::ForOthers) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t granularity = 0;
    CHECK_CU(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const std::size_t size = (bytes + granularity - 1) / granularity * granularity;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    const auto give_away = [&] {
        int file = -1;
        const auto type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        if (cuMemGetHandleForAddressRange(&file, address, size, type, 0) == CUDA_SUCCESS) close(file);
    };
    CHECK_CU(cuMemCreate(&handle, size, &properties, 0));
    CHECK_CU(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK_CU(cuMemMap(address, size, 0, handle, 0));
    if (how == Mapped::ForOthersFirst) give_away();
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_CU(cuMemSetAccess(address, size, &access, 1));
    CUdeviceptr other = 0;
    if (how == Mapped::Twice) {
        CHECK_CU(cuMemAddressReserve(&other, size, 0, 0, 0));
        CHECK_CU(cuMemMap(other, size, 0, handle, 0));
        CHECK_CU(cuMemSetAccess(other, size, &access, 1));
    }
    // Others to whom the memory was given by its address keep it, whatever access is set later.
    if (how == Mapped::ForOthers) {
        give_away();
        CHECK_CU(cuMemSetAccess(address, size, &access, 1));
    }
    use(reinterpret_cast<unsigned*>(address), nullptr);
    finish(reinterpret_cast<unsigned*>(other != 0 ? other : address));
    for (const CUdeviceptr mapped : {address, other}) {
        if (mapped == 0) continue;
        CHECK_CU(cuMemUnmap(mapped, size));
        CHECK_CU(cuMemAddressFree(mapped, size));
    }
    CHECK_CU(cuMemRelease(handle));
}
static void virtual_memory(int, char**) { map_and_use(Mapped::Once); }
static void mapped_twice(int, char**) { map_and_use(Mapped::Twice); }
static void mapped_for_others(int, char**) { map_and_use(Mapped::ForOthers); }
static void mapped_for_others_first(int, char**) { map_and_use(Mapped::ForOthersFirst); }

// What a capture allocates, for as long as its graph has run and not freed it.
static void captured(int, char**) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned* array = nullptr;
    cudaGraph_t graph;
    cudaGraphExec_t runs;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&array, bytes, stream));
    CHECK(cudaMemsetAsync(array, 0, bytes, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&runs, graph, 0));
    CHECK(cudaGraphLaunch(runs, stream));
    use(array, stream);
    finish(array);
    CHECK(cudaFreeAsync(array, stream));
    CHECK(cudaGraphExecDestroy(runs));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

static void managed(int, char**) {
    unsigned* array = nullptr;
    CHECK(cudaMallocManaged(&array, bytes));
    use(array, nullptr);
    CHECK(cudaDeviceSynchronize());
    finish(array);
    CHECK(cudaFree(array));
}

static void pinned(int, char**) {
    unsigned *array = nullptr, *mapped = nullptr;
    CHECK(cudaHostAlloc(&array, bytes, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped, array, 0));
    use(mapped, nullptr);
    finish(array);
    CHECK(cudaFreeHost(array));
}

__device__ unsigned numbers[count];
static void variable(int, char**) {
    unsigned* array = nullptr;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&array), numbers));
    use(array, nullptr);
    finish(array);
}
// What the CPU wrote to a variable is there after the program has asked for another one, or for the same one again.
__device__ unsigned small[400], other[400];
static void ask_for(const unsigned (&next)[400]) {
    unsigned *array = nullptr, *found = nullptr, last = 0;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&array), small));
    if (plain) {
        for (unsigned i = 0; i < 400; ++i) array[i] = i;
    } else {
        static unsigned host[400];
        for (unsigned i = 0; i < 400; ++i) host[i] = i;
        CHECK(cudaMemcpy(array, host, sizeof host, cudaMemcpyHostToDevice));
    }
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&found), next));
    advance<><<<4, 128>>>(array, 400, 5);
    CHECK(cudaMemcpy(&last, array + 399, sizeof last, cudaMemcpyDeviceToHost));
    say("last %u\n", last);
    finish(array);
}
// Beside one that libhpe cannot share (the driver does not say whose it is) another cannot stay so.
static void beside_unknown(int, char**) { ask_for(other); }
static void asked_again(int, char**) { ask_for(small); }
// The memory of one that went with its context, or its module, is the program's own, which ends as it wants to. libhpe
// looks at faults since there was an object.
static void variable_gone(int, char**) {
    unsigned *array = nullptr, *object = nullptr;
    CHECK(cudaMalloc(&object, bytes));
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&array), numbers));
    CHECK(cudaDeviceReset());
    finish(array);
}

static void variable_unloaded(int, char**) {
    static const char ptx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 unloaded[400];\n";
    CUmodule module;
    CUdeviceptr array = 0;
    unsigned* object = nullptr;
    CHECK(cudaMalloc(&object, bytes));
    CHECK_CU(cuModuleLoadData(&module, ptx));
    CHECK_CU(cuModuleGetGlobal(&array, nullptr, module, "unloaded"));
    CHECK_CU(cuModuleUnload(module));
    finish(reinterpret_cast<unsigned*>(array));
}

// The program said that other devices will access it.
static void handed_over(int, char**) {
    unsigned* array = nullptr;
    CHECK(cudaMalloc(&array, bytes));
    unsigned on = 1;
    CHECK_CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reinterpret_cast<CUdeviceptr>(array)));
    use(array, nullptr);
    finish(array);
    CHECK(cudaFree(array));
}

// Ordinary memory, of which there may be too little for whole pages.
static void short_of(int, char**) {
    unsigned* array = nullptr;
    CHECK(cudaMalloc(&array, bytes));
    use(array, nullptr);
    finish(array);
    CHECK(cudaFree(array));
}
static void short_of_rows(int, char**) {
    unsigned* array = nullptr;
    std::size_t pitch = 0;
    CHECK(cudaMallocPitch(&array, &pitch, 1000, bytes / 1000 + 3));
    say("pitch %zu\n", pitch);
    use(array, nullptr);
    finish(array);
    CHECK(cudaFree(array));
}
// The CPU uses what there was memory for.
static void short_of_used(int, char**) {
    unsigned *first = nullptr, *second = nullptr;
    CHECK(cudaMalloc(&first, bytes));
    if (plain) first[5] = 1;
    say("second %d\n", cudaMalloc(&second, bytes));
    CHECK(cudaFree(second));
    CHECK(cudaFree(first));
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"short_of", short_of},
                                 {"short_of_rows", short_of_rows},
                                 {"short_of_used", short_of_used},
                                 {"stream_ordered", stream_ordered},
                                 {"pool", pool},
                                 {"unknown_pool", pool},
                                 {"virtual_memory", virtual_memory},
                                 {"mapped_twice", mapped_twice},
                                 {"mapped_for_others", mapped_for_others},
                                 {"mapped_for_others_first", mapped_for_others_first},
                                 {"captured", captured},
                                 {"handed_over", handed_over},
                                 {"managed", managed},
                                 {"pinned", pinned},
                                 {"variable", variable},
                                 {"beside_unknown", beside_unknown},
                                 {"asked_again", asked_again},
                                 {"variable_gone", variable_gone},
                                 {"variable_unloaded", variable_unloaded}};
    touches = argc > 3 && std::strcmp(argv[3], "touch") == 0;
    return run_case(cases, argc, argv);
}
