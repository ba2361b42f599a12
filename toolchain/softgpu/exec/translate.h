// SPDX-License-Identifier: MIT
// From a PTX function to Code; the driver's just-in-time compiler stands here on hardware. Source: PTX ISA,
// "Instruction Set". What the executor cannot run is refused here, with line and instruction.
// One Translator per function and thread; it borrows what it is made of. Errors: false, with a reason.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "toolchain/ptx/ast.h"
#include "toolchain/softgpu/exec/draft.h"
#include "toolchain/softgpu/exec/handlers.h"

namespace hpe::soft::exec {

// What all functions of a module share.
struct Symbols {
    const ptx::Module* module = nullptr;
    std::unordered_map<std::string, const ptx::Variable*> variables;  // .global, .const and .shared
    std::unordered_map<std::string, std::uint32_t> functions;         // to their numbers
    std::vector<const ptx::Function*> by_number;
};

// Shared memory of one kernel, as its functions come upon it.
struct SharedLayout {
    std::map<std::string, std::uint32_t> offsets;
    std::uint32_t bytes = 0;
    std::uint32_t dynamic_alignment = 16;
};
// Rounding and flushing as floating-point handlers find them in Instr::mode.
std::uint16_t floating_control(Rounding rounding, bool flush);

// The fixup symbol that stands for the start of dynamic shared memory.
constexpr const char* dynamic_shared_symbol = "%dynamic_shared";

class Translator {
public:
    Translator(const Symbols& symbols, SharedLayout& shared, const ptx::Function& function)
        : symbols_(symbols), shared_(shared), function_(function) {}
    bool run(Code& out, std::string& why);

private:
    using Operand = ptx::Operand;
    using Instruction = ptx::Instruction;

    struct Name {
        enum class Kind { Register, Local, KernelParameter, Shared, DynamicShared } kind = Kind::Register;
        std::uint32_t at = 0;  // register, or offset in its memory
        std::uint32_t bytes = 0;
    };
    struct ScopeNames {
        std::unordered_map<std::string, Name> names;
        std::unordered_map<std::string, std::pair<unsigned, Type>> counted;  // %r<5>: bytes of a register
        std::unordered_map<std::string, std::uint32_t> labels;
        std::unordered_map<std::string, const ptx::Directive*> directives;  // labelled: .branchtargets, .callprototype
        std::uint32_t local_mark = 0;
    };

    // Modifiers of the instruction at hand; what nobody takes is refused.
    bool has(const char* name);
    bool has_any(std::initializer_list<const char*> names);  // takes all that are there
    Type take_type();
    Rounding take_rounding();
    bool all_taken();

    bool refuse(const std::string& what);
    bool wrong(const std::string& what);
    bool operand_count(std::size_t least, std::size_t most = 0);

    bool scope(const ptx::Scope& s);
    bool declare(const ptx::Variable& v);
    bool signature();
    std::uint32_t allot_local(std::uint64_t bytes, std::uint64_t alignment);
    const Name* find(const std::string& name);
    std::uint32_t find_label(const std::string& name);
    bool instruction(const Instruction& i);
    bool dispatch();

    // Operands. They return 0 after a refusal; ok_ says so.
    std::uint32_t source(const Operand& o, unsigned bytes, bool floating = false);
    std::uint32_t source(const Operand& o, Type type);
    std::uint32_t wide_source(const Operand& o, Type type, unsigned& register_bytes);  // register may be wider
    std::uint32_t destination(const Operand& o, unsigned bytes);
    std::uint32_t wide_destination(const Operand& o, Type type, unsigned& register_bytes);
    std::uint32_t predicate_source(const Operand& o, bool& negated);
    std::uint32_t predicate_destination(const Operand& o);
    std::uint32_t special_register(const std::string& name, unsigned bytes);
    std::uint32_t value_of_name(const Operand& o, unsigned bytes);
    std::uint32_t immediate(const Operand& o, unsigned bytes, bool floating);
    bool is_register(const Operand& o);
    bool address(const Operand& o, Draft& d, Memory memory);
    Draft& emit(Handler handler);
    // Says what an instruction does to shared memory, if it may.
    static void watch(Draft& d, Watched::Kind kind, bool strong, unsigned bytes, unsigned register_bytes);
    // dst and sources of equal treatment, the common case
    bool simple(Handler handler, Type result, std::initializer_list<Type> sources, std::uint64_t imm = 0);

    // One group of opcodes each; translate_*.cpp.
    bool integer_arithmetic(const std::string& op);
    bool bit_instruction(const std::string& op);
    bool carry_instruction(const std::string& op);
    bool logic(const std::string& op);
    bool floating_arithmetic(const std::string& op, Type type);
    bool compare(const std::string& op);
    bool convert();
    bool move();
    bool select(const std::string& op);
    bool load();
    bool store();
    bool atomic(bool result);
    bool address_conversion();
    bool copy_async();
    bool copy_arrive();
    bool copy_bulk();
    bool mbarrier();
    bool stack(const std::string& op);
    bool texture();
    bool take_shared();
    std::uint32_t address_sum(const Draft& d);
    bool branch();
    bool branch_table();
    bool call();
    bool call_arguments(const Operand* list, std::vector<Copy>& copies, std::uint32_t& place);
    bool barrier();
    bool collective(const std::string& op);
    bool fence_or_hint(const std::string& op);
    bool is_packed() const;
    bool packed(const std::string& op);
    bool packed_compare(const std::string& op, Type part);
    std::vector<std::uint32_t> unpacked(const Operand& o, unsigned bytes, unsigned part);
    void pack_into(const Operand& o, unsigned bytes, const std::vector<std::uint32_t>& parts);
    bool find_nth_set(const std::string& op);
    bool atomic_128(bool compares, bool result, Memory memory);
    bool load_128(const Draft& at);
    bool store_128(const Draft& at);
    bool take_space(Memory& memory);
    void skip_memory_hints();

    const Symbols& symbols_;
    SharedLayout& shared_;
    const ptx::Function& function_;
    Drafts drafts_;
    std::vector<ScopeNames> scopes_;
    const Instruction* now_ = nullptr;
    std::vector<bool> taken_;
    std::string why_;
    bool ok_ = true;
    std::uint32_t local_ = 0, local_most_ = 0;
    std::vector<std::uint32_t> callees_;
    bool calls_indirectly_ = false;
    bool allocates_ = false;
    std::uint32_t declared_registers_ = 0;
    std::uint32_t guard_ = 0;
};

}  // namespace hpe::soft::exec
