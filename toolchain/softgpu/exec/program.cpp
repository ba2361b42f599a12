// SPDX-License-Identifier: MIT
// Program: a module's variables, its kernels translated on demand, and their launches.
#include <algorithm>
#include <new>
#include <set>

#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"
#include "toolchain/softgpu/exec/initial.h"
#include "toolchain/softgpu/exec/launch.h"
#include "toolchain/softgpu/exec/memory.h"
#include "toolchain/softgpu/exec/source_lines.h"
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft {
namespace {

using namespace exec;

constexpr std::uint32_t most_shared = 227 * 1024;
constexpr std::uint32_t most_threads = 1024;
constexpr std::uint32_t reserved_shared = 1024;  // per block, for cooperative groups of several warps
// Where calls may nest without a known bound, each thread gets this much stack, or what the limit of the context says
// if that is more. Pages count only when touched.
constexpr std::uint32_t unbounded_stack = 64 * 1024;

std::uint32_t up_to_granule(std::uint32_t bytes) { return (bytes + 15) / 16 * 16; }

std::string shorten(const std::string& text) { return text.size() > 300 ? text.substr(0, 297) + "..." : text; }

// A kernel with all the functions that it may call.
struct Kernel final : ProgramImage {
    KernelInfo info;
    std::vector<std::unique_ptr<Code>> codes;  // by function number
    std::uint32_t number = 0;
    std::uint32_t dynamic_shared_at = 0;
    std::uint32_t local_bytes = 0;  // without the stack of calls, unless that is bounded
    bool stack_bounded = true;
    Failure refusal;
    bool resolved = false;  // addresses of variables are in the constants

    const Code* code(std::uint64_t n) const override { return n < codes.size() ? codes[n].get() : nullptr; }
    std::string source(const Code& where, const Instr& i) const override {
        std::string text = i.line != 0 ? "PTX line " + std::to_string(i.line) : "PTX of unknown line";
        if (const std::string place = sources->of(i.line); !place.empty()) text += " (" + place + ")";
        if (!where.entry) text += " in " + where.name;
        const auto at = lines->find(i.line);
        return at != lines->end() ? text + ": " + shorten(ptx::print(*at->second)) : text;
    }
    const std::unordered_map<std::uint32_t, const ptx::Instruction*>* lines = nullptr;
    const SourceLines* sources = nullptr;
};

class Module final : public Program {
public:
    bool read(std::string_view text, Failure& failure);

    std::vector<std::string> kernels() const override {
        std::vector<std::string> names;
        for (const ptx::Function* f : symbols_.by_number)
            if (f->entry && f->defined) names.push_back(f->name);
        return names;
    }
    int target() const override { return module_->target_arch(); }
    std::span<const Variable> variables() const override { return variables_; }
    void place(std::string_view variable, std::uint64_t address) override {
        const std::lock_guard guard(lock_);
        addresses_[std::string(variable)] = address;
        for (auto& [name, kernel] : kernels_) kernel->resolved = false;
    }
    const KernelInfo* prepare(std::string_view name, Failure& failure) override {
        try {
            const std::lock_guard guard(lock_);
            Kernel* const k = translated(std::string(name), failure);
            return k == nullptr ? nullptr : &k->info;
        } catch (const std::bad_alloc&) {
            failure = {Fault::Unsupported, "out of memory while translating " + std::string(name)};
            return nullptr;
        }
    }
    std::uint64_t code_address(std::string_view symbol) const override {
        const auto at = symbols_.functions.find(std::string(symbol));
        return at == symbols_.functions.end() ? 0 : code_window + std::uint64_t{at->second} * 16;
    }
    Failure run(std::string_view name, const Launch& launch, const AddressSpace& memory) override;

private:
    void index_lines(const ptx::Scope& s);
    Kernel* translated(const std::string& name, Failure& failure);
    bool translate(Kernel& k, std::uint32_t number, SharedLayout& shared, Failure& failure);
    void collect_addressed(const ptx::Scope& s);
    std::uint32_t stack_of(const Kernel& k, std::uint32_t number, std::vector<bool>& path, bool& bounded) const;
    void describe(Kernel& k, const ptx::Function& f, const SharedLayout& shared);
    bool resolve(Kernel& k, Failure& failure);
    static Failure check(const Kernel& k, const Launch& launch);

    std::unique_ptr<ptx::Module> module_;
    Symbols symbols_;
    std::vector<Variable> variables_;
    std::unordered_map<std::uint32_t, const ptx::Instruction*> lines_;
    SourceLines sources_;
    std::set<std::uint32_t> addressed_;  // functions whose address is taken
    std::mutex lock_;                    // what follows
    std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
    std::unordered_map<std::string, std::uint64_t> addresses_;
};

void Module::index_lines(const ptx::Scope& s) {
    for (const auto& statement : s.statements) {
        if (const auto* i = std::get_if<ptx::Instruction>(&statement))
            lines_.emplace(i->line, i);
        else if (const auto* inner = std::get_if<std::unique_ptr<ptx::Scope>>(&statement))
            index_lines(**inner);
    }
}

void Module::collect_addressed(const ptx::Scope& s) {
    for (const auto& statement : s.statements) {
        if (const auto* inner = std::get_if<std::unique_ptr<ptx::Scope>>(&statement)) collect_addressed(**inner);
        const auto* i = std::get_if<ptx::Instruction>(&statement);
        if (i == nullptr || i->opcode != "mov") continue;
        for (const auto& o : i->operands)
            if (const auto f = symbols_.functions.find(o.name); f != symbols_.functions.end())
                addressed_.insert(f->second);
    }
}

bool Module::read(std::string_view text, Failure& failure) {
    std::string why;
    module_ = ptx::parse(text, why);
    if (module_ == nullptr || !ptx::verify(*module_, why)) {
        failure = {Fault::InvalidPtx, "PTX " + shorten(why)};
        return false;
    }
    symbols_.module = module_.get();
    sources_.read(*module_);
    for (const auto& item : module_->items) {
        if (const auto* f = std::get_if<ptx::Function>(&item)) {
            const auto [at, fresh] =
                symbols_.functions.try_emplace(f->name, static_cast<std::uint32_t>(symbols_.by_number.size()));
            if (fresh)
                symbols_.by_number.push_back(f);
            else if (f->defined)
                symbols_.by_number[at->second] = f;
            if (f->defined) index_lines(f->body);
        } else if (const auto* v = std::get_if<ptx::Variable>(&item)) {
            const auto [at, fresh] = symbols_.variables.try_emplace(v->name, v);
            if (!fresh && v->linkage != "extern") at->second = v;
        }
    }
    for (const auto& item : module_->items) {
        const auto* v = std::get_if<ptx::Variable>(&item);
        if (v == nullptr || (v->space != ptx::Space::Global && v->space != ptx::Space::Const)) continue;
        if (symbols_.variables[v->name] != v) continue;
        Variable out;
        if (!initial_bytes(*v, out, why)) {
            failure = {Fault::Unsupported, "PTX line " + std::to_string(v->line) + ": " + why};
            return false;
        }
        for (const Relocation& r : out.relocations)
            if (const auto f = symbols_.functions.find(r.symbol); f != symbols_.functions.end())
                addressed_.insert(f->second);
        variables_.push_back(std::move(out));
    }
    for (const ptx::Function* f : symbols_.by_number)
        if (f->defined) collect_addressed(f->body);
    return true;
}

bool Module::translate(Kernel& k, std::uint32_t number, SharedLayout& shared, Failure& failure) {
    std::vector<std::uint32_t> todo{number};
    bool all_addressed = false;
    while (!todo.empty()) {
        const std::uint32_t n = todo.back();
        todo.pop_back();
        if (k.codes[n] != nullptr) continue;
        const ptx::Function& f = *symbols_.by_number[n];
        auto code = std::make_unique<Code>();
        std::string why;
        if (!Translator(symbols_, shared, f).run(*code, why)) {
            failure = {Fault::Unsupported,
                       "kernel " + k.info.name + (f.entry ? "" : ", function " + f.name) + ": " + shorten(why)};
            return false;
        }
        todo.insert(todo.end(), code->callees.begin(), code->callees.end());
        if (code->calls_indirectly && !all_addressed) {
            all_addressed = true;
            for (const std::uint32_t a : addressed_)
                if (symbols_.by_number[a]->defined && !symbols_.by_number[a]->entry) todo.push_back(a);
        }
        k.codes[n] = std::move(code);
    }
    return true;
}

std::uint32_t Module::stack_of(const Kernel& k, std::uint32_t number, std::vector<bool>& path, bool& bounded) const {
    const Code& code = *k.codes[number];
    if (path[number] || code.calls_indirectly || code.allocates) {
        bounded = false;
        return 0;
    }
    path[number] = true;
    std::uint32_t deepest = 0;
    std::set<std::uint32_t> callees(code.callees.begin(), code.callees.end());
    for (const std::uint32_t c : callees) {
        if (!bounded) break;
        deepest = std::max(deepest, stack_of(k, c, path, bounded));
    }
    path[number] = false;
    return code.local_bytes + deepest;
}

void Module::describe(Kernel& k, const ptx::Function& f, const SharedLayout& shared) {
    KernelInfo& info = k.info;
    std::uint64_t at = 0;
    for (const auto& p : f.parameters) {
        const std::uint64_t alignment = std::max<std::uint64_t>(p.alignment, ptx::size_of(p.type) * p.vector);
        at = (at + alignment - 1) / alignment * alignment;
        info.parameters.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(p.bytes()),
                                   static_cast<std::uint32_t>(alignment)});
        at += p.bytes();
    }
    info.parameter_bytes = static_cast<std::uint32_t>(at);
    info.static_shared_bytes = shared.bytes;
    k.dynamic_shared_at =
        (shared.bytes + shared.dynamic_alignment - 1) / shared.dynamic_alignment * shared.dynamic_alignment;
    std::vector<bool> path(k.codes.size());
    bool bounded = true;
    const std::uint32_t stack = stack_of(k, k.number, path, bounded);
    k.stack_bounded = bounded;
    k.local_bytes = bounded ? stack : k.codes[k.number]->local_bytes;
    info.local_bytes = bounded ? stack : k.codes[k.number]->local_bytes;
    for (const auto& code : k.codes)
        if (code != nullptr) info.registers = std::max(info.registers, std::min(code->declared_registers, 255u));
    const auto product = [&](const char* name, std::uint32_t otherwise) {
        const ptx::Directive* d = f.directive(name);
        if (d == nullptr) return otherwise;
        std::uint64_t n = 1;
        for (const auto& w : d->words)
            if (!w.empty() && w[0] >= '0' && w[0] <= '9') n *= std::min(std::stoull(w.substr(0, 9)), 1ull << 20);
        return static_cast<std::uint32_t>(std::min<std::uint64_t>(n, most_threads));
    };
    if (const ptx::Directive* d = f.directive("maxnreg"); d != nullptr && !d->words.empty())
        info.registers =
            std::min(info.registers, static_cast<std::uint32_t>(std::strtoul(d->words[0].c_str(), nullptr, 10)));
    info.max_threads = std::min(product("maxntid", most_threads), product("reqntid", most_threads));
}

