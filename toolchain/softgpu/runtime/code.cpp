// SPDX-License-Identifier: MIT
// The registry of fat binaries, kernels and variables, and the entry points that nvcc's generated code calls.
#include "code.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "api.h"

namespace hpe::soft::cudart {
namespace {

struct FatBinary {
    const void* image;  // the wrapper struct that nvcc emitted
    CUlibrary loaded = nullptr;
    CUresult error = CUDA_ERROR_NOT_INITIALIZED;  // of the load, once tried
    bool tried = false;
};

struct Kernel {
    FatBinary* owner;
    const void* stub;
    const char* name;
    CUkernel handle = nullptr;
};

struct Variable {
    FatBinary* owner;
    const void* shadow;
    const char* name;
    size_t size;
    void** managed;  // where the program reads the variable's address; nullptr: not managed
};

struct Registry {
    std::mutex mutex;
    std::vector<std::unique_ptr<FatBinary>> binaries;
    std::unordered_map<const void*, Kernel> kernels;
    std::unordered_map<const void*, Variable> variables;
    std::unordered_map<CUkernel, const void*> stubs;
};

// Never destroyed: programs unregister in their own exit handlers, in any order with ours.
Registry& registry() {
    static auto* r = new Registry;
    return *r;
}

// The registry's lock is held.
CUresult load(const Driver& d, FatBinary& b) {
    if (b.tried) return b.error;
    b.error = d.cuLibraryLoadData(&b.loaded, b.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    b.tried = true;
    if (b.error != CUDA_SUCCESS) return b.error;
    for (auto& entry : registry().variables) {
        Variable& v = entry.second;
        if (v.owner != &b || v.managed == nullptr) continue;
        CUdeviceptr address = 0;
        size_t bytes = 0;
        if (CUresult r = d.cuLibraryGetManaged(&address, &bytes, b.loaded, v.name)) return b.error = r;
        *v.managed = reinterpret_cast<void*>(address);
    }
    return CUDA_SUCCESS;
}

const Variable* variable_of(const Registry& r, const void* symbol) {
    const auto found = r.variables.find(symbol);
    if (found != r.variables.end()) return &found->second;
    // The name of a managed variable means the memory itself once it is there.
    for (const auto& entry : r.variables) {
        if (entry.second.managed != nullptr && *entry.second.managed == symbol) return &entry.second;
    }
    return nullptr;
}

}  // namespace

cudaError_t find_kernel(const Driver& d, const void* function, CUkernel& kernel) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    const auto found = r.kernels.find(function);
    if (found == r.kernels.end()) {
        if (function == nullptr) return cudaErrorInvalidDeviceFunction;
        // Not a stub: a handle that cudaGetKernel or cudaLibraryGetKernel gave, which the driver can tell from rubbish.
        kernel = reinterpret_cast<CUkernel>(const_cast<void*>(function));
        CUfunction ignored = nullptr;
        const CUresult e = d.cuKernelGetFunction(&ignored, kernel);
        return e == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidResourceHandle;
    }
    Kernel& k = found->second;
    if (k.handle == nullptr) {
        if (CUresult e = load(d, *k.owner)) return as_error(e);
        const CUresult e = d.cuLibraryGetKernel(&k.handle, k.owner->loaded, k.name);
        if (e == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
        if (e != CUDA_SUCCESS) return as_error(e);
        r.stubs[k.handle] = k.stub;
    }
    kernel = k.handle;
    return cudaSuccess;
}

void* host_function(CUkernel kernel) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    const auto found = r.stubs.find(kernel);
    return found != r.stubs.end() ? const_cast<void*>(found->second) : static_cast<void*>(kernel);
}

cudaError_t find_variable(const Driver& d, const void* symbol, CUdeviceptr& address, size_t& size) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    const Variable* v = variable_of(r, symbol);
    if (v == nullptr) return cudaErrorInvalidSymbol;
    if (CUresult e = load(d, *v->owner)) return as_error(e);
    const CUresult e = v->managed != nullptr ? d.cuLibraryGetManaged(&address, &size, v->owner->loaded, v->name)
                                             : d.cuLibraryGetGlobal(&address, &size, v->owner->loaded, v->name);
    return e == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : as_error(e);
}

}  // namespace hpe::soft::cudart

using namespace hpe::soft::cudart;

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_function, const char* name, int thread_limit,
                            uint3* tid, uint3* bid, dim3* block, dim3* grid, int* warp_size);
void __cudaRegisterVar(void** handle, char* shadow, char* device_address, const char* name, int external, size_t size,
                       int constant, int global);
void __cudaRegisterManagedVar(void** handle, void** pointer, char* device_address, const char* name, int external,
                              size_t size, int constant, int global);
void __cudaRegisterHostVar(void** handle, const char* name, char* address, size_t size);
char __cudaInitModule(void** handle);
}

void** __cudaRegisterFatBinary(void* wrapper) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.binaries.push_back(std::make_unique<FatBinary>());
    r.binaries.back()->image = wrapper;
    return reinterpret_cast<void**>(r.binaries.back().get());
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
    auto* binary = reinterpret_cast<FatBinary*>(handle);
    Registry& r = registry();
    // In a child, a thread that does not exist there may hold the lock.
    std::unique_lock lock(r.mutex, std::try_to_lock);
    if (!lock.owns_lock() && !forked()) lock.lock();
    if (!lock.owns_lock()) return;
    const auto found = std::find_if(r.binaries.begin(), r.binaries.end(), [&](auto& b) { return b.get() == binary; });
    if (found == r.binaries.end()) return;
    // At exit the driver may be gone already, and in a child it is; a plug-in that is closed earlier gives back.
    const Driver* d = loaded_driver();
    if (d != nullptr && binary->loaded != nullptr) d->cuLibraryUnload(binary->loaded);
    std::erase_if(r.stubs, [&](auto& s) { return r.kernels.at(s.second).owner == binary; });
    std::erase_if(r.kernels, [&](auto& k) { return k.second.owner == binary; });
    std::erase_if(r.variables, [&](auto& v) { return v.second.owner == binary; });
    r.binaries.erase(found);
}

void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.kernels[stub] = Kernel{reinterpret_cast<FatBinary*>(handle), stub, name};
}

void __cudaRegisterVar(void** handle, char* shadow, char*, const char* name, int, size_t size, int, int) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.variables[shadow] = Variable{reinterpret_cast<FatBinary*>(handle), shadow, name, size, nullptr};
}

void __cudaRegisterManagedVar(void** handle, void** pointer, char*, const char* name, int, size_t size, int, int) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.variables[pointer] = Variable{reinterpret_cast<FatBinary*>(handle), pointer, name, size, pointer};
}

// A host variable that device code reads directly, which needs memory that both sides address (HMM).
void __cudaRegisterHostVar(void**, const char*, char*, size_t) { not_supported("a __host__ variable in device code"); }

// Called at the program's first access to a managed variable of the fat binary. Not zero: its address is known.
char __cudaInitModule(void** handle) {
    const cudaError_t e = with_context([&](const Driver& d) {
        Registry& r = registry();
        std::lock_guard lock(r.mutex);
        return load(d, *reinterpret_cast<FatBinary*>(handle));
    });
    return e == cudaSuccess;
}
