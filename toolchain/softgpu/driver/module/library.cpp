// SPDX-License-Identifier: MIT
// Libraries: programs that are loaded once and appear in every context that uses them.
#include "toolchain/softgpu/driver/module/library.h"

#include <algorithm>
#include <set>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/module/image.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

std::shared_ptr<Module> Library::in(Context& context) {
    const std::lock_guard lock(mutex);
    auto& module = modules[context.id()];
    if (!module) {
        // A program has one place for each variable, so every further context needs its own.
        std::shared_ptr<Program> program = std::move(first);
        if (!program) {
            Failure failure;
            program = Program::load(ptx, failure);
            require(program != nullptr, error_of(failure.fault));
        }
        module = std::make_shared<Module>(context, program, symbols, *this, managed);
        driver().modules.add(module);
    }
    return module;
}

Library::~Library() {
    for (const auto& [name, v] : managed)
        if (auto a = driver().addresses.remove(v.address)) end_allocation(*a);
}

std::shared_ptr<KernelFunction> function_in(Context& context, Kernel& kernel) {
    auto function = kernel.owner->in(context)->function(kernel.name);
    require(function != nullptr, CUDA_ERROR_NOT_FOUND);
    const std::lock_guard lock(kernel.owner->mutex);
    if (const auto at = kernel.attributes.find(context.device().ordinal); at != kernel.attributes.end()) {
        const auto set = [&](CUfunction_attribute which, std::atomic<int>& value) {
            if (const auto found = at->second.find(which); found != at->second.end()) value = found->second;
        };
        set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function->max_dynamic_shared);
        set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function->shared_carveout);
    }
    return function;
}

std::shared_ptr<KernelFunction> function_of(CUfunction handle) {
    require(handle != nullptr, CUDA_ERROR_INVALID_HANDLE);
    if (auto function = driver().functions.find(handle)) return function;
    const auto kernel = driver().kernels.find(handle);
    require(kernel != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return function_in(current(), *kernel);
}

std::shared_ptr<KernelFunction> function_itself(CUfunction handle) {
    auto function = driver().functions.find(handle);
    require(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return function;
}

void forget_modules(Context& context) {
    driver().libraries.each([&](Library& library) {
        const std::lock_guard lock(library.mutex);
        library.modules.erase(context.id());
    });
    const auto gone = driver().modules.remove_if([&](const Module& m) { return &m.context == &context; });
}

namespace {

std::shared_ptr<Library> library_of(CUlibrary handle) {
    auto library = driver().libraries.find(handle);
    require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return library;
}
CUresult load(CUlibrary* out, const void* image, unsigned count, const CUjit_option* names, void* const* values) {
    require(out != nullptr && image != nullptr);
    auto library = std::make_shared<Library>();
    JitOptions options(JitOptions::Use::Load, count, names, values);
    library->first = load_program(image, options, &library->ptx);
    library->symbols = options.symbols();
    for (const std::string& name : library->first->kernels()) {
        library->kernels.push_back(std::make_shared<Kernel>(Kernel{library.get(), name, {}}));
        driver().kernels.add(library->kernels.back());
    }
    *out = reinterpret_cast<CUlibrary>(library.get());
    driver().libraries.add(std::move(library));
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* names, void** values, unsigned count,
                                CUlibraryOption*, void**, unsigned) {
    return load(out, code, count, names, values);
}

CUresult api::cuLibraryLoadFromFile(CUlibrary* out, const char* file, CUjit_option* names, void** values,
                                    unsigned count, CUlibraryOption*, void**, unsigned) {
    const std::string image = read_file(file);
    return load(out, image.data(), count, names, values);
}

CUresult api::cuLibraryUnload(CUlibrary handle) {
    const auto library = library_of(handle);
    std::map<unsigned long long, std::shared_ptr<Module>> modules;
    {
        const std::lock_guard lock(library->mutex);
        modules.swap(library->modules);
    }
    for (const auto& [id, module] : modules) {
        if (!module) continue;  // its variables found no place
        if (module->context.alive()) {
            try {
                synchronize(module->context);
            } catch (const Error&) {
                // A broken context keeps its error; the library goes all the same.
            }
        }
        driver().modules.remove(module.get());
    }
    for (const auto& kernel : library->kernels) driver().kernels.remove(kernel.get());
    driver().libraries.remove(handle);
    return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
    require(out != nullptr && name != nullptr);
    for (const auto& kernel : library_of(handle)->kernels)
        if (kernel->name == name) {
            *out = reinterpret_cast<CUkernel>(kernel.get());
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult api::cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
    require(count != nullptr);
    *count = static_cast<unsigned>(library_of(handle)->kernels.size());
    return CUDA_SUCCESS;
}

CUresult api::cuLibraryEnumerateKernels(CUkernel* out, unsigned room, CUlibrary handle) {
    require(out != nullptr && room > 0);
    const auto library = library_of(handle);
    for (unsigned i = 0; i < room && i < library->kernels.size(); ++i)
        out[i] = reinterpret_cast<CUkernel>(library->kernels[i].get());
    return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
    require(out != nullptr);
    *out = library_of(handle)->in(current())->handle();
    return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary handle, const char* name) {
    require(name != nullptr && (dptr || bytes));
    const auto module = library_of(handle)->in(current());
    const GlobalVariable* variable = module->variable(name);
    require(variable != nullptr, CUDA_ERROR_NOT_FOUND);
    if (dptr) *dptr = variable->address;
    if (bytes) *bytes = variable->size;
    return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary handle, const char* name) {
    require(name != nullptr && (dptr || bytes));
    const auto library = library_of(handle);
    library->in(current());
    const std::lock_guard lock(library->mutex);
    const auto variable = library->managed.find(name);
    require(variable != library->managed.end(), CUDA_ERROR_NOT_FOUND);
    if (dptr) *dptr = variable->second.address;
    if (bytes) *bytes = variable->second.size;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
