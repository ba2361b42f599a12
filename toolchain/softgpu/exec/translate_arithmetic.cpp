// SPDX-License-Identifier: MIT
// Translation of integer and floating-point arithmetic, and the table of opcodes.
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {
namespace {

constexpr std::uint32_t control_default = 0x1f80;
constexpr std::uint32_t control_flush = 0x8040;  // results and operands

std::uint32_t control(Rounding r, bool flush) {
    std::uint32_t c = control_default | (flush ? control_flush : 0);
    if (r == Rounding::Rz) c |= 0x6000;
    if (r == Rounding::Rm) c |= 0x2000;
    if (r == Rounding::Rp) c |= 0x4000;
    return c;
}

bool is_signed(Type t) { return t == Type::S8 || t == Type::S16 || t == Type::S32 || t == Type::S64; }
bool is_floating(Type t) { return t >= Type::F16 && t <= Type::F64; }
bool is_half(Type t) { return t == Type::F16 || t == Type::F16x2 || t == Type::BF16 || t == Type::BF16x2; }
Type doubled(Type t) {
    switch (t) {
        case Type::U16: return Type::U32;
        case Type::S16: return Type::S32;
        case Type::U32: return Type::U64;
        case Type::S32: return Type::S64;
        default: return Type::None;
    }
}

}  // namespace

std::uint16_t floating_control(Rounding rounding, bool flush) {
    return static_cast<std::uint16_t>(control(rounding, flush));
}

bool Translator::dispatch() {
    const std::string& op = now_->opcode;
    if (is_packed()) return packed(op);
    using Method = bool (Translator::*)(const std::string&);
    static const std::unordered_map<std::string, Method> by_name = {
        {"popc", &Translator::bit_instruction},
        {"clz", &Translator::bit_instruction},
        {"bfind", &Translator::bit_instruction},
        {"brev", &Translator::bit_instruction},
        {"bfe", &Translator::bit_instruction},
        {"bfi", &Translator::bit_instruction},
        {"bmsk", &Translator::bit_instruction},
        {"prmt", &Translator::bit_instruction},
        {"shf", &Translator::bit_instruction},
        {"lop3", &Translator::bit_instruction},
        {"dp4a", &Translator::bit_instruction},
        {"dp2a", &Translator::bit_instruction},
        {"addc", &Translator::carry_instruction},
        {"subc", &Translator::carry_instruction},
        {"madc", &Translator::carry_instruction},
        {"and", &Translator::logic},
        {"or", &Translator::logic},
        {"xor", &Translator::logic},
        {"not", &Translator::logic},
        {"cnot", &Translator::logic},
        {"shl", &Translator::logic},
        {"shr", &Translator::logic},
        {"setp", &Translator::compare},
        {"set", &Translator::compare},
        {"selp", &Translator::select},
        {"slct", &Translator::select},
        {"shfl", &Translator::collective},
        {"vote", &Translator::collective},
        {"match", &Translator::collective},
        {"redux", &Translator::collective},
        {"activemask", &Translator::collective},
        {"elect", &Translator::collective},
        {"fns", &Translator::find_nth_set},
        {"alloca", &Translator::stack},
        {"stacksave", &Translator::stack},
        {"stackrestore", &Translator::stack},
    };
    if (const auto at = by_name.find(op); at != by_name.end()) return (this->*at->second)(op);
    if (op == "ld" || op == "ldu") return load();
    if (op == "st") return store();
    if (op == "atom") return atomic(true);
    if (op == "red") return atomic(false);
    if (op == "cp") return copy_async();
    if (op == "mbarrier") return mbarrier();
    if (op == "tex") return texture();
    if (op == "mov") return move();
    if (op == "cvt") return convert();
    if (op == "cvta" || op == "isspacep") return address_conversion();
    if (op == "bra") return branch();
    if (op == "brx") return branch_table();
    if (op == "call") return call();
    // Without a debugger a breakpoint is a trap.
    if (op == "ret" || op == "exit" || op == "trap" || op == "brkpt") {
        has("uni");
        if (!all_taken()) return false;
        emit(op == "ret" ? run_return : op == "exit" ? run_exit : run_trap).ends = true;
        drafts_.leader();
        return ok_;
    }
    if (op == "bar" || op == "barrier") return barrier();
    if (op == "membar" || op == "fence" || op == "prefetch" || op == "prefetchu" || op == "nanosleep" ||
        op == "pmevent" || op == "discard" || op == "applypriority" || op == "griddepcontrol")
        return fence_or_hint(op);
    static const std::unordered_map<std::string, int> arithmetic = {
        {"add", 0},   {"sub", 0}, {"mul", 0}, {"mad", 0}, {"mul24", 0}, {"mad24", 0}, {"sad", 0},      {"div", 0},
        {"rem", 0},   {"abs", 0}, {"neg", 0}, {"min", 0}, {"max", 0},   {"fma", 0},   {"rcp", 0},      {"sqrt", 0},
        {"rsqrt", 0}, {"sin", 0}, {"cos", 0}, {"lg2", 0}, {"ex2", 0},   {"tanh", 0},  {"copysign", 0}, {"testp", 0},
    };
    if (!arithmetic.contains(op)) return refuse("the instruction " + op);
    if (has("cc")) {
        taken_.assign(now_->modifiers.size(), false);
        return carry_instruction(op);
    }
    Type type = Type::None;
    for (const auto& m : now_->modifiers)
        if (const Type t = ptx::type_named(m); t != Type::None) type = t;
    return is_floating(type) ? floating_arithmetic(op, type) : integer_arithmetic(op);
}

bool Translator::integer_arithmetic(const std::string& op) {
    const bool wide = has("wide"), high = has("hi"), low = has("lo"), saturate = has("sat");
    const Type t = take_type();
    const auto& h = handlers();
    if (t == Type::None || ptx::size_of(t) < 2 || t == Type::B128) return refuse("");
    if (saturate && !((op == "add" || op == "sub") && t == Type::S32)) return refuse(".sat");
    const auto one = [&](Op o) { return simple(h.integer(o, t), t, {t}); };
    const auto two = [&](Op o) { return simple(h.integer(o, t), t, {t, t}); };
    const auto three = [&](Op o) { return simple(h.integer(o, t), t, {t, t, t}); };
    if (op == "add") return two(saturate ? Op::AddSat : Op::Add);
    if (op == "sub") return two(saturate ? Op::SubSat : Op::Sub);
    if (op == "mul" && wide) return simple(h.integer(Op::MulWide, t), doubled(t), {t, t});
    if (op == "mul") return high || low ? two(high ? Op::MulHi : Op::MulLo) : refuse("");
    if (op == "mad" && wide) return simple(h.integer(Op::MadWide, t), doubled(t), {t, t, doubled(t)});
    if (op == "mad") return high || low ? three(high ? Op::MadHi : Op::MadLo) : refuse("");
    if (op == "mul24") return high || low ? two(high ? Op::Mul24Hi : Op::Mul24Lo) : refuse("");
    if (op == "mad24") return high || low ? three(high ? Op::Mad24Hi : Op::Mad24Lo) : refuse("");
    if (op == "sad") return three(Op::Sad);
    if (op == "div") return two(Op::Div);
    if (op == "rem") return two(Op::Rem);
    if (op == "abs" && is_signed(t)) return one(Op::Abs);
    if (op == "neg" && is_signed(t)) return one(Op::Neg);
    if (op == "min") return two(Op::Min);
    if (op == "max") return two(Op::Max);
    return refuse("");
}

bool Translator::bit_instruction(const std::string& op) {
    const auto& h = handlers();
    if (op == "shf") {
        const bool left = has("l"), wrap = has("wrap");
        if ((!left && !has("r")) || (!wrap && !has("clamp"))) return refuse("");
        take_type();
        const Op o = left ? (wrap ? Op::ShfLeftWrap : Op::ShfLeft) : (wrap ? Op::ShfRightWrap : Op::ShfRight);
        return simple(h.integer(o, Type::U32), Type::B32, {Type::B32, Type::B32, Type::U32});
    }
    if (op == "lop3") {
        if (take_type() != Type::B32 || now_->operands.size() != 5 || now_->operands[4].kind != Operand::Kind::Integer)
            return refuse("");
        if (!all_taken()) return false;
        std::uint32_t refs[3];
        for (unsigned n = 0; n < 3; n++) refs[n] = source(now_->operands[n + 1], 4);
        const std::uint32_t dst = destination(now_->operands[0], 4);
        Draft& d = emit(h.integer(Op::Lop3, Type::U32));
        d.i.dst = dst;
        for (unsigned n = 0; n < 3; n++) d.i.src[n] = refs[n];
        d.i.imm = static_cast<std::uint64_t>(now_->operands[4].value) & 255;
        d.roles = role_dst | role_src0 | role_src1 | role_src2;
        return ok_;
    }
    if (op == "prmt") {
        Op o = Op::Prmt;
        static constexpr std::pair<const char*, Op> modes[] = {{"f4e", Op::PrmtF4e}, {"b4e", Op::PrmtB4e},
                                                               {"rc8", Op::PrmtRc8}, {"ecl", Op::PrmtEcl},
                                                               {"ecr", Op::PrmtEcr}, {"rc16", Op::PrmtRc16}};
        for (const auto& [name, mode] : modes)
            if (has(name)) o = mode;
        if (take_type() != Type::B32) return refuse("");
        return simple(h.integer(o, Type::U32), Type::B32, {Type::B32, Type::B32, Type::B32});
    }
    if (op == "dp4a" || op == "dp2a") {
        const bool high = has("hi");
        has("lo");
        const Type a = take_type(), b = take_type();
        if (a == Type::None || b == Type::None) return refuse("");
        const bool s = is_signed(a), t = is_signed(b);
        const Op four = s ? (t ? Op::Dp4aSS : Op::Dp4aSU) : (t ? Op::Dp4aUS : Op::Dp4aUU);
        const Op two = s ? (t ? Op::Dp2aSS : Op::Dp2aSU) : (t ? Op::Dp2aUS : Op::Dp2aUU);
        return simple(h.integer(op == "dp4a" ? four : two, Type::U32), Type::B32, {Type::B32, Type::B32, Type::B32},
                      high ? 1 : 0);
    }
    if (op == "bmsk") {
        const bool wrap = has("wrap");
        if (!wrap && !has("clamp")) return refuse("");
        take_type();
        return simple(h.integer(wrap ? Op::BmskWrap : Op::Bmsk, Type::U32), Type::B32, {Type::U32, Type::U32});
    }
    const bool shift = has("shiftamt");
    const Type t = take_type();
    if (ptx::size_of(t) != 4 && ptx::size_of(t) != 8) return refuse("");
    if (op == "popc") return simple(h.integer(Op::Popc, t), Type::U32, {t});
    if (op == "clz") return simple(h.integer(Op::Clz, t), Type::U32, {t});
    if (op == "brev") return simple(h.integer(Op::Brev, t), t, {t});
    if (op == "bfind") return simple(h.integer(shift ? Op::BfindShift : Op::Bfind, t), Type::U32, {t});
    if (op == "bfe") return simple(h.integer(Op::Bfe, t), t, {t, Type::U32, Type::U32});
    if (op == "bfi") return simple(h.integer(Op::Bfi, t), t, {t, t, Type::U32, Type::U32});
    return refuse("");
}

bool Translator::carry_instruction(const std::string& op) {
    const bool out = has("cc"), high = has("hi");
    const bool low = has("lo");
    const Type t = take_type();
    Op o = Op::None;
    if (op == "add") o = Op::AddCc;
    if (op == "addc") o = out ? Op::AddcCc : Op::Addc;
    if (op == "sub") o = Op::SubCc;
    if (op == "subc") o = out ? Op::SubcCc : Op::Subc;
    if (op == "mad" && (high || low)) o = high ? Op::MadHiCc : Op::MadLoCc;
    if (op == "madc" && high) o = out ? Op::MadcHiCc : Op::MadcHi;
    if (op == "madc" && low) o = out ? Op::MadcLoCc : Op::MadcLo;
    if (ptx::size_of(t) != 4 && ptx::size_of(t) != 8) return refuse("");
    // The flag lies at the start of the frame, which is where src[3] points when it is left alone.
    if (op == "mad" || op == "madc") return simple(handlers().integer(o, t), t, {t, t, t});
    return simple(handlers().integer(o, t), t, {t, t});
}

bool Translator::logic(const std::string& op) {
    const Type t = take_type();
    if (t == Type::Pred) {
        if (!all_taken()) return false;
        const Op o = op == "and"   ? Op::And
                     : op == "or"  ? Op::Or
                     : op == "xor" ? Op::Xor
                     : op == "not" ? Op::Not
                                   : Op::None;
        if (!operand_count(o == Op::Not ? 2 : 3)) return false;
        bool first_negated = false, second_negated = false;
        const std::uint32_t a = predicate_source(now_->operands[1], first_negated);
        const std::uint32_t b = o == Op::Not ? 0 : predicate_source(now_->operands[2], second_negated);
        if (second_negated) return refuse("a negated second predicate");
        const std::uint32_t dst = predicate_destination(now_->operands[0]);
        Draft& d = emit(predicate_handler(o));
        d.i.dst = dst;
        d.i.src[0] = a;
        d.i.src[1] = b;
        d.i.flags = first_negated ? flag_negated : 0;
        d.roles = role_dst | role_src0 | (o == Op::Not ? 0 : role_src1);
        return ok_;
    }
    if (ptx::size_of(t) < 2) return refuse("");
    const auto& h = handlers();
    if (op == "and") return simple(h.integer(Op::And, t), t, {t, t});
    if (op == "or") return simple(h.integer(Op::Or, t), t, {t, t});
    if (op == "xor") return simple(h.integer(Op::Xor, t), t, {t, t});
    if (op == "not") return simple(h.integer(Op::Not, t), t, {t});
    if (op == "cnot") return simple(h.integer(Op::Cnot, t), t, {t});
    return simple(h.integer(op == "shl" ? Op::Shl : Op::Shr, t), t, {t, Type::U32});
}

bool Translator::floating_arithmetic(const std::string& op, Type type) {
    const bool flush = has("ftz"), saturate = has("sat"), approximate = has("approx"), full = has("full");
    const bool relu = has("relu"), nan = has("NaN");
    const Rounding r = take_rounding();
    take_type();
    if (r > Rounding::Rp) return refuse("");
    static const std::unordered_map<std::string, Op> ops = {
        {"add", Op::Add}, {"sub", Op::Sub}, {"mul", Op::Mul},   {"fma", Op::Fma},           {"mad", Op::Fma},
        {"div", Op::Div}, {"rcp", Op::Rcp}, {"sqrt", Op::Sqrt}, {"rsqrt", Op::Rsqrt},       {"sin", Op::Sin},
        {"cos", Op::Cos}, {"lg2", Op::Lg2}, {"ex2", Op::Ex2},   {"tanh", Op::Tanh},         {"neg", Op::Neg},
        {"abs", Op::Abs}, {"min", Op::Min}, {"max", Op::Max},   {"copysign", Op::Copysign},
    };
    if (op == "testp") {
        static constexpr std::pair<const char*, Op> tests[] = {
            {"finite", Op::TestFinite},        {"infinite", Op::TestInfinite}, {"number", Op::TestNumber},
            {"notanumber", Op::TestNotNumber}, {"normal", Op::TestNormal},     {"subnormal", Op::TestSubnormal}};
        Op test = Op::None;
        for (const auto& [name, o] : tests)
            if (has(name)) test = o;
        if (test == Op::None || !all_taken() || !operand_count(2)) return refuse("");
        const std::uint32_t a = source(now_->operands[1], type), dst = predicate_destination(now_->operands[0]);
        Draft& d = emit(handlers().floating(test, type, false, false));
        d.i.dst = dst;
        d.i.src[0] = a;
        d.roles = role_dst | role_src0;
        return ok_;
    }
    const auto found = ops.find(op);
    if (found == ops.end()) return refuse("");
    Op o = found->second;
    if (o == Op::Div && approximate) o = Op::DivApprox;
    if (o == Op::Div && full) o = Op::DivFull;
    // Three operands: two instructions, for NaN and zeros do not mind the order.
    if ((o == Op::Min || o == Op::Max) && type == Type::F32 && now_->operands.size() == 4) {
        if (saturate || approximate || full || relu || r != Rounding::None || !all_taken()) return refuse("");
        const Op each = nan ? (o == Op::Min ? Op::MinNan : Op::MaxNan) : o;
        const Handler run_each = handlers().floating(each, type, false, flush);
        std::uint32_t refs[3];
        for (unsigned n = 0; n < 3; n++) refs[n] = source(now_->operands[n + 1], type);
        const std::uint32_t dst = destination(now_->operands[0], 4), between = drafts_.make_register(4);
        for (unsigned n = 0; n < 2; n++) {
            Draft& d = emit(run_each);
            d.i.dst = n == 0 ? between : dst;
            d.i.src[0] = n == 0 ? refs[0] : between;
            d.i.src[1] = refs[n + 1];
            d.i.mode = static_cast<std::uint16_t>(control(Rounding::None, flush));
            d.roles = role_dst | role_src0 | role_src1;
        }
        return ok_;
    }
    if (nan) o = o == Op::Min ? Op::MinNan : o == Op::Max ? Op::MaxNan : Op::None;
    if (relu) o = o == Op::Fma ? Op::FmaRelu : Op::None;
    const unsigned operands = o == Op::Fma || o == Op::FmaRelu ? 3
                              : o == Op::Add || o == Op::Sub || o == Op::Mul || o == Op::Div || o == Op::DivApprox ||
                                      o == Op::DivFull || o == Op::Min || o == Op::Max || o == Op::MinNan ||
                                      o == Op::MaxNan || o == Op::Copysign
                                  ? 2
                                  : 1;
    Handler run_it = nullptr;
    std::uint16_t mode = 0;
    if (is_half(type)) {
        if (r > Rounding::Rn) return refuse("a rounding mode of half precision");
        run_it = handlers().half(o, type, saturate, flush);
    } else {
        // f64 has no .ftz but for the two approximations, which flush by definition.
        const bool environment = flush || r > Rounding::Rn;
        if (type == Type::F64 && approximate && o != Op::Rcp && o != Op::Rsqrt) return refuse("");
        if (environment && (o == Op::Copysign)) return refuse("");
        mode = static_cast<std::uint16_t>(control(r, flush));
        run_it = handlers().floating(o, type, saturate, environment);
    }

    bool fine = false;
    if (operands == 1) fine = simple(run_it, type, {type});
    if (operands == 2) fine = simple(run_it, type, {type, type});
    if (operands == 3) fine = simple(run_it, type, {type, type, type});
    if (fine) drafts_.last().i.mode = mode;
    return fine;
}

bool Translator::compare(const std::string& op) {
    static const std::unordered_map<std::string, Compare> names = {
        {"eq", Compare::Eq},   {"ne", Compare::Ne},   {"lt", Compare::Lt},   {"le", Compare::Le},
        {"gt", Compare::Gt},   {"ge", Compare::Ge},   {"lo", Compare::Lt},   {"ls", Compare::Le},
        {"hi", Compare::Gt},   {"hs", Compare::Ge},   {"equ", Compare::Equ}, {"neu", Compare::Neu},
        {"ltu", Compare::Ltu}, {"leu", Compare::Leu}, {"gtu", Compare::Gtu}, {"geu", Compare::Geu},
        {"num", Compare::Num}, {"nan", Compare::Nan}};
    if (now_->modifiers.empty()) return refuse("");
    const auto at = names.find(now_->modifiers[0]);
    if (at == names.end()) return refuse("");
    taken_[0] = true;
    const Combine c = has("and") ? Combine::And : has("or") ? Combine::Or : has("xor") ? Combine::Xor : Combine::None;
    const bool flush = has("ftz");
    const bool is_set = op == "set";
    const Type result = is_set ? take_type() : Type::Pred;
    const Type t = take_type();
    if (!all_taken() || !operand_count(c == Combine::None ? 3 : 4)) return false;
    const std::uint32_t a = source(now_->operands[1], t), b = source(now_->operands[2], t);
    bool negated = false;
    const std::uint32_t p = c == Combine::None ? 0 : predicate_source(now_->operands[3], negated);
    const Operand& to = now_->operands[0];
    std::uint32_t first = 0, second = 0;
    unsigned count = 1;
    if (is_set) {
        first = destination(to, ptx::size_of(result));
    } else if (to.kind == Operand::Kind::Pair) {
        first = predicate_destination(to.elements[0]);
        second = predicate_destination(to.elements[1]);
        count = 2;
    } else {
        first = predicate_destination(to);
    }
    Draft& d = emit(is_set ? handlers().set(at->second, t, result) : handlers().setp(at->second, t));
    d.i.dst = first;
    d.i.src[0] = a;
    d.i.src[1] = b;
    d.i.src[2] = p;
    d.i.src[3] = second;
    d.i.count = static_cast<std::uint16_t>(count);
    d.i.mode = static_cast<std::uint16_t>(c);
    d.i.imm = flush && t == Type::F32 ? control(Rounding::Rn, true) : 0;
    d.i.flags = negated ? flag_negated : 0;
    d.roles = static_cast<std::uint16_t>(role_dst | role_src0 | role_src1 | (p != 0 ? role_src2 : 0) |
                                         (count == 2 ? role_src3_def : 0));
    if (flush && t != Type::F32) return refuse(".ftz");
    return ok_;
}

bool Translator::select(const std::string& op) {
    const bool flush = has("ftz");
    const Type t = take_type();
    if (op == "slct") {
        const Type c = take_type();
        if (flush || (c != Type::S32 && c != Type::F32)) return refuse("");
        return simple(handlers().integer(c == Type::F32 ? Op::SlctFloat : Op::Slct, t), t, {t, t, c});
    }
    if (!all_taken() || !operand_count(4)) return false;
    const std::uint32_t a = source(now_->operands[1], t), b = source(now_->operands[2], t);
    bool negated = false;
    const std::uint32_t p = predicate_source(now_->operands[3], negated);
    const std::uint32_t dst = destination(now_->operands[0], ptx::size_of(t));
    Draft& d = emit(handlers().integer(Op::Selp, t));
    d.i.dst = dst;
    d.i.src[0] = a;
    d.i.src[1] = b;
    d.i.src[2] = p;
    d.i.flags = negated ? flag_negated : 0;
    d.roles = role_dst | role_src0 | role_src1 | role_src2;
    return ok_;
}

}  // namespace hpe::soft::exec
