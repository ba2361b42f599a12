// SPDX-License-Identifier: MIT
// setp and set over 32 lanes (PTX ISA, "Comparison and Selection Instructions"). Compiled once per instruction set.
#include <type_traits>

#include "toolchain/softgpu/exec/half.h"
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/lanes.h"

namespace hpe::soft::exec {
namespace {

template <class T>
struct Value {
    using Lane = T;
    static T load(T v) { return v; }
};
struct ValueF16 {
    using Lane = std::uint16_t;
    static float load(std::uint16_t v) { return F16::load(v); }
};
struct ValueBf16 {
    using Lane = std::uint16_t;
    static float load(std::uint16_t v) { return Bf16::load(v); }
};

template <Compare C, class V>
bool holds(V a, V b) {
    switch (C) {
        case Compare::Eq: return a == b;
        case Compare::Ne: return a < b || a > b;  // false with a NaN
        case Compare::Lt: return a < b;
        case Compare::Le: return a <= b;
        case Compare::Gt: return a > b;
        case Compare::Ge: return a >= b;
        case Compare::Equ: return !(a < b || a > b);
        case Compare::Neu: return a != b;
        case Compare::Ltu: return !(a >= b);
        case Compare::Leu: return !(a > b);
        case Compare::Gtu: return !(a <= b);
        case Compare::Geu: return !(a < b);
        case Compare::Num: return a == a && b == b;
        case Compare::Nan: return a != a || b != b;
    }
    return false;
}

// In the floating-point environment of the instruction, if it has one. Not inlined: setp and all forms of set share it.
template <Compare C, class V>
[[gnu::noinline]] std::uint32_t compare(const Warp& w, const Instr* i) {
    using T = typename V::Lane;
    const T* a = w.at<const T>(i->src[0]);
    const T* b = w.at<const T>(i->src[1]);
    alignas(64) std::uint32_t hit[lanes];
    const unsigned before = i->imm != 0 ? _mm_getcsr() : 0;
    if (i->imm != 0) _mm_setcsr(static_cast<std::uint32_t>(i->imm));
    asm volatile("" ::: "memory");
    HPE_LANES_APART
    for (unsigned l = 0; l < lanes; l++) hit[l] = holds<C>(V::load(a[l]), V::load(b[l])) ? ~0u : 0;
    asm volatile("" ::: "memory");
    if (i->imm != 0) _mm_setcsr(before);
    return pack(hit);
}

inline std::uint32_t combine(const Warp& w, const Instr* i, std::uint32_t result) {
    if (i->mode == 0) return result;
    const std::uint32_t c = w.predicate(i->src[2]) ^ ((i->flags & flag_negated) != 0 ? all_lanes : 0);
    switch (static_cast<Combine>(i->mode)) {
        case Combine::And: return result & c;
        case Combine::Or: return result | c;
        case Combine::Xor: return result ^ c;
        case Combine::None: break;
    }
    return result;
}

// The second predicate of p|q, where there is one, is in src[3].
template <Compare C, class V>
const Instr* setp(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto put = [&](std::uint32_t ref, std::uint32_t value) {
        auto& d = *w.at<std::uint32_t>(ref);
        d = (d & ~mask) | (value & mask);
    };
    const std::uint32_t compared = compare<C, V>(w, i);
    const std::uint32_t first = combine(w, i, compared), second = combine(w, i, ~compared);
    if (i->count > 0) put(i->dst, first);
    if (i->count > 1) put(i->src[3], second);
    return i + 1;
}

// What is written for true: all ones, or one. Half precision is kept as bits.
template <class D, std::uint16_t Half>
constexpr D true_value() {
    if (Half != 0) return static_cast<D>(Half);
    return std::is_floating_point_v<D> ? D{1} : static_cast<D>(~0u);
}

template <Compare C, class V, class D, std::uint16_t Half = 0>
const Instr* set(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t hit = combine(w, i, compare<C, V>(w, i));
    D* d = w.at<D>(i->dst);
    constexpr D yes = true_value<D, Half>();
    for (unsigned l = 0; l < lanes; l++)
        if (((mask >> l) & 1) != 0) d[l] = ((hit >> l) & 1) != 0 ? yes : D{0};
    return i + 1;
}

template <class V, template <Compare, class> class Form>
Handler by_compare(Compare c) {
    switch (c) {
        case Compare::Eq: return Form<Compare::Eq, V>::handler;
        case Compare::Ne: return Form<Compare::Ne, V>::handler;
        case Compare::Lt: return Form<Compare::Lt, V>::handler;
        case Compare::Le: return Form<Compare::Le, V>::handler;
        case Compare::Gt: return Form<Compare::Gt, V>::handler;
        case Compare::Ge: return Form<Compare::Ge, V>::handler;
        default: break;
    }
    if constexpr (std::is_floating_point_v<decltype(V::load({}))>) {
        switch (c) {
            case Compare::Equ: return Form<Compare::Equ, V>::handler;
            case Compare::Neu: return Form<Compare::Neu, V>::handler;
            case Compare::Ltu: return Form<Compare::Ltu, V>::handler;
            case Compare::Leu: return Form<Compare::Leu, V>::handler;
            case Compare::Gtu: return Form<Compare::Gtu, V>::handler;
            case Compare::Geu: return Form<Compare::Geu, V>::handler;
            case Compare::Num: return Form<Compare::Num, V>::handler;
            case Compare::Nan: return Form<Compare::Nan, V>::handler;
            default: break;
        }
    }
    return nullptr;
}

template <template <Compare, class> class Form>
Handler by_type(Compare c, Type type) {
    switch (type) {
        case Type::U16:
        case Type::B16: return by_compare<Value<std::uint16_t>, Form>(c);
        case Type::S16: return by_compare<Value<std::int16_t>, Form>(c);
        case Type::U32:
        case Type::B32: return by_compare<Value<std::uint32_t>, Form>(c);
        case Type::S32: return by_compare<Value<std::int32_t>, Form>(c);
        case Type::U64:
        case Type::B64: return by_compare<Value<std::uint64_t>, Form>(c);
        case Type::S64: return by_compare<Value<std::int64_t>, Form>(c);
        case Type::F32: return by_compare<Value<float>, Form>(c);
        case Type::F64: return by_compare<Value<double>, Form>(c);
        case Type::F16: return by_compare<ValueF16, Form>(c);
        case Type::BF16: return by_compare<ValueBf16, Form>(c);
        default: return nullptr;
    }
}

template <Compare C, class V>
struct SetpForm {
    static constexpr Handler handler = setp<C, V>;
};
template <Compare C, class V>
struct SetForm {
    static constexpr Handler handler = set<C, V, std::uint32_t>;
};
template <Compare C, class V>
struct SetFloatForm {
    static constexpr Handler handler = set<C, V, float>;
};

template <Compare C, class V>
struct SetF16Form {
    static constexpr Handler handler = set<C, V, std::uint16_t, 0x3c00>;
};
template <Compare C, class V>
struct SetBf16Form {
    static constexpr Handler handler = set<C, V, std::uint16_t, 0x3f80>;
};

}  // namespace

namespace HPE_ISA {

Handler setp_handler(Compare c, Type type) { return by_type<SetpForm>(c, type); }
Handler set_handler(Compare c, Type operand, Type result) {
    if (result == Type::F32) return by_type<SetFloatForm>(c, operand);
    if (result == Type::F16 && operand == Type::F16) return by_compare<ValueF16, SetF16Form>(c);
    if (result == Type::BF16 && operand == Type::BF16) return by_compare<ValueBf16, SetBf16Form>(c);
    if (result == Type::U32 || result == Type::S32) return by_type<SetForm>(c, operand);
    return nullptr;
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
