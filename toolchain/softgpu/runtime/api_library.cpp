// SPDX-License-Identifier: MIT
// Device code that the program loads itself: cudaLibrary*.
#include "api.h"

using namespace hpe::soft::cudart;

extern "C" {

// The options of both APIs have the same numbers.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* jit, void** jit_values,
                                unsigned jit_count, cudaLibraryOption* options, void** values, unsigned count) {
    return with_context([&](const Driver& d) {
        return d.cuLibraryLoadData(library, code, reinterpret_cast<CUjit_option*>(jit), jit_values, jit_count,
                                   reinterpret_cast<CUlibraryOption*>(options), values, count);
    });
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* file, cudaJitOption* jit, void** jit_values,
                                    unsigned jit_count, cudaLibraryOption* options, void** values, unsigned count) {
    return with_context([&](const Driver& d) {
        return d.cuLibraryLoadFromFile(library, file, reinterpret_cast<CUjit_option*>(jit), jit_values, jit_count,
                                       reinterpret_cast<CUlibraryOption*>(options), values, count);
    });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    return with_context([&](const Driver& d) { return d.cuLibraryUnload(library); });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
    return with_context([&](const Driver& d) { return d.cuLibraryGetKernel(kernel, library, name); });
}

cudaError_t cudaLibraryGetGlobal(void** pointer, size_t* size, cudaLibrary_t library, const char* name) {
    return with_context(
        [&](const Driver& d) { return d.cuLibraryGetGlobal(device_pointer(pointer), size, library, name); });
}

cudaError_t cudaLibraryGetManaged(void** pointer, size_t* size, cudaLibrary_t library, const char* name) {
    return with_context(
        [&](const Driver& d) { return d.cuLibraryGetManaged(device_pointer(pointer), size, library, name); });
}

cudaError_t cudaLibraryGetUnifiedFunction(void** function, cudaLibrary_t library, const char* name) {
    return with_context([&](const Driver& d) { return d.cuLibraryGetUnifiedFunction(function, library, name); });
}

cudaError_t cudaLibraryGetKernelCount(unsigned* count, cudaLibrary_t library) {
    return with_context([&](const Driver& d) { return d.cuLibraryGetKernelCount(count, library); });
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned count, cudaLibrary_t library) {
    return with_context([&](const Driver& d) { return d.cuLibraryEnumerateKernels(kernels, count, library); });
}
}
