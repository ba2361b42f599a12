// SPDX-License-Identifier: MIT
// Scopes, names, operands and statements of the translation; the instructions themselves are in translate_*.cpp.
#include "toolchain/softgpu/exec/translate.h"

#include <algorithm>
#include <bit>

#include "toolchain/ptx/printer.h"
#include "toolchain/softgpu/exec/memory.h"

namespace hpe::soft::exec {
namespace {

std::uint64_t up(std::uint64_t v, std::uint64_t to) { return (v + to - 1) / to * to; }

}  // namespace

bool Translator::refuse(const std::string& what) {
    if (ok_) {
        why_ = "not supported";
        if (!what.empty()) why_ += " (" + what + ")";
        if (now_ != nullptr) why_ += ": line " + std::to_string(now_->line) + ": " + ptx::print(*now_);
    }
    ok_ = false;
    return false;
}

bool Translator::wrong(const std::string& what) { return refuse(what); }

bool Translator::operand_count(std::size_t least, std::size_t most) {
    const std::size_t n = now_->operands.size();
    return (n >= least && n <= std::max(least, most)) || wrong("a wrong number of operands");
}

bool Translator::has(const char* name) {
    for (std::size_t n = 0; n < taken_.size(); n++)
        if (!taken_[n] && now_->modifiers[n] == name) {
            taken_[n] = true;
            return true;
        }
    return false;
}

bool Translator::has_any(std::initializer_list<const char*> names) {
    bool any = false;
    for (const char* name : names) {
        if (has(name)) any = true;
    }
    return any;
}

Type Translator::take_type() {
    for (std::size_t n = 0; n < taken_.size(); n++) {
        if (taken_[n]) continue;
        if (const Type t = ptx::type_named(now_->modifiers[n]); t != Type::None) {
            taken_[n] = true;
            return t;
        }
    }
    return Type::None;
}

Rounding Translator::take_rounding() {
    static constexpr std::pair<const char*, Rounding> names[] = {
        {"rn", Rounding::Rn},   {"rz", Rounding::Rz},   {"rm", Rounding::Rm},   {"rp", Rounding::Rp},
        {"rni", Rounding::Rni}, {"rzi", Rounding::Rzi}, {"rmi", Rounding::Rmi}, {"rpi", Rounding::Rpi},
    };
    for (const auto& [name, rounding] : names)
        if (has(name)) return rounding;
    return Rounding::None;
}

bool Translator::all_taken() {
    for (std::size_t n = 0; n < taken_.size(); n++)
        if (!taken_[n]) return refuse("." + now_->modifiers[n]);
    return ok_;
}

std::uint32_t Translator::allot_local(std::uint64_t bytes, std::uint64_t alignment) {
    const std::uint64_t at = up(local_, std::max<std::uint64_t>(alignment, 1));
    if (at + bytes > (1u << 24)) {
        refuse("more local memory than 16 MiB");
        return 0;
    }
    local_ = static_cast<std::uint32_t>(at + bytes);
    local_most_ = std::max(local_most_, local_);
    return static_cast<std::uint32_t>(at);
}

// Results and parameters of a function lie first in its local memory, each in granules of its own, so that caller and
// callee agree on the places without knowing each other.
bool Translator::signature() {
    const auto place = [&](const ptx::Variable& v, std::vector<std::uint32_t>& at, std::vector<std::uint32_t>& size) {
        if (v.space != ptx::Space::Param) return refuse("parameters in registers: " + v.name);
        if (v.unsized) return refuse("a function with a variable number of arguments");
        if (v.alignment > local_granule) return refuse("a parameter aligned to more than 16 bytes");
        const auto bytes = static_cast<std::uint32_t>(v.bytes());
        at.push_back(allot_local(up(bytes, local_granule), local_granule));
        size.push_back(bytes);
        scopes_.back().names[v.name] = {Name::Kind::Local, at.back(), bytes};
        return true;
    };
    Code& code = drafts_.code();
    if (function_.entry) {
        std::uint64_t at = 0;
        for (const auto& v : function_.parameters) {
            at = up(at, std::max<std::uint64_t>(v.alignment, ptx::size_of(v.type) * v.vector));
            scopes_.back().names[v.name] = {Name::Kind::KernelParameter, static_cast<std::uint32_t>(at),
                                            static_cast<std::uint32_t>(v.bytes())};
            at += v.bytes();
        }
        return true;
    }
    for (const auto& v : function_.results)
        if (!place(v, code.result_at, code.result_size)) return false;
    for (const auto& v : function_.parameters)
        if (!place(v, code.parameter_at, code.parameter_size)) return false;
    return true;
}

bool Translator::run(Code& out, std::string& why) {
    scopes_.emplace_back();
    bool fine = signature() && scope(function_.body);
    now_ = nullptr;
    if (fine) {
        drafts_.leader();
        Draft& d = drafts_.emit(run_return, function_.line);
        d.ends = true;
        Code& code = drafts_.code();
        code.name = function_.name;
        code.entry = function_.entry;
        code.local_bytes = static_cast<std::uint32_t>(up(local_most_, local_granule));
        code.callees = callees_;
        code.calls_indirectly = calls_indirectly_;
        code.allocates = allocates_;
        code.declared_registers = declared_registers_;
        fine = drafts_.finish(out) || refuse("a jump to a label that is nowhere");
    }
    if (!fine) why = why_;
    return fine;
}

bool Translator::scope(const ptx::Scope& s) {
    scopes_.emplace_back();
    scopes_.back().local_mark = local_;
    const ptx::Label* last = nullptr;
    for (const auto& statement : s.statements) {
        if (const auto* l = std::get_if<ptx::Label>(&statement)) {
            scopes_.back().labels[l->name] = drafts_.make_label();
            last = l;
        } else if (const auto* d = std::get_if<ptx::Directive>(&statement)) {
            if (last != nullptr) scopes_.back().directives[last->name] = d;
        } else {
            last = nullptr;
        }
    }
    for (const auto& statement : s.statements) {
        if (const auto* l = std::get_if<ptx::Label>(&statement)) {
            drafts_.place_label(scopes_.back().labels[l->name]);
        } else if (const auto* v = std::get_if<ptx::Variable>(&statement)) {
            if (!declare(*v)) return false;
        } else if (const auto* i = std::get_if<Instruction>(&statement)) {
            if (!instruction(*i)) return false;
        } else if (const auto* inner = std::get_if<std::unique_ptr<ptx::Scope>>(&statement)) {
            if (!scope(**inner)) return false;
        }
    }
    local_ = scopes_.back().local_mark;
    scopes_.pop_back();
    return true;
}

bool Translator::declare(const ptx::Variable& v) {
    const auto refuse_here = [&](const std::string& what) {
        now_ = nullptr;
        return refuse("line " + std::to_string(v.line) + ": " + what);
    };
    switch (v.space) {
        case ptx::Space::Reg: {
            unsigned bytes = ptx::size_of(v.type);
            if (v.vector != 1) return refuse_here("vector registers");
            if (bytes == 1) bytes = 2;
            declared_registers_ += bytes == 0 ? 0 : std::max(v.count, 1u) * std::max(1u, bytes / 4);
            if (v.count != 0)
                scopes_.back().counted[v.name] = {bytes, v.type};
            else
                scopes_.back().names[v.name] = {Name::Kind::Register, drafts_.make_register(bytes), bytes};
            return true;
        }
        case ptx::Space::Local:
        case ptx::Space::Param: {
            const bool param = v.space == ptx::Space::Param;
            std::uint64_t alignment = std::max<std::uint64_t>(v.alignment, ptx::size_of(v.type) * v.vector);
            if (param) alignment = local_granule;
            if (alignment > local_granule && !param) alignment = up(alignment, local_granule);
            const auto bytes = static_cast<std::uint32_t>(v.bytes());
            const std::uint32_t at = allot_local(param ? up(v.bytes(), local_granule) : v.bytes(), alignment);
            scopes_.back().names[v.name] = {Name::Kind::Local, at, bytes};
            return ok_;
        }
        case ptx::Space::Shared: {
            if (v.unsized) {
                shared_.dynamic_alignment = std::max(
                    shared_.dynamic_alignment, static_cast<std::uint32_t>(std::max<std::uint64_t>(v.alignment, 1)));
                scopes_.back().names[v.name] = {Name::Kind::DynamicShared, 0, 0};
                return true;
            }
            const std::string key = function_.name + "/" + std::to_string(v.line) + "/" + v.name;
            const auto [at, fresh] = shared_.offsets.try_emplace(key, 0);
            if (fresh) {
                const std::uint64_t alignment =
                    std::max<std::uint64_t>({v.alignment, ptx::size_of(v.type) * v.vector, 1});
                const std::uint64_t begin = up(shared_.bytes, alignment);
                if (begin + v.bytes() > (1u << 20)) return refuse_here("more shared memory than 1 MiB");
                at->second = static_cast<std::uint32_t>(begin);
                shared_.bytes = static_cast<std::uint32_t>(begin + v.bytes());
            }
            scopes_.back().names[v.name] = {Name::Kind::Shared, at->second, static_cast<std::uint32_t>(v.bytes())};
            return true;
        }
        default: return refuse_here("a variable of this kind in a function: " + v.name);
    }
}

const Translator::Name* Translator::find(const std::string& name) {
    for (std::size_t n = scopes_.size(); n-- > 0;) {
        ScopeNames& s = scopes_[n];
        if (const auto at = s.names.find(name); at != s.names.end()) return &at->second;
        std::size_t digits = name.size();
        while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
        if (digits == name.size()) continue;
        if (const auto at = s.counted.find(name.substr(0, digits)); at != s.counted.end()) {
            return &(s.names[name] = {Name::Kind::Register, drafts_.make_register(at->second.first), at->second.first});
        }
    }
    return nullptr;
}

std::uint32_t Translator::find_label(const std::string& name) {
    for (std::size_t n = scopes_.size(); n-- > 0;)
        if (const auto at = scopes_[n].labels.find(name); at != scopes_[n].labels.end()) return at->second;
    wrong("an unknown label");
    return 0;
}

Draft& Translator::emit(Handler handler) {
    if (handler == nullptr) refuse("");
    Draft& d = drafts_.emit(handler, now_->line);
    d.i.guard = guard_;
    return d;
}

void Translator::watch(Draft& d, Watched::Kind kind, bool strong, unsigned bytes, unsigned register_bytes) {
    const bool inside = d.i.memory == Memory::Shared || d.i.memory == Memory::Generic;
    if (!inside && !(strong && d.i.memory == Memory::Global)) return;
    d.watched.kind = kind;
    d.watched.strong = strong;
    d.watched.bytes = static_cast<std::uint8_t>(bytes);
    d.watched.register_bytes = static_cast<std::uint8_t>(register_bytes);
}

bool Translator::instruction(const Instruction& i) {
    now_ = &i;
    taken_.assign(i.modifiers.size(), false);
    guard_ = 0;
    if (!i.guard.name.empty()) {
        const Name* p = find(i.guard.name);
        if (p == nullptr || p->kind != Name::Kind::Register || p->bytes != 0)
            return wrong("a guard that is no predicate");
        guard_ = p->at | (i.guard.negated ? 1 : 0);
    }
    return dispatch() && ok_;
}

bool Translator::is_register(const Operand& o) {
    const Name* n = o.kind == Operand::Kind::Name ? find(o.name) : nullptr;
    return n != nullptr && n->kind == Name::Kind::Register;
}

std::uint32_t Translator::immediate(const Operand& o, unsigned bytes, bool floating) {
    const auto bits = static_cast<std::uint64_t>(o.value);
    if (o.kind == Operand::Kind::Integer) {
        if (floating) {
            wrong("an integer where a float belongs");
            return 1;
        }
        return drafts_.constant(bits, bytes);
    }
    if (o.kind == Operand::Kind::Float32) {
        if (bytes == 8)
            return drafts_.constant(std::bit_cast<std::uint64_t>(
                                        static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))),
                                    8);
        if (bytes == 4) return drafts_.constant(bits, 4);
    }
    if (o.kind == Operand::Kind::Float64) {
        if (bytes == 8) return drafts_.constant(bits, 8);
        if (bytes == 4)
            return drafts_.constant(std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits))), 4);
    }
    refuse("a constant of this kind");
    return 1;
}

