// SPDX-License-Identifier: MIT
// Modules: from an image to kernels that can be launched and variables that have an address.
#include "toolchain/softgpu/driver/module/module.h"

#include <sys/mman.h>

#include <cstring>

#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/module/image.h"
#include "toolchain/softgpu/driver/module/prelinked.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

// The module's text with what the options change in it.
std::string changed(const std::string& text, const JitOptions& options) {
    std::string why;
    const auto module = ptx::parse(text, why);
    if (!module) return text;  // whoever loads it will say what is wrong
    options.apply_to(*module);
    return ptx::print(*module);
}

}  // namespace

CUresult error_of(Fault fault) {
    switch (fault) {
        case Fault::None: return CUDA_SUCCESS;
        case Fault::InvalidPtx: return CUDA_ERROR_INVALID_PTX;
        case Fault::Unsupported: return CUDA_ERROR_NOT_SUPPORTED;
        case Fault::InvalidLaunch: return CUDA_ERROR_INVALID_VALUE;
        case Fault::IllegalAddress: return CUDA_ERROR_ILLEGAL_ADDRESS;
        case Fault::MisalignedAddress: return CUDA_ERROR_MISALIGNED_ADDRESS;
        case Fault::IllegalInstruction: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
        case Fault::Trap: return CUDA_ERROR_LAUNCH_FAILED;
        case Fault::Assert: return CUDA_ERROR_ASSERT;
    }
    return CUDA_ERROR_UNKNOWN;
}

std::shared_ptr<Program> load_program(const void* image, JitOptions& options, std::string* text) {
    require(image != nullptr);
    const auto start = Clock::now();
    std::string why;
    try {
        fatbin::Ptx ptx = linked_ptx_of(image, options.symbols(), why);
        if (const int target = options.target(); target != 0) {
            why = "the target is sm_" + std::to_string(target) + ", PTX is for sm_" + std::to_string(ptx.arch);
            if (target > capability().number) fail(CUDA_ERROR_INVALID_SOURCE);
            if (ptx.arch > target) fail(CUDA_ERROR_INVALID_PTX);
        }
        if (options.changes_code()) ptx.text = changed(ptx.text, options);
        Failure failure;
        auto program = Program::load(ptx.text, failure);
        if (!program || failure) {
            why = failure.message;
            fail(failure ? error_of(failure.fault) : CUDA_ERROR_INVALID_PTX);
        }
        if (text) *text = std::move(ptx.text);
        options.inform("PTX for sm_" + std::to_string(program->target()) + " loaded");
        options.spent(Clock::now() - start);
        return program;
    } catch (const Error&) {
        complain("module not loaded: %s", why.c_str());
        options.report(why);
        throw;
    }
}

const KernelInfo& KernelFunction::info() {
    Failure failure;
    const KernelInfo* prepared = program->prepare(name, failure);
    if (!prepared) {
        if (!refused.exchange(true)) complain("%s", failure.message.c_str());
        fail(failure ? error_of(failure.fault) : CUDA_ERROR_NOT_FOUND);
    }
    loaded.store(true, std::memory_order_relaxed);
    return *prepared;
}