Kernel* Module::translated(const std::string& name, Failure& failure) {
    if (const auto at = kernels_.find(name); at != kernels_.end()) {
        failure = at->second->refusal;
        return at->second->refusal ? nullptr : at->second.get();
    }
    const auto f = symbols_.functions.find(name);
    if (f == symbols_.functions.end() || !symbols_.by_number[f->second]->entry ||
        !symbols_.by_number[f->second]->defined) {
        failure = {Fault::InvalidLaunch, "the module has no kernel " + name};
        return nullptr;
    }
    auto fresh = std::make_unique<Kernel>();
    Kernel& k = *fresh;
    k.info.name = name;
    k.number = f->second;
    k.lines = &lines_;
    k.sources = &sources_;
    k.codes.resize(symbols_.by_number.size());
    SharedLayout shared;
    if (translate(k, f->second, shared, k.refusal)) describe(k, *symbols_.by_number[f->second], shared);
    failure = k.refusal;
    kernels_[name] = std::move(fresh);
    return k.refusal ? nullptr : &k;
}

bool Module::resolve(Kernel& k, Failure& failure) {
    if (k.resolved) return true;
    for (const auto& code : k.codes) {
        if (code == nullptr) continue;
        for (const Code::Fixup& fix : code->fixups) {
            std::uint64_t address = 0;
            if (fix.symbol == dynamic_shared_symbol) {
                address = k.dynamic_shared_at;
            } else if (const auto at = addresses_.find(fix.symbol); at != addresses_.end()) {
                address = at->second;
            } else if ((address = code_address(fix.symbol)) == 0) {
                failure = {Fault::InvalidLaunch,
                           "kernel " + k.info.name + ": the variable " + fix.symbol + " has no place"};
                return false;
            }
            address += static_cast<std::uint64_t>(fix.addend);
            for (unsigned l = 0; l < lanes; l++)
                std::memcpy(code->constants.data() + fix.offset + l * fix.bytes, &address, fix.bytes);
        }
    }
    k.resolved = true;
    return true;
}

