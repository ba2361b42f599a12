// SPDX-License-Identifier: MIT
// Modules (a program in one context), libraries (a program in every context that uses it), and their kernels.
// A module is its context's, a library its loader's; a kernel in use is kept alive by whoever uses it. Threads: any.
// Errors: exceptions of type Error (call.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "toolchain/fatbin/fatbin.h"
#include "toolchain/softgpu/driver/context.h"
#include "toolchain/softgpu/driver/jit_options.h"
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
    bool owned = true;  // not by the library
};

class Module {
public:
    // Places the program's variables. Throws OUT_OF_MEMORY, and INVALID_IMAGE for references that nothing defines.
    Module(Context& owner, std::shared_ptr<Program> its_program, Library* its_library, const HostSymbols& symbols);
    ~Module();
    CUmodule handle() { return reinterpret_cast<CUmodule>(this); }

    std::shared_ptr<KernelFunction> function(const std::string& name);  // nullptr: none of that name
    const GlobalVariable* variable(const std::string& name) const;

    Context& context;
    const std::shared_ptr<Program> program;
    Library* const library;

private:
    void end_variables();

    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<KernelFunction>> functions_;
    std::map<std::string, GlobalVariable, std::less<>> variables_;
};

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
    std::map<std::string, GlobalVariable> managed;                  // managed variables: one for all contexts

    std::shared_ptr<Module> in(Context& context);
    ~Library();
};

// The PTX in an image of any form that a program may pass. Throws the error that CUDA has for what is wrong with it,
// and `why` says it in words. `any_device`: PTX for newer devices than this, too.
fatbin::Ptx ptx_of(const void* image, std::string& why, bool any_device = false);
// The same for a program of several parts (nvcc -rdc=true), linked; of any other image what ptx_of gives. Names that no
// part defines must be in `given`.
fatbin::Ptx linked_ptx_of(const void* image, const HostSymbols& given, std::string& why);
std::shared_ptr<Program> load_program(const void* image, JitOptions& options, std::string* text = nullptr);
std::string read_file(const char* name);  // with a NUL behind it; throws FILE_NOT_FOUND

// Accepts a CUfunction or a CUkernel; throws INVALID_HANDLE.
std::shared_ptr<KernelFunction> function_of(CUfunction handle);
// The same of a CUfunction alone: what tells of a function takes no kernel for one (seen on an H200).
std::shared_ptr<KernelFunction> function_itself(CUfunction handle);
std::shared_ptr<KernelFunction> function_in(Context& context, Kernel& kernel);

// When a context ends.
void forget_modules(Context& context);

CUresult error_of(Fault fault);

}  // namespace hpe::soft
