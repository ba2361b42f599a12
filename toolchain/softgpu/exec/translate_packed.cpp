// SPDX-License-Identifier: MIT
// Translation of operations on packed pairs that are done part by part: f32x2, u16x2 and s16x2 arithmetic, and
// comparisons of half precision pairs. Each part is the scalar instruction, so that it gives the same bits.
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {
namespace {

struct Pair {
    const char* name;
    Type part;
};
constexpr Pair pairs[] = {{"f32x2", Type::F32}, {"u16x2", Type::U16}, {"s16x2", Type::S16}};

bool is_half_pair(Type t) { return t == Type::F16x2 || t == Type::BF16x2; }

}  // namespace

bool Translator::is_packed() const {
    for (const auto& m : now_->modifiers)
        for (const Pair& p : pairs)
            if (m == p.name) return true;
    if (now_->opcode != "set" && now_->opcode != "setp") return false;
    return !now_->modifiers.empty() && is_half_pair(ptx::type_named(now_->modifiers.back()));
}

// The parts of an operand, each in a register of its own.
std::vector<std::uint32_t> Translator::unpacked(const Operand& o, unsigned bytes, unsigned part) {
    const std::uint32_t whole = source(o, bytes);
    std::vector<std::uint32_t> parts(bytes / part);
    for (auto& p : parts) p = drafts_.make_register(part);
    Draft& d = emit(run_unpack);
    d.i.guard = 0;
    d.i.imm = part;
    d.i.count = static_cast<std::uint16_t>(parts.size());
    d.i.src[0] = whole;
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), parts.begin(), parts.end());
    d.roles = role_src0 | role_extras_def;
    return parts;
}

void Translator::pack_into(const Operand& o, unsigned bytes, const std::vector<std::uint32_t>& parts) {
    const std::uint32_t dst = destination(o, bytes);
    Draft& d = emit(run_pack);
    d.i.imm = bytes / parts.size();
    d.i.count = static_cast<std::uint16_t>(parts.size());
    d.i.dst = dst;
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), parts.begin(), parts.end());
    d.roles = role_dst | role_extras_use;
}

bool Translator::packed(const std::string& op) {
    Type part = Type::None;
    for (const Pair& p : pairs)
        if (has(p.name)) part = p.part;
    if (part == Type::None) {
        const Type pair = ptx::type_named(now_->modifiers.back());
        taken_.back() = true;
        return packed_compare(op, pair == Type::F16x2 ? Type::F16 : Type::BF16);
    }
    const bool flush = has("ftz"), relu = has("relu");
    const Rounding r = take_rounding();
    if (!all_taken()) return false;
    Handler run_part = nullptr;
    std::uint16_t mode = 0;
    unsigned operands = 2;
    if (part == Type::F32) {
        const Op o = op == "add"   ? Op::Add
                     : op == "sub" ? Op::Sub
                     : op == "mul" ? Op::Mul
                     : op == "fma" ? Op::Fma
                                   : Op::None;
        if (o == Op::None || r > Rounding::Rp || relu) return refuse("");
        operands = o == Op::Fma ? 3 : 2;
        mode = floating_control(r, flush);
        run_part = handlers().floating(o, part, false, flush || r > Rounding::Rn);
    } else {
        const Op o = op == "add" ? Op::Add : op == "min" ? Op::Min : op == "max" ? Op::Max : Op::None;
        if (o == Op::None || flush || r != Rounding::None || (relu && (o == Op::Add || part != Type::S16)))
            return refuse("");
        run_part = handlers().integer(o, part);
    }
    if (!operand_count(operands + 1)) return false;
    const unsigned bytes = ptx::size_of(part);
    std::vector<std::vector<std::uint32_t>> in;
    for (unsigned n = 0; n < operands; n++) in.push_back(unpacked(now_->operands[n + 1], 2 * bytes, bytes));
    std::vector<std::uint32_t> out;
    for (unsigned k = 0; k < 2; k++) {
        out.push_back(drafts_.make_register(bytes));
        Draft& d = emit(run_part);
        d.i.guard = 0;
        d.i.dst = out.back();
        for (unsigned n = 0; n < operands; n++) d.i.src[n] = in[n][k];
        d.i.mode = mode;
        d.roles = static_cast<std::uint16_t>(role_dst | role_src0 | role_src1 | (operands == 3 ? role_src2 : 0));
        if (!relu) continue;
        const std::uint32_t raw = out.back(), zero = drafts_.constant(0, bytes);
        out.back() = drafts_.make_register(bytes);
        Draft& most = emit(handlers().integer(Op::Max, part));
        most.i.guard = 0;
        most.i.dst = out.back();
        most.i.src[0] = raw;
        most.i.src[1] = zero;
        most.roles = role_dst | role_src0 | role_src1;
    }
    pack_into(now_->operands[0], 2 * bytes, out);
    return ok_;
}

