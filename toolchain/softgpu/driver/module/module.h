// SPDX-License-Identifier: MIT
// Modules: a program in one context, with its kernels and variables (CUDA Driver API, "Module Management").
//
// A module is its context's; a kernel in use is kept alive by whoever uses it. Threads: any. Errors: exceptions of type
// Error (call.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/module/jit_options.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {

class Module;
struct Library;

// A kernel in a context: CUfunction.
class KernelFunction {
public:
    KernelFunction(Context& owner, Module* its_module, std::shared_ptr<Program> its_program, std::string its_name)
        : context(owner), module(its_module), program(std::move(its_program)), name(std::move(its_name)) {}

    // Translates the kernel when first needed. Throws NOT_SUPPORTED after one line on stderr.
    const KernelInfo& info();

    Context& context;
    Module* const module;
    const std::shared_ptr<Program> program;
    const std::string name;
    std::atomic<int> max_dynamic_shared{-1};  // -1: as much as fits beside the static part without opting in
    std::atomic<int> shared_carveout{-1};
    std::atomic<bool> loaded{false};   // translated
    std::atomic<bool> refused{false};  // and stderr says why
};

struct GlobalVariable {
    std::uint64_t address = 0, size = 0;
    bool owned = true;  // an allocation of its own, which ends with the module
};

using SharedVariables = std::map<std::string, GlobalVariable>;

class Module {
public:
    // Places the program's variables. Throws OUT_OF_MEMORY, and INVALID_IMAGE for references that nothing defines.
    Module(Context& owner, std::shared_ptr<Program> its_program, const HostSymbols& symbols);
    // One of a library's: its managed variables are that one's.
    Module(Context& owner, std::shared_ptr<Program> its_program, const HostSymbols& symbols, Library& its_library,
           SharedVariables& managed);
    ~Module();
    CUmodule handle() { return reinterpret_cast<CUmodule>(this); }

    std::shared_ptr<KernelFunction> function(const std::string& name);  // nullptr: none of that name
    const GlobalVariable* variable(const std::string& name) const;

    Context& context;
    const std::shared_ptr<Program> program;
    Library* const library;  // null: none

private:
    std::map<std::string_view, std::uint64_t> allocate_constants();  // name -> address
    void place_variables(const HostSymbols& symbols, SharedVariables* managed);
    void end_variables();

    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<KernelFunction>> functions_;
    std::map<std::string, GlobalVariable, std::less<>> variables_;
    std::uint64_t constants_ = 0;  // where they begin; 0: there are none
};

std::shared_ptr<Program> load_program(const void* image, JitOptions& options, std::string* text = nullptr);
CUresult error_of(Fault fault);

}  // namespace hpe::soft
