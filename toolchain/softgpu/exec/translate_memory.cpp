// SPDX-License-Identifier: MIT
// Translation of mov, cvt, loads, stores, atomics and address conversions.
#include <algorithm>
#include <span>

#include "toolchain/softgpu/exec/memory.h"
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {

bool Translator::take_space(Memory& memory) {
    memory = Memory::Generic;
    if (has("global") || has("const"))
        memory = Memory::Global;
    else if (has("shared") || has("shared::cta"))
        memory = Memory::Shared;
    else if (has("local"))
        memory = Memory::Local;
    else if (has("param") || has("param::entry") || has("param::func"))
        memory = Memory::Param;
    return true;
}

// What may speed up the hardware but changes no value.
void Translator::skip_memory_hints() {
    for (const char* hint : {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak"}) has(hint);
    for (std::size_t n = 0; n < taken_.size(); n++) {
        const std::string& m = now_->modifiers[n];
        if (m.starts_with("L1::") || m.starts_with("L2::")) taken_[n] = m != "L2::cache_hint";
    }
}

bool Translator::address(const Operand& o, Draft& d, Memory memory) {
    if (o.kind != Operand::Kind::Address || o.elements.empty()) return wrong("an address was expected");
    const Operand& base = o.elements[0];
    d.i.memory = memory;
    d.i.imm = static_cast<std::uint64_t>(o.value);
    if (base.kind == Operand::Kind::Integer) {
        d.i.src[0] = drafts_.constant(static_cast<std::uint64_t>(base.value), 8);
        return true;
    }
    if (const Name* n = find(base.name)) {
        switch (n->kind) {
            case Name::Kind::Register:
                if (n->bytes != 4 && n->bytes != 8) return wrong("an address in a register of this size");
                // Only the windows have addresses that fit into 32 bits.
                if (n->bytes == 4 && (memory == Memory::Generic || memory == Memory::Global))
                    return refuse("a 32-bit address");
                d.i.src[0] = n->at;
                d.i.flags = static_cast<std::uint8_t>(d.i.flags | (n->bytes == 4 ? flag_address32 : 0));
                d.roles |= role_src0;
                // ld.param through a register: only kernels have parameters that have addresses.
                return memory != Memory::Param || function_.entry || refuse("the address of a function's parameter");
            case Name::Kind::Local:
                if (memory != Memory::Local && memory != Memory::Param)
                    return refuse("a local variable in another space");
                d.i.src[0] = drafts_.constant(0, 8);
                d.i.imm += n->at;
                d.i.memory = Memory::Local;
                d.i.flags |= flag_frame;
                return true;
            case Name::Kind::KernelParameter:
                if (memory != Memory::Param) return refuse("a parameter in another space");
                d.i.src[0] = drafts_.constant(0, 8);
                d.i.imm += n->at;
                return true;
            case Name::Kind::Shared:
            case Name::Kind::DynamicShared:
                if (memory != Memory::Shared) return refuse("a shared variable in another space");
                break;
        }
    } else if (const auto v = symbols_.variables.find(base.name); v != symbols_.variables.end()) {
        const bool shared = v->second->space == ptx::Space::Shared;
        if (shared != (memory == Memory::Shared) || memory == Memory::Local || memory == Memory::Param)
            return refuse("a variable in another space");
    } else {
        return wrong("an unknown name: " + base.name);
    }
    d.i.src[0] = value_of_name(base, 8);
    return ok_;
}

bool Translator::load() {
    const bool waits = has_any({"volatile", "acquire", "relaxed", "mmio"});
    has_any({"cta", "cluster", "gpu", "sys"});
    Memory memory{};
    take_space(memory);
    skip_memory_hints();
    has("unified");
    const unsigned count = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1;
    const Type t = take_type();
    if (!all_taken() || !operand_count(2)) return false;
    Draft prepared;
    if (!address(now_->operands[1], prepared, memory)) return false;
    if (t == Type::B128 && count == 1) {
        prepared.i.flags |= waits ? flag_synchronises : 0;
        return load_128(prepared);
    }
    const Operand& to = now_->operands[0];
    if ((count == 1) != (to.kind != Operand::Kind::Vector) || (count > 1 && to.elements.size() != count))
        return wrong("a vector of another length");
    unsigned bytes = 0;
    std::vector<std::uint32_t> targets;
    if (count == 1) {
        targets.push_back(wide_destination(to, t, bytes));
    } else {
        for (const Operand& e : to.elements)
            if (is_register(e)) bytes = find(e.name)->bytes;
        if (bytes == 0) bytes = std::max(2u, ptx::size_of(t));
        for (const Operand& e : to.elements) {
            const bool sink = e.kind == Operand::Kind::Name && e.name == "_";
            targets.push_back(sink ? drafts_.make_register(bytes) : destination(e, bytes));
        }
    }
    if (!ok_) return false;
    Draft& d = emit(handlers().load(t, bytes));
    d.i.memory = prepared.i.memory;
    d.i.imm = prepared.i.imm;
    d.i.src[0] = prepared.i.src[0];
    d.i.flags = static_cast<std::uint8_t>(prepared.i.flags | (waits ? flag_synchronises : 0));
    d.i.count = static_cast<std::uint16_t>(count);
    watch(d, Watched::Kind::Load, waits, ptx::size_of(t), bytes);
    d.roles = static_cast<std::uint16_t>(role_src0 | (count == 1 ? role_dst : role_extras_def));
    if (count == 1) {
        d.i.dst = targets[0];
    } else {
        d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
        drafts_.extras().insert(drafts_.extras().end(), targets.begin(), targets.end());
    }
    return ok_;
}

bool Translator::store() {
    const bool ordered = has_any({"volatile", "release", "relaxed", "mmio"});
    has_any({"cta", "cluster", "gpu", "sys"});
    Memory memory{};
    take_space(memory);
    skip_memory_hints();
    const unsigned count = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1;
    const Type t = take_type();
    if (!all_taken() || !operand_count(2)) return false;
    Draft prepared;
    if (!address(now_->operands[0], prepared, memory)) return false;
    if (t == Type::B128 && count == 1) {
        prepared.i.flags |= ordered ? flag_synchronises : 0;
        return store_128(prepared);
    }
    const Operand& from = now_->operands[1];
    if ((count == 1) != (from.kind != Operand::Kind::Vector) || (count > 1 && from.elements.size() != count))
        return wrong("a vector of another length");
    unsigned bytes = std::max(2u, ptx::size_of(t));
    std::vector<std::uint32_t> values;
    if (count == 1) {
        values.push_back(wide_source(from, t, bytes));
    } else {
        for (const Operand& e : from.elements)
            if (is_register(e)) bytes = find(e.name)->bytes;
        for (const Operand& e : from.elements) values.push_back(source(e, bytes, t == Type::F32 || t == Type::F64));
    }
    if (!ok_) return false;
    Draft& d = emit(handlers().store(t, bytes));
    d.i.memory = prepared.i.memory;
    d.i.imm = prepared.i.imm;
    d.i.src[0] = prepared.i.src[0];
    d.i.flags = prepared.i.flags;
    d.i.count = static_cast<std::uint16_t>(count);
    watch(d, Watched::Kind::Store, ordered, ptx::size_of(t), bytes);  // else the processor keeps the order
    d.roles = static_cast<std::uint16_t>(role_src0 | (count == 1 ? role_src1 : role_extras_use));
    if (count == 1) {
        d.i.src[1] = values[0];
    } else {
        d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
        drafts_.extras().insert(drafts_.extras().end(), values.begin(), values.end());
    }
    return ok_;
}

bool Translator::atomic(bool result) {
    for (const char* word : {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"})
        has(word);
    Memory memory{};
    take_space(memory);
    skip_memory_hints();
    if (memory == Memory::Local || memory == Memory::Param) return refuse("");
    static constexpr std::pair<const char*, Atomic> names[] = {
        {"add", Atomic::Add}, {"min", Atomic::Min},   {"max", Atomic::Max}, {"and", Atomic::And}, {"or", Atomic::Or},
        {"xor", Atomic::Xor}, {"exch", Atomic::Exch}, {"cas", Atomic::Cas}, {"inc", Atomic::Inc}, {"dec", Atomic::Dec}};
    const std::pair<const char*, Atomic>* op = nullptr;
    for (const auto& candidate : names)
        if (op == nullptr && has(candidate.first)) op = &candidate;
    const unsigned count = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1;
    const Type t = take_type();
    const unsigned at = result ? 1 : 0;
    if (op == nullptr) return refuse("");
    if (t == Type::B128 && count == 1) return atomic_128(op->second == Atomic::Cas, result, memory);
    const bool cas = op->second == Atomic::Cas;
    if (count > 1 && op->second != Atomic::Add) return refuse("");
    if (!all_taken() || !operand_count(at + (cas ? 3 : 2))) return false;
    Draft prepared;
    if (!address(now_->operands[at], prepared, memory)) return false;
    const auto elements = [&](const Operand& o) -> std::span<const Operand> {
        if (o.kind == Operand::Kind::Vector) return o.elements;
        return {&o, 1};
    };
    const std::span<const Operand> from = elements(now_->operands[at + 1]);
    if (from.size() != count || (now_->operands[at + 1].kind == Operand::Kind::Vector) != (count > 1))
        return wrong("a vector of another length");
    const Operand& to = now_->operands[0];
    const bool wanted = result && !(to.kind == Operand::Kind::Name && to.name == "_");
    if (wanted && elements(to).size() != count) return wrong("a vector of another length");
    std::vector<std::uint32_t> b, targets;
    for (const Operand& o : from) b.push_back(source(o, t));
    const std::uint32_t c = cas ? source(now_->operands[at + 2], t) : 0;
    for (const Operand& o : wanted ? elements(to) : std::span<const Operand>{}) {
        const bool sink = o.kind == Operand::Kind::Name && o.name == "_";
        targets.push_back(sink ? drafts_.make_register(ptx::size_of(t)) : destination(o, ptx::size_of(t)));
    }
    if (!ok_) return false;
    // The elements of a vector are added one after the other; each is atomic, the vector is not (PTX ISA, atom).
    for (unsigned n = 0; n < count; n++) {
        for (unsigned later = n + 1; wanted && later < count; later++)
            if (targets[n] == b[later]) return refuse("a vector that is result and operand");
        Draft& d = emit(handlers().atomic(op->second, t, wanted));
        d.i.memory = prepared.i.memory;
        d.i.imm = prepared.i.imm + n * ptx::size_of(t);
        d.i.src[0] = prepared.i.src[0];
        d.i.src[1] = b[n];
        d.i.src[2] = c;
        d.i.dst = wanted ? targets[n] : 0;
        d.i.count = static_cast<std::uint16_t>(n == 0 ? count : 1);
        d.i.flags = static_cast<std::uint8_t>(prepared.i.flags | (t == Type::F32 ? flag_flush : 0));
        watch(d, wanted ? Watched::Kind::Atomic : Watched::Kind::Reduction, true, ptx::size_of(t), 0);
        d.roles = static_cast<std::uint16_t>(role_src0 | role_src1 | (cas ? role_src2 : 0) | (wanted ? role_dst : 0));
    }
    return ok_;
}

// cp.async: done at once, so that there is never anything to wait for.
bool Translator::copy_async() {
    if (!has("async")) return refuse("");
    if (has("commit_group") || has("wait_all") || has("wait_group")) {
        if (!all_taken()) return false;
        emit(run_nothing);
        return ok_;
    }
    if (has("bulk")) return copy_bulk();
    if (has("mbarrier")) return copy_arrive();
    const bool to_shared = has("shared") || has("shared::cta");
    if (!to_shared || !has("global")) return refuse("");
    skip_memory_hints();
    const auto& o = now_->operands;
    if (!all_taken() || !operand_count(3, 4) || o[2].kind != Operand::Kind::Integer) return refuse("");
    const auto bytes = static_cast<std::uint64_t>(o[2].value);
    if (bytes != 4 && bytes != 8 && bytes != 16) return refuse("");
    if (o.size() == 4 && !is_register(o[3]) && o[3].kind != Operand::Kind::Integer) return refuse("");
    if (o.size() == 4 && is_register(o[3]) && find(o[3].name)->bytes == 0) return refuse("ignore-src");
    Draft to, from;
    if (!address(o[0], to, Memory::Shared) || !address(o[1], from, Memory::Global)) return false;
    const std::uint32_t valid = o.size() == 4 ? source(o[3], 4) : drafts_.constant(bytes, 4);
    const std::uint32_t target = address_sum(to), origin = address_sum(from);
    Draft& d = emit(run_copy_async);
    d.i.src[0] = target;
    d.i.src[1] = origin;
    d.i.src[2] = valid;
    d.i.imm = bytes;
    d.i.flags = to.i.flags & flag_address32;
    d.i.memory = Memory::Shared;
    watch(d, Watched::Kind::CopyAsync, false, static_cast<unsigned>(bytes), 0);
    d.roles = role_src0 | role_src1 | role_src2;
    return ok_;
}

bool Translator::move() {
    const Type t = take_type();
    if (!all_taken() || !operand_count(2)) return false;
    const Operand& to = now_->operands[0];
    const Operand& from = now_->operands[1];
    if (t == Type::Pred) {
        bool negated = false;
        const std::uint32_t p = predicate_source(from, negated), dst = predicate_destination(to);
        Draft& d = emit(predicate_handler(Op::Mov));
        d.i.dst = dst;
        d.i.src[0] = p;
        d.i.flags = negated ? flag_negated : 0;
        d.roles = role_dst | role_src0;
        return ok_;
    }
    const unsigned bytes = ptx::size_of(t);
    if (bytes < 2) return refuse("");
    const bool unpacks = to.kind == Operand::Kind::Vector, packs = from.kind == Operand::Kind::Vector;
    if (!unpacks && !packs) return simple(bytes == 16 ? run_move_128 : handlers().integer(Op::Mov, t), t, {t});
    const auto& parts = unpacks ? to.elements : from.elements;
    if ((unpacks && packs) || parts.empty() || bytes % parts.size() != 0) return refuse("");
    const auto part = static_cast<unsigned>(bytes / parts.size());
    if ((part & (part - 1)) != 0 || part > 8) return refuse("");
    const unsigned in_register = std::max(part, 2u);  // a byte lies in a register of two
    std::vector<std::uint32_t> refs;
    for (const Operand& e : parts) refs.push_back(unpacks ? destination(e, in_register) : source(e, in_register));
    const std::uint32_t whole = unpacks ? source(from, bytes) : destination(to, bytes);
    Draft& d = emit(unpacks ? run_unpack : run_pack);
    d.i.imm = part;
    d.i.count = static_cast<std::uint16_t>(parts.size());
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), refs.begin(), refs.end());
    if (unpacks) {
        d.i.src[0] = whole;
        d.roles = role_src0 | role_extras_def;
    } else {
        d.i.dst = whole;
        d.roles = role_dst | role_extras_use;
    }
    return ok_;
}

bool Translator::convert() {
    ConvertCode c;
    c.flush = has("ftz");
    c.saturate = has("sat");
    c.relu = has("relu");
    const Rounding r = take_rounding();
    c.to = take_type();
    c.from = take_type();
    if (!all_taken()) return false;
    const bool pair = c.to == Type::F16x2 || c.to == Type::BF16x2;
    if (!operand_count(pair ? 3 : 2)) return false;
    // Where a mode must be stated the parser's text has it; a missing one is no default of ours to choose.
    const auto floating = [](Type t) { return t == Type::F16 || t == Type::BF16 || t == Type::F32 || t == Type::F64; };
    if (floating(c.from) && !floating(c.to) && !pair && r < Rounding::Rni) return refuse("");
    if (c.flush && c.from != Type::F32 && c.to != Type::F32) return refuse(".ftz");
    if (c.relu && !pair && c.to != Type::F16 && c.to != Type::BF16) return refuse(".relu");
    unsigned from_bytes = 0, to_bytes = 0;
    const std::uint32_t a = wide_source(now_->operands[1], c.from, from_bytes);
    std::uint32_t b = 0;
    if (pair) {
        unsigned second = 0;
        b = wide_source(now_->operands[2], c.from, second);
        if (second != from_bytes) return wrong("operands of different sizes");
    }
    const std::uint32_t dst = wide_destination(now_->operands[0], c.to, to_bytes);
    c.from_register = static_cast<std::uint8_t>(from_bytes);
    c.to_register = static_cast<std::uint8_t>(to_bytes);
    Draft& d = emit(handlers().convert(c.to, c.from));
    d.i.dst = dst;
    d.i.src[0] = a;
    d.i.src[1] = b;
    std::memcpy(&d.i.imm, &c, sizeof c);
    d.i.mode = static_cast<std::uint16_t>(r);
    d.roles = static_cast<std::uint16_t>(role_dst | role_src0 | (pair ? role_src1 : 0));
    return ok_;
}

bool Translator::address_conversion() {
    if (now_->opcode == "isspacep") {
        Memory memory{};
        const bool constant = has("const");
        take_space(memory);
        if (constant || memory == Memory::Generic || !all_taken() || !operand_count(2)) return refuse("");
        const std::uint32_t a = source(now_->operands[1], 8), dst = predicate_destination(now_->operands[0]);
        Draft& d = emit(run_isspace);
        d.i.dst = dst;
        d.i.src[0] = a;
        d.i.memory = memory;
        d.roles = role_dst | role_src0;
        return ok_;
    }
    const bool to = has("to");
    Memory memory{};
    take_space(memory);
    const Type t = take_type();
    if (t != Type::U64 || !all_taken() || !operand_count(2)) return refuse("");
    std::uint64_t window = 0;
    if (memory == Memory::Shared) window = shared_window;
    if (memory == Memory::Local) window = local_window;
    if (memory == Memory::Param) window = param_window;
    const std::uint32_t a = source(now_->operands[1], 8), dst = destination(now_->operands[0], 8);
    const std::uint32_t offset = drafts_.constant(window, 8);
    Draft& d = emit(handlers().integer(window == 0 ? Op::Mov : to ? Op::Sub : Op::Add, Type::U64));
    d.i.dst = dst;
    d.i.src[0] = a;
    d.i.src[1] = offset;
    d.roles = role_dst | role_src0;
    return ok_;
}

}  // namespace hpe::soft::exec
