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
    const auto variable =
        module_variables::if_new(address(*at), bytes != nullptr ? *bytes : size, module_variables::Owner::of(handle));
    if (!variable) return result;
    objects_exist();
    module_variables::add(*variable);
    return result;
}

template <class C, class From>
CUresult find_module(const C& call, CUmodule* module, From from) {
    const CUresult result = call(module, from);
    if (result == CUDA_SUCCESS) module_variables::library_modules_given();
    return result;
}

// Its kernels go, too, and other kernels may come by under their handles.
template <class C, class Handle>
CUresult unload(const C& call, Handle handle) {
    const auto variables = module_variables::take(module_variables::Owner::of(handle));
    std::vector<Allocation> objects;
    for (const auto& variable : variables) {
        const auto object = variable.shared ? coherence().allocation_at(variable.base) : Allocation{};
        if (object) objects.push_back(object);
    }
    const CUresult result = objects.empty() ? call(handle) : free_all(objects, [&] { return call(handle); });
    if (result != CUDA_SUCCESS) module_variables::put_back(variables);
    loaded_kernels::forget();
    return result;
}

}  // namespace hpe::doors