namespace {

// Memory that the host and every device use at one address.
std::uint64_t allocate_managed(Context& context, std::uint64_t bytes) {
    auto a = std::make_shared<Allocation>();
    a->reserved = round_up(bytes, 4096);
    void* memory = mmap(nullptr, a->reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    a->bytes = static_cast<std::byte*>(memory);
    a->address = reinterpret_cast<std::uint64_t>(memory);
    a->size = bytes;
    a->kind = Kind::Managed;
    a->flags = CU_MEM_ATTACH_GLOBAL;
    a->module_variable = true;
    a->context = &context;
    a->device = &context.device();
    const std::uint64_t address = a->address;
    driver().addresses.add(std::move(a));
    return address;
}

}  // namespace

Module::Module(Context& owner, std::shared_ptr<Program> its_program, const HostSymbols& symbols)
    : context(owner), program(std::move(its_program)), library(nullptr) {
    place_variables(symbols, nullptr);
}
Module::Module(Context& owner, std::shared_ptr<Program> its_program, const HostSymbols& symbols, Library& its_library,
               SharedVariables& managed)
    : context(owner), program(std::move(its_program)), library(&its_library) {
    place_variables(symbols, &managed);
}

// A module's constants lie side by side in one allocation, as the driver of an H100 has them: base and range are the
// same for all. Variables have one each.
std::map<std::string_view, std::uint64_t> Module::allocate_constants() {
    std::map<std::string_view, std::uint64_t> addresses;
    std::uint64_t end = 0;
    for (const Variable& v : program->variables()) {
        if (!v.constant || v.external) continue;
        addresses[v.name] = end = round_up(end, std::max<std::uint64_t>(v.alignment, 1));
        end += std::max<std::uint64_t>(v.size, 1);
    }
    if (addresses.empty()) return addresses;
    constants_ = allocate_device(context, end, true);
    require(constants_ != 0, CUDA_ERROR_OUT_OF_MEMORY);
    for (auto& [name, address] : addresses) address += constants_;
    return addresses;
}

void Module::place_variables(const HostSymbols& symbols, SharedVariables* managed) {
    std::map<std::string_view, std::uint64_t> constants;
    std::vector<const Variable*> fresh;  // all but managed ones that another context has brought to life
    const auto place = [&](const Variable& v) {
        if (v.external) {
            if (const auto at = symbols.find(v.name); at != symbols.end()) {
                variables_[v.name] = {at->second, v.size, false};
                program->place(v.name, at->second);
                return;
            }
            complain("module not loaded: %s is declared and nowhere defined", v.name.c_str());
            fail(CUDA_ERROR_INVALID_PTX);
        }
        const std::uint64_t size = std::max<std::uint64_t>(v.size, 1);
        if (v.managed && managed) {
            if (const auto at = managed->find(v.name); at != managed->end()) {
                variables_[v.name] = at->second;
                program->place(v.name, at->second.address);
                return;
            }
        }
        const std::uint64_t address = v.managed    ? allocate_managed(context, size)
                                      : v.constant ? constants.at(v.name)
                                                   : allocate_device(context, size, true);
        require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
        const bool is_librarys = v.managed && managed;
        variables_[v.name] = {address, v.size, !is_librarys && !v.constant};
        if (is_librarys) (*managed)[v.name] = variables_[v.name];
        fresh.push_back(&v);
        std::uint64_t run = 0;
        std::byte* bytes = bytes_at(address, size, run, true);
        std::memset(bytes, 0, size);
        if (!v.initial.empty()) std::memcpy(bytes, v.initial.data(), std::min<std::size_t>(v.initial.size(), size));
        program->place(v.name, address);
    };
    const auto relocate = [&](const Variable& v) {
        for (const Relocation& r : v.relocations) {
            const GlobalVariable* target = variable(r.symbol);
            const std::uint64_t base = target ? target->address : program->code_address(r.symbol);
            if (!base || r.offset + 8 > v.size) {
                complain("module not loaded: %s refers to %s, which nothing defines", v.name.c_str(), r.symbol.c_str());
                fail(CUDA_ERROR_INVALID_PTX);
            }
            const std::uint64_t value = base + static_cast<std::uint64_t>(r.addend);
            std::uint64_t run = 0;
            std::memcpy(bytes_at(variables_[v.name].address + r.offset, 8, run, true), &value, 8);
        }
    };
    try {
        constants = allocate_constants();
        for (const Variable& v : program->variables()) place(v);
        for (const Variable* v : fresh) relocate(*v);
    } catch (...) {
        end_variables();
        throw;
    }
}

void Module::end_variables() {
    const auto end = [](std::uint64_t address) {
        if (auto a = driver().addresses.remove(address)) end_allocation(*a);
    };
    for (const auto& [name, v] : variables_) {
        if (v.owned) end(v.address);
    }
    if (constants_ != 0) end(constants_);
}

Module::~Module() {
    end_variables();
    for (const auto& [name, f] : functions_) driver().functions.remove(f.get());
}

std::shared_ptr<KernelFunction> Module::function(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (const auto at = functions_.find(name); at != functions_.end()) return at->second;
    bool known = false;
    for (const std::string& kernel : program->kernels()) known |= kernel == name;
    if (!known) return nullptr;
    auto made = std::make_shared<KernelFunction>(context, this, program, name);
    functions_.emplace(name, made);
    driver().functions.add(made);
    return made;
}

const GlobalVariable* Module::variable(const std::string& name) const {
    const auto at = variables_.find(name);
    return at == variables_.end() ? nullptr : &at->second;
}

namespace {

std::shared_ptr<Module> module_of(CUmodule handle) {
    auto module = driver().modules.find(handle);
    require(module != nullptr, CUDA_ERROR_INVALID_HANDLE);
    module->context.check();
    return module;
}

CUresult load(CUmodule* out, const void* image, unsigned options, const CUjit_option* names, void* const* values) {
    require(out != nullptr && image != nullptr);
    Context& context = current();
    JitOptions jit(JitOptions::Use::Load, options, names, values);
    auto module = std::make_shared<Module>(context, load_program(image, jit), jit.symbols());
    *out = module->handle();
    driver().modules.add(std::move(module));
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuModuleLoadData(CUmodule* module, const void* image) { return load(module, image, 0, nullptr, nullptr); }
CUresult api::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* names,
                                 void** values) {
    return load(module, image, count, names, values);
}
CUresult api::cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    return load(module, image, 0, nullptr, nullptr);
}
CUresult api::cuModuleLoad(CUmodule* module, const char* name) {
    const std::string image = read_file(name);
    return load(module, image.data(), 0, nullptr, nullptr);
}

CUresult api::cuModuleUnload(CUmodule handle) {
    const auto module = module_of(handle);
    require(module->library == nullptr, CUDA_ERROR_NOT_PERMITTED);
    forbid_unsafe_call();
    synchronize(module->context);
    driver().modules.remove(handle);
    return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
    require(out != nullptr && name != nullptr && *name);
    const auto function = module_of(handle)->function(name);
    require(function != nullptr, CUDA_ERROR_NOT_FOUND);
    *out = reinterpret_cast<CUfunction>(function.get());
    return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
    require(count != nullptr);
    *count = static_cast<unsigned>(module_of(handle)->program->kernels().size());
    return CUDA_SUCCESS;
}

CUresult api::cuModuleEnumerateFunctions(CUfunction* out, unsigned room, CUmodule handle) {
    require(out != nullptr && room > 0);
    const auto module = module_of(handle);
    const auto names = module->program->kernels();
    for (unsigned i = 0; i < room && i < names.size(); ++i)
        out[i] = reinterpret_cast<CUfunction>(module->function(names[i]).get());
    return CUDA_SUCCESS;
}

CUresult api::cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule handle, const char* name) {
    require(name != nullptr && (dptr || bytes));
    const auto module = module_of(handle);
    const GlobalVariable* variable = module->variable(name);
    require(variable != nullptr, CUDA_ERROR_NOT_FOUND);
    if (dptr) *dptr = variable->address;
    if (bytes) *bytes = variable->size;
    return CUDA_SUCCESS;
}

CUresult api::cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    require(mode != nullptr);
    *mode = CU_MODULE_LAZY_LOADING;  // kernels are translated when first needed
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
