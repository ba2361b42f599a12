// SPDX-License-Identifier: MIT
// f16, bf16 and their packed pairs over 32 lanes. Each operation is exact and rounded once.
#include <cmath>

#include "toolchain/softgpu/exec/half.h"
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/lanes.h"

namespace hpe::soft::exec {
namespace {

template <class H, bool Saturate, bool Flush>
std::uint16_t finish(double v) {
    if (Saturate) v = v > 0 ? (v < 1 ? v : 1) : 0;
    const std::uint16_t r = H::store(v);
    // What counts is the size that the result would have with any exponent: just below the smallest normal number it
    // is flushed, although as a subnormal it would round up to that.
    if (Flush && __builtin_fabs(v) < H::tiny) return r & 0x8000;
    return r;
}
template <class H, bool Flush>
float operand(std::uint16_t v) {
    if (Flush && (v & 0x7fff) < H::smallest) v &= 0x8000;
    return H::load(v);
}
inline bool is_nan(float v) { return v != v; }

// Two roundings, first to double and then to half, equal one for these operations (53 >= 2 * 11 + 2).
template <Op O, class H, bool S, bool F>
std::uint16_t compute(std::uint16_t x, std::uint16_t y, std::uint16_t z) {
    const float a = operand<H, F>(x), b = operand<H, F>(y);
    switch (O) {
        case Op::Add: return finish<H, S, F>(static_cast<double>(a) + b);
        case Op::Sub: return finish<H, S, F>(static_cast<double>(a) - b);
        case Op::Mul: return finish<H, S, F>(static_cast<double>(a) * b);
        case Op::Fma: return finish<H, S, F>(fma_to_odd(a, b, operand<H, F>(z)));
        case Op::FmaRelu: {
            const double r = fma_to_odd(a, b, operand<H, F>(z));
            return finish<H, S, F>(r <= 0 ? 0 : r);
        }
        case Op::Neg:
            return is_nan(a) ? std::uint16_t{0x7fff}
                             : static_cast<std::uint16_t>(F && a == 0 ? (x & 0x8000) ^ 0x8000 : x ^ 0x8000);
        case Op::Abs:
            return is_nan(a) ? std::uint16_t{0x7fff} : static_cast<std::uint16_t>(F && a == 0 ? 0 : x & 0x7fff);
        case Op::Ex2: return finish<H, S, F>(std::exp2(static_cast<double>(a)));
        case Op::Tanh: return finish<H, S, F>(std::tanh(static_cast<double>(a)));
        case Op::Min:
        case Op::Max:
        case Op::MinNan:
        case Op::MaxNan: {
            const bool less = O == Op::Min || O == Op::MinNan, nan = O == Op::MinNan || O == Op::MaxNan;
            if (F) {
                if (a == 0) x &= 0x8000;
                if (b == 0) y &= 0x8000;
            }
            if (is_nan(a) || is_nan(b)) return nan || (is_nan(a) && is_nan(b)) ? 0x7fff : is_nan(a) ? y : x;
            if (a == b) return less ? x | y : x & y;  // -0 is less than +0
            return (a < b) == less ? x : y;
        }
        default: return 0;
    }
}

template <Op O, class H, bool S, bool F>
struct One {
    explicit One(const Instr&) {}
    std::uint16_t operator()(std::uint16_t a) const { return compute<O, H, S, F>(a, 0, 0); }
    std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const { return compute<O, H, S, F>(a, b, 0); }
    std::uint16_t operator()(std::uint16_t a, std::uint16_t b, std::uint16_t c) const {
        return compute<O, H, S, F>(a, b, c);
    }
};
template <Op O, class H, bool S, bool F>
struct Two {
    explicit Two(const Instr&) {}
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0) const {
        const auto low = compute<O, H, S, F>(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b),
                                             static_cast<std::uint16_t>(c));
        const auto high = compute<O, H, S, F>(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16),
                                              static_cast<std::uint16_t>(c >> 16));
        return std::uint32_t{high} << 16 | low;
    }
};

template <template <Op, class, bool, bool> class Form, class T, class H, bool S, bool F>
Handler arithmetic(Op op) {
    switch (op) {
        case Op::Add: return map<Form<Op::Add, H, S, F>, T, T, T>;
        case Op::Sub: return map<Form<Op::Sub, H, S, F>, T, T, T>;
        case Op::Mul: return map<Form<Op::Mul, H, S, F>, T, T, T>;
        case Op::Fma: return map<Form<Op::Fma, H, S, F>, T, T, T, T>;
        default: break;
    }
    if constexpr (!S) {
        switch (op) {
            case Op::FmaRelu: return map<Form<Op::FmaRelu, H, S, F>, T, T, T, T>;
            case Op::Neg: return map<Form<Op::Neg, H, S, F>, T, T>;
            case Op::Abs: return map<Form<Op::Abs, H, S, F>, T, T>;
            case Op::Ex2: return map<Form<Op::Ex2, H, S, F>, T, T>;
            case Op::Tanh: return map<Form<Op::Tanh, H, S, F>, T, T>;
            case Op::Min: return map<Form<Op::Min, H, S, F>, T, T, T>;
            case Op::Max: return map<Form<Op::Max, H, S, F>, T, T, T>;
            case Op::MinNan: return map<Form<Op::MinNan, H, S, F>, T, T, T>;
            case Op::MaxNan: return map<Form<Op::MaxNan, H, S, F>, T, T, T>;
            default: break;
        }
    }
    return nullptr;
}

template <template <Op, class, bool, bool> class Form, class T, class H>
Handler variant(Op op, bool saturate, bool flush) {
    if (saturate) return flush ? arithmetic<Form, T, H, true, true>(op) : arithmetic<Form, T, H, true, false>(op);
    return flush ? arithmetic<Form, T, H, false, true>(op) : arithmetic<Form, T, H, false, false>(op);
}

}  // namespace

namespace HPE_ISA {

Handler half_handler(Op op, Type type, bool saturate, bool flush) {
    switch (type) {
        case Type::F16: return variant<One, std::uint16_t, F16>(op, saturate, flush);
        case Type::F16x2: return variant<Two, std::uint32_t, F16>(op, saturate, flush);
        case Type::BF16: return variant<One, std::uint16_t, Bf16>(op, saturate, flush);
        case Type::BF16x2: return variant<Two, std::uint32_t, Bf16>(op, saturate, flush);
        default: return nullptr;
    }
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