std::uint32_t Translator::value_of_name(const Operand& o, unsigned bytes) {
    const auto refused = [&](const std::string& what) {
        refuse(what);
        return std::uint32_t{1};
    };
    if (const Name* n = find(o.name)) {
        const std::uint64_t at = n->at + static_cast<std::uint64_t>(o.value);
        switch (n->kind) {
            case Name::Kind::Register: return refused("arithmetic on a register in an operand");
            case Name::Kind::Shared: return drafts_.constant(at, bytes);
            case Name::Kind::DynamicShared: return drafts_.address(dynamic_shared_symbol, o.value, bytes);
            case Name::Kind::KernelParameter: return drafts_.constant(at, bytes);
            case Name::Kind::Local: {
                const std::uint32_t temporary = drafts_.make_register(bytes);
                Draft& d = emit(run_local_address);
                d.i.guard = 0;
                d.i.dst = temporary;
                d.i.imm = at;
                d.i.count = static_cast<std::uint16_t>(bytes);
                d.roles = role_dst;
                return temporary;
            }
        }
    }
    if (const auto v = symbols_.variables.find(o.name); v != symbols_.variables.end()) {
        const ptx::Variable& variable = *v->second;
        if (variable.space == ptx::Space::Shared) {
            if (variable.unsized) {
                shared_.dynamic_alignment =
                    std::max(shared_.dynamic_alignment,
                             static_cast<std::uint32_t>(std::max<std::uint64_t>(variable.alignment, 1)));
                return drafts_.address(dynamic_shared_symbol, o.value, bytes);
            }
            const auto [at, fresh] = shared_.offsets.try_emplace(o.name, 0);
            if (fresh) {
                const auto begin =
                    up(shared_.bytes, std::max<std::uint64_t>({variable.alignment, ptx::size_of(variable.type), 1}));
                if (begin + variable.bytes() > (1u << 20)) return refused("more shared memory than 1 MiB");
                at->second = static_cast<std::uint32_t>(begin);
                shared_.bytes = static_cast<std::uint32_t>(begin + variable.bytes());
            }
            return drafts_.constant(at->second + static_cast<std::uint64_t>(o.value), bytes);
        }
        if (bytes != 8) return refused("an address in less than 64 bits");
        return drafts_.address(o.name, o.value);
    }
    if (symbols_.functions.contains(o.name) && bytes == 8) return drafts_.address(o.name, o.value);
    return special_register(o.name, bytes);
}

