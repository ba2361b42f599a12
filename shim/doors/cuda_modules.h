// SPDX-License-Identifier: MIT
// Doors of modules and libraries: their variables, whose addresses the program asks for, and their end.
//
// Sizes in bytes. Threads, ownership and errors: door.h.
#pragma once

#include <vector>

#include "shim/coherence/module_variables.h"
#include "shim/doors/cuda_memory.h"
#include "shim/driver/loaded_kernels.h"

namespace hpe::doors {

template <class C, class Handle>
CUresult find_variable(const C& call, CUdeviceptr* at, std::size_t* bytes, Handle handle, const char* name) {
    std::size_t size = 0;
    const CUresult result = call(at, bytes != nullptr ? bytes : &size, handle, name);
    if (result != CUDA_SUCCESS || at == nullptr) return result;
    objects_exist();
    module_variables::found(address(*at), bytes != nullptr ? *bytes : size, handle);
    return result;
}

template <class C>
CUresult module_of_library(const C& call, CUmodule* module, CUlibrary library) {
    const CUresult result = call(module, library);
    if (result == CUDA_SUCCESS && module != nullptr) module_variables::is_part(*module, library);
    return result;
}

// Its kernels go, too, and other kernels may come by under their handles.
template <class C, class Handle>
CUresult unload(const C& call, Handle handle) {
    const auto variables = module_variables::of(handle);
    std::vector<Allocation> objects;
    for (const auto base : variables) {
        if (const auto variable = coherence().allocation_at(base)) objects.push_back(variable);
    }
    const CUresult result = free_all(objects, [&] { return call(handle); });
    if (result == CUDA_SUCCESS) module_variables::unloaded(handle, variables);
    loaded_kernels::forget();
    return result;
}

}  // namespace hpe::doors