// setp gives the halves' answers to two predicates; set writes all ones, or the number one, into each half.
bool Translator::packed_compare(const std::string& op, Type part) {
    const bool is_set = op == "set";
    static const std::unordered_map<std::string, Compare> names = {
        {"eq", Compare::Eq},   {"ne", Compare::Ne},   {"lt", Compare::Lt},   {"le", Compare::Le},
        {"gt", Compare::Gt},   {"ge", Compare::Ge},   {"equ", Compare::Equ}, {"neu", Compare::Neu},
        {"ltu", Compare::Ltu}, {"leu", Compare::Leu}, {"gtu", Compare::Gtu}, {"geu", Compare::Geu},
        {"num", Compare::Num}, {"nan", Compare::Nan}};
    const auto comparison = names.find(now_->modifiers[0]);
    if (comparison == names.end()) return refuse("");
    taken_[0] = true;
    const Combine combine = has("and")   ? Combine::And
                            : has("or")  ? Combine::Or
                            : has("xor") ? Combine::Xor
                                         : Combine::None;
    const Type result = is_set ? take_type() : Type::None;
    const bool number = result == Type::F16x2 || result == Type::BF16x2;
    if (is_set && !number && result != Type::U32 && result != Type::S32) return refuse("");
    if (!all_taken() || !operand_count(combine == Combine::None ? 3 : 4)) return false;
    const Operand& to = now_->operands[0];
    if (!is_set && to.kind != Operand::Kind::Pair) return refuse("one predicate for two halves");
    const auto a = unpacked(now_->operands[1], 4, 2), b = unpacked(now_->operands[2], 4, 2);
    bool negated = false;
    const std::uint32_t p = combine == Combine::None ? 0 : predicate_source(now_->operands[3], negated);
    std::vector<std::uint32_t> out;
    std::uint32_t answers[2];
    for (unsigned k = 0; k < 2; k++) {
        answers[k] = drafts_.make_register(0);
        Draft& d = emit(handlers().setp(comparison->second, part));
        d.i.guard = 0;
        d.i.dst = answers[k];
        d.i.src[0] = a[k];
        d.i.src[1] = b[k];
        d.i.src[2] = p;
        d.i.count = 1;
        d.i.mode = static_cast<std::uint16_t>(combine);
        d.i.flags = negated ? flag_negated : 0;
        d.roles = static_cast<std::uint16_t>(role_dst | role_src0 | role_src1 | (p != 0 ? role_src2 : 0));
    }
    for (unsigned k = 0; k < 2; k++) {
        if (!is_set) {
            const std::uint32_t dst = predicate_destination(to.elements[k]);
            Draft& d = emit(predicate_handler(Op::Mov));
            d.i.dst = dst;
            d.i.src[0] = answers[k];
            d.roles = role_dst | role_src0;
            continue;
        }
        const std::uint32_t yes = drafts_.constant(!number ? 0xffff : part == Type::F16 ? 0x3c00 : 0x3f80, 2);
        const std::uint32_t no = drafts_.constant(0, 2);
        out.push_back(drafts_.make_register(2));
        Draft& d = emit(handlers().integer(Op::Selp, Type::B16));
        d.i.guard = 0;
        d.i.dst = out.back();
        d.i.src[0] = yes;
        d.i.src[1] = no;
        d.i.src[2] = answers[k];
        d.roles = role_dst | role_src0 | role_src1 | role_src2;
    }
    if (is_set) pack_into(to, 4, out);
    return ok_;
}

}  // namespace hpe::soft::exec