std::uint32_t Translator::special_register(const std::string& name, unsigned bytes) {
    static const std::unordered_map<std::string, Special> known = {
        {"%tid.x", Special::TidX},
        {"%tid.y", Special::TidY},
        {"%tid.z", Special::TidZ},
        {"%ntid.x", Special::NtidX},
        {"%ntid.y", Special::NtidY},
        {"%ntid.z", Special::NtidZ},
        {"%ctaid.x", Special::CtaidX},
        {"%ctaid.y", Special::CtaidY},
        {"%ctaid.z", Special::CtaidZ},
        {"%nctaid.x", Special::NctaidX},
        {"%nctaid.y", Special::NctaidY},
        {"%nctaid.z", Special::NctaidZ},
        {"%laneid", Special::Laneid},
        {"%warpid", Special::Warpid},
        {"%nwarpid", Special::Nwarpid},
        {"%smid", Special::Smid},
        {"%nsmid", Special::Nsmid},
        {"%gridid", Special::Gridid},
        {"%lanemask_eq", Special::LanemaskEq},
        {"%lanemask_le", Special::LanemaskLe},
        {"%lanemask_lt", Special::LanemaskLt},
        {"%lanemask_ge", Special::LanemaskGe},
        {"%lanemask_gt", Special::LanemaskGt},
        {"%clock", Special::Clock},
        {"%clock_hi", Special::ClockHi},
        {"%clock64", Special::Clock64},
        {"%globaltimer", Special::Globaltimer},
        {"%globaltimer_lo", Special::GlobaltimerLo},
        {"%globaltimer_hi", Special::GlobaltimerHi},
        {"%envreg1", Special::Envreg1},
        {"%envreg2", Special::Envreg2},
        {"%reserved_smem_offset_1", Special::ReservedShared},
        {"%dynamic_smem_size", Special::DynamicShared},
        {"%total_smem_size", Special::TotalShared},
        {"WARP_SZ", Special::WarpSize},
        // Without clusters a block is a cluster of its own.
        {"%cluster_ctaid.x", Special::Zero},
        {"%cluster_ctaid.y", Special::Zero},
        {"%cluster_ctaid.z", Special::Zero},
        {"%cluster_nctaid.x", Special::One},
        {"%cluster_nctaid.y", Special::One},
        {"%cluster_nctaid.z", Special::One},
        {"%cluster_ctarank", Special::Zero},
        {"%cluster_nctarank", Special::One},
        {"%clusterid.x", Special::CtaidX},
        {"%clusterid.y", Special::CtaidY},
        {"%clusterid.z", Special::CtaidZ},
        {"%nclusterid.x", Special::NctaidX},
        {"%nclusterid.y", Special::NctaidY},
        {"%nclusterid.z", Special::NctaidZ},
    };
    auto at = known.find(name);
    const bool envreg = at == known.end() && name.starts_with("%envreg");
    if (at == known.end() && !envreg) {
        refuse("the name " + name);
        return 1;
    }
    if (!envreg && at->second == Special::ReservedShared) drafts_.code().reserves = true;
    const std::uint32_t temporary = drafts_.make_register(bytes);
    Draft& d = emit(run_special);
    d.i.guard = 0;
    d.i.dst = temporary;
    d.i.mode = static_cast<std::uint16_t>(envreg ? Special::EnvregZero : at->second);
    d.i.count = static_cast<std::uint16_t>(bytes);
    d.roles = role_dst;
    return temporary;
}

