// SPDX-License-Identifier: MIT
// Libraries (a program in every context that uses it) and their kernels (CUDA Driver API, "Library Management").
//
// A library is its loader's, until it is unloaded. Threads: any. Errors: exceptions of type Error (call.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/module/module.h"

namespace hpe::soft {

struct Library;

// A kernel of a library, in no context: CUkernel.
struct Kernel {
    Library* owner;
    std::string name;
    std::map<int, std::map<int, int>> attributes;  // by device; guarded by the library's mutex
};

struct Library {
    std::string ptx;
    HostSymbols symbols;
    std::shared_ptr<Program> first;  // used by the first context
    std::vector<std::shared_ptr<Kernel>> kernels;
    std::mutex mutex;
    std::map<unsigned long long, std::shared_ptr<Module>> modules;  // by context id
    SharedVariables managed;                                        // managed variables: one for all contexts

    std::shared_ptr<Module> in(Context& context);
    ~Library();
};

// Accepts a CUfunction or a CUkernel; throws INVALID_HANDLE.
std::shared_ptr<KernelFunction> function_of(CUfunction handle);
// The same of a CUfunction alone: what tells of a function takes no kernel for one (seen on an H200).
std::shared_ptr<KernelFunction> function_itself(CUfunction handle);
std::shared_ptr<KernelFunction> function_in(Context& context, Kernel& kernel);

// When a context ends.
void forget_modules(Context& context);

}  // namespace hpe::soft
