// SPDX-License-Identifier: MIT
// Kernel launches, and the hidden helpers behind kernel<<<grid, block>>>(arguments).
#include <memory>

#include "api.h"
#include "code.h"

using namespace hpe::soft::cudart;

namespace {

struct Configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    Configuration* below;
};
// Why the thread's last __cudaGetKernel gave no kernel: the launch that follows it has the same reason.
thread_local cudaError_t no_kernel = cudaErrorInvalidDeviceFunction;
// A stack: the arguments of a launch may launch kernels themselves.
// A list without a destructor: programs launch in their exit handlers, too, after the thread's own have run.
thread_local Configuration* configurations = nullptr;

cudaError_t launch(const Driver& d, CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream, bool cooperative) {
    // The driver takes a kernel wherever it takes a function, and finds its function in the current context.
    const auto function = reinterpret_cast<CUfunction>(kernel);
    const auto bytes = static_cast<unsigned>(shared_bytes);  // what is beyond 32 bits is lost, as on hardware
    const CUresult r = cooperative ? d.cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                                 block.z, bytes, stream, arguments)
                                   : d.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                      bytes, stream, arguments, nullptr);
    return as_error(r);
}

cudaError_t launch_symbol(Flavour flavour, const void* symbol, dim3 grid, dim3 block, void** arguments,
                          size_t shared_bytes, cudaStream_t stream, bool cooperative) {
    return with_context(flavour, [&](const Driver& d) {
        CUkernel kernel = nullptr;
        if (cudaError_t e = find_kernel(d, symbol, kernel)) return e;
        return launch(d, kernel, grid, block, arguments, shared_bytes, stream, cooperative);
    });
}

cudaError_t launch_handle(Flavour flavour, cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                          size_t shared_bytes, cudaStream_t stream) {
    return with_context(flavour, [&](const Driver& d) {
        if (kernel == nullptr) return no_kernel;
        return launch(d, kernel, grid, block, arguments, shared_bytes, stream, false);
    });
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
    configurations = new Configuration{grid, block, shared_bytes, static_cast<cudaStream_t>(stream), configurations};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
    if (configurations == nullptr) return record(cudaErrorMissingConfiguration);
    const std::unique_ptr<Configuration> top(configurations);
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *static_cast<cudaStream_t*>(stream) = top->stream;
    configurations = top->below;
    return cudaSuccess;
}

// Called once for each place in the program that launches a kernel; the handle serves every device.
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* symbol);
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* symbol) {
    const cudaError_t error = cudaGetKernel(handle, symbol);
    no_kernel = error != cudaSuccess ? error : cudaErrorInvalidDeviceFunction;
    return error;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
    return launch_handle(Flavour::Legacy, kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                    cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                    cudaStream_t stream) {
    return launch_handle(Flavour::PerThread, kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* symbol) {
    return with_context([&](const Driver& d) {
        if (handle == nullptr) return cudaErrorInvalidValue;
        const cudaError_t e = find_kernel(d, symbol, *handle);
        return e == cudaErrorInvalidResourceHandle ? cudaErrorInvalidDeviceFunction : e;
    });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
    return with_context([&](const Driver& d) {
        CUkernel kernel = nullptr;
        if (function == nullptr) return cudaErrorInvalidValue;
        if (cudaError_t e = find_kernel(d, symbol, kernel)) {
            return e == cudaErrorInvalidResourceHandle ? cudaErrorInvalidDeviceFunction : e;
        }
        return as_error(d.cuKernelGetFunction(function, kernel));
    });
}
}

HPE_BOTH_FLAVOURS(cudaLaunchKernel, ptsz,
                  (const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream),
                  (symbol, grid, block, arguments, shared_bytes, stream)) {
    return launch_symbol(flavour, symbol, grid, block, arguments, shared_bytes, stream, false);
}

HPE_BOTH_FLAVOURS(cudaLaunchCooperativeKernel, ptsz,
                  (const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream),
                  (symbol, grid, block, arguments, shared_bytes, stream)) {
    return launch_symbol(flavour, symbol, grid, block, arguments, shared_bytes, stream, true);
}

HPE_BOTH_FLAVOURS(cudaLaunchKernelExC, ptsz, (const cudaLaunchConfig_t* config, const void* symbol, void** arguments),
                  (config, symbol, arguments)) {
    return with_context(flavour, [&](const Driver& d) {
        if (config == nullptr) return cudaErrorInvalidValue;
        CUkernel kernel = nullptr;
        if (cudaError_t e = find_kernel(d, symbol, kernel)) return e;
        const dim3 grid = config->gridDim, block = config->blockDim;
        CUlaunchConfig c{};
        c.gridDimX = grid.x, c.gridDimY = grid.y, c.gridDimZ = grid.z;
        c.blockDimX = block.x, c.blockDimY = block.y, c.blockDimZ = block.z;
        c.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
        c.hStream = config->stream;
        // cudaLaunchAttribute is CUlaunchAttribute under another name, numbers included.
        c.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
        c.numAttrs = config->numAttrs;
        return as_error(d.cuLaunchKernelEx(&c, reinterpret_cast<CUfunction>(kernel), arguments, nullptr));
    });
}

HPE_BOTH_FLAVOURS(cudaLaunchHostFunc, ptsz, (cudaStream_t stream, cudaHostFn_t function, void* data),
                  (stream, function, data)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuLaunchHostFunc(stream, function, data); });
}