std::uint32_t Translator::source(const Operand& o, unsigned bytes, bool floating) {
    if (o.negated || bytes == 0) {
        wrong("a predicate where a value belongs");
        return 1;
    }
    if (o.kind != Operand::Kind::Name) return immediate(o, bytes, floating);
    const Name* n = find(o.name);
    if (n == nullptr || n->kind != Name::Kind::Register || o.value != 0) return value_of_name(o, bytes);
    if (n->bytes != bytes) wrong("an operand of another size: " + o.name);
    return n->at;
}

std::uint32_t Translator::source(const Operand& o, Type type) {
    return source(o, ptx::size_of(type), type == Type::F32 || type == Type::F64);
}

std::uint32_t Translator::wide_source(const Operand& o, Type type, unsigned& register_bytes) {
    register_bytes = std::max(2u, ptx::size_of(type));
    if (is_register(o)) {
        const Name* n = find(o.name);
        if (n->bytes < register_bytes) wrong("an operand of a smaller size: " + o.name);
        register_bytes = n->bytes;
        return n->at;
    }
    return source(o, register_bytes, type == Type::F32 || type == Type::F64);
}

std::uint32_t Translator::destination(const Operand& o, unsigned bytes) {
    if (o.kind == Operand::Kind::Name && o.name == "_") return drafts_.make_register(bytes);
    if (!is_register(o) || o.negated) {
        wrong("a destination that is no register");
        return 0;
    }
    const Name* n = find(o.name);
    if (n->bytes != bytes) wrong("a destination of another size: " + o.name);
    return n->at;
}