Failure Module::check(const Kernel& k, const Launch& launch) {
    const auto invalid = [&](const std::string& what) {
        return Failure{Fault::InvalidLaunch, "kernel " + k.info.name + ": " + what};
    };
    const Dim3 &g = launch.grid, &b = launch.block;
    if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0) return invalid("an empty grid or block");
    if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return invalid("the grid is too large");
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || std::uint64_t{b.x} * b.y * b.z > k.info.max_threads)
        return invalid("the block has too many threads");
    if (std::uint64_t{k.dynamic_shared_at} + launch.dynamic_shared_bytes > most_shared)
        return invalid("more shared memory than there is");
    if (launch.parameters.size() < k.info.parameter_bytes) return invalid("too few bytes of parameters");
    return {};
}

Failure Module::run(std::string_view name, const Launch& launch, const AddressSpace& memory) {
    try {
        LaunchState state;
        {
            const std::lock_guard guard(lock_);
            Failure failure;
            Kernel* const k = translated(std::string(name), failure);
            if (k == nullptr || !resolve(*k, failure)) return failure;
            if (failure = check(*k, launch); failure) return failure;
            state.program = k;
            state.code = k->codes[k->number].get();
            state.kernel = &k->info;
            state.static_shared = k->info.static_shared_bytes;
            state.shared_bytes = k->dynamic_shared_at + launch.dynamic_shared_bytes;
            if (std::any_of(k->codes.begin(), k->codes.end(),
                            [](const auto& c) { return c != nullptr && c->reserves; })) {
                state.reserved_at = (state.shared_bytes + 127) / 128 * 128;
                state.shared_bytes = state.reserved_at + reserved_shared;
            }
            state.local_bytes = k->local_bytes;
            if (!k->stack_bounded) state.local_bytes += std::max(unbounded_stack, up_to_granule(launch.stack_bytes));
        }
        state.dynamic_shared = launch.dynamic_shared_bytes;
        state.grid = launch.grid;
        state.block = launch.block;
        state.threads_per_block = launch.block.x * launch.block.y * launch.block.z;
        state.warps_per_block = (state.threads_per_block + lanes - 1) / lanes;
        state.cooperative = launch.cooperative;
        state.launch_id = launch.launch_id;
        state.parameters.assign(launch.parameters.begin(), launch.parameters.end());
        state.memory = &memory;
        state.blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
        run_grid(state);
        return state.failure;
    } catch (const std::bad_alloc&) {
        return {Fault::InvalidLaunch, "out of memory for the kernel " + std::string(name)};
    }
}

}  // namespace

bool is_device_function(std::string_view name) {
    return name == "vprintf" || name == "__assertfail" || name == "malloc" || name == "free" ||
           name == "cudaGraphSetConditional";
}

bool is_device_runtime_function(std::string_view name) {
    for (const std::string_view start : {"cuda", "__cuda"})
        if (name.starts_with(start) && name.size() > start.size() && name[start.size()] >= 'A' &&
            name[start.size()] <= 'Z')
            return !is_device_function(name);
    return false;
}

std::shared_ptr<Program> Program::load(std::string_view text, Failure& failure) {
    try {
        auto module = std::make_shared<Module>();
        if (!module->read(text, failure)) return nullptr;
        return module;
    } catch (const std::bad_alloc&) {
        failure = {Fault::InvalidPtx, "out of memory while reading PTX"};
        return nullptr;
    }
}

}  // namespace hpe::soft
