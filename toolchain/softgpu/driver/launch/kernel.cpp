// SPDX-License-Identifier: MIT
// The driver functions of libraries' kernels, which stand for a function in every context.
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/module/library.h"

namespace hpe::soft {
namespace {

std::shared_ptr<Kernel> kernel_of(CUkernel handle) {
    auto kernel = driver().kernels.find(handle);
    require(kernel != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return kernel;
}

}  // namespace

CUresult api::cuKernelGetFunction(CUfunction* out, CUkernel handle) {
    require(out != nullptr);
    const auto function = function_in(current(), *kernel_of(handle));
    function->info();  // it is loaded from now on
    *out = reinterpret_cast<CUfunction>(function.get());
    return CUDA_SUCCESS;
}

CUresult api::cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
    require(out != nullptr);
    *out = reinterpret_cast<CUlibrary>(kernel_of(handle)->owner);
    return CUDA_SUCCESS;
}

CUresult api::cuKernelGetName(const char** name, CUkernel handle) {
    require(name != nullptr);
    *name = kernel_of(handle)->name.c_str();
    return CUDA_SUCCESS;
}

CUresult api::cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
    const auto function = function_in(current(), *kernel_of(handle));
    return api::cuFuncGetParamInfo(reinterpret_cast<CUfunction>(function.get()), index, offset, size);
}

CUresult api::cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice dev) {
    require(value != nullptr);
    const auto kernel = kernel_of(handle);
    Device& device = device_at(dev);
    Context& here = current();
    Context& context =
        &here.device() == &device || !device.primary || !device.primary->alive() ? here : *device.primary;
    return api::cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(function_in(context, *kernel).get()));
}

CUresult api::cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice dev) {
    const auto kernel = kernel_of(handle);
    Device& device = device_at(dev);
    Context& here = current();
    if (&here.device() == &device) {
        const auto function = function_in(here, *kernel);
        const CUresult result = api::cuFuncSetAttribute(reinterpret_cast<CUfunction>(function.get()), attribute, value);
        if (result != CUDA_SUCCESS) return result;
    }
    const std::lock_guard lock(kernel->owner->mutex);
    kernel->attributes[device.ordinal][attribute] = value;
    return CUDA_SUCCESS;
}

CUresult api::cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev) {
    kernel_of(handle);
    device_at(dev);
    require(config <= CU_FUNC_CACHE_PREFER_EQUAL);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