std::uint32_t Translator::wide_destination(const Operand& o, Type type, unsigned& register_bytes) {
    register_bytes = std::max(2u, ptx::size_of(type));
    if (o.kind == Operand::Kind::Name && o.name == "_") return drafts_.make_register(register_bytes);
    if (!is_register(o)) {
        wrong("a destination that is no register");
        return 0;
    }
    const Name* n = find(o.name);
    if (n->bytes < register_bytes) wrong("a destination of a smaller size: " + o.name);
    register_bytes = n->bytes;
    return n->at;
}

std::uint32_t Translator::predicate_source(const Operand& o, bool& negated) {
    negated = o.negated;
    if (o.kind == Operand::Kind::Integer) return drafts_.constant(o.value != 0 ? all_lanes : 0, 0);
    if (o.kind == Operand::Kind::Name && o.name == "%is_explicit_cluster") return drafts_.constant(0, 0);
    const Name* n = o.kind == Operand::Kind::Name ? find(o.name) : nullptr;
    if (n == nullptr || n->kind != Name::Kind::Register || n->bytes != 0) {
        wrong("a predicate was expected");
        return 1;
    }
    return n->at;
}

std::uint32_t Translator::predicate_destination(const Operand& o) {
    if (o.kind == Operand::Kind::Name && o.name == "_") return drafts_.make_register(0);
    bool negated = false;
    const std::uint32_t ref = predicate_source(o, negated);
    if ((ref & 1) != 0 || negated) wrong("a predicate register was expected");
    return ref;
}

bool Translator::simple(Handler handler, Type result, std::initializer_list<Type> sources, std::uint64_t imm) {
    if (!all_taken()) return false;
    if (now_->operands.size() != sources.size() + 1) return wrong("a wrong number of operands");
    std::uint32_t refs[4] = {};
    unsigned n = 0;
    std::uint16_t roles = role_dst;
    for (const Type t : sources) {
        refs[n] = source(now_->operands[n + 1], t);
        roles = static_cast<std::uint16_t>(roles | (role_src0 << n));
        n++;
    }
    const std::uint32_t dst = destination(now_->operands[0], ptx::size_of(result));
    Draft& d = emit(handler);
    d.i.dst = dst;
    std::copy_n(refs, 4, d.i.src);
    d.i.imm = imm;
    d.roles = roles;
    return ok_;
}

}  // namespace hpe::soft::exec
