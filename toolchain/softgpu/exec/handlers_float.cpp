// SPDX-License-Identifier: MIT
// Single and double precision arithmetic over 32 lanes (PTX ISA, "Floating-Point Instructions"). Compiled once per
// instruction set, never with contraction. A NaN result of single precision is the canonical 0x7fffffff, as on the
// hardware.
#include <cmath>
#include <limits>

#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/lanes.h"

namespace hpe::soft::exec {
namespace {

inline float canonical(float v) { return v != v ? __builtin_bit_cast(float, 0x7fffffffu) : v; }
inline double canonical(double v) { return v; }
template <bool Saturate, class T>
inline T finish(T v) {
    if (Saturate) return v > T{0} ? (v < T{1} ? v : T{1}) : T{0};  // NaN and -0 become +0
    return canonical(v);
}
inline std::uint32_t raw(float v) { return __builtin_bit_cast(std::uint32_t, v); }
inline std::uint64_t raw(double v) { return __builtin_bit_cast(std::uint64_t, v); }
inline float cooked(std::uint32_t v) { return __builtin_bit_cast(float, v); }
inline double cooked(std::uint64_t v) { return __builtin_bit_cast(double, v); }
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root(float a) { return __builtin_sqrtf(a); }
inline double root(double a) { return __builtin_sqrt(a); }

struct Plain {
    explicit Plain(const Instr&) {}
};
#define HPE_OP(NAME, RESULT, ...)                                     \
    template <class T, bool S>                                        \
    struct NAME : Plain {                                             \
        using Plain::Plain;                                           \
        T operator()(__VA_ARGS__) const { return finish<S>(RESULT); } \
    };

HPE_OP(Add, a + b, T a, T b)
HPE_OP(Sub, a - b, T a, T b)
HPE_OP(Mul, a* b, T a, T b)
HPE_OP(Fma, fused(a, b, c), T a, T b, T c)
HPE_OP(Div, a / b, T a, T b)
HPE_OP(Rcp, T{1} / a, T a)
HPE_OP(Sqrt, root(a), T a)
// The manual allows 2^-22.9 relative and more; these are computed in double and are better than that.
HPE_OP(Rsqrt, static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))), T a)
HPE_OP(Sin, static_cast<T>(std::sin(static_cast<double>(a))), T a)
HPE_OP(Cos, static_cast<T>(std::cos(static_cast<double>(a))), T a)
HPE_OP(Tanh, static_cast<T>(std::tanh(static_cast<double>(a))), T a)
HPE_OP(Ex2, __builtin_exp2f(a), T a)
HPE_OP(Lg2, __builtin_log2f(a), T a)

// The environment does not reach what is not arithmetic, so these flush by themselves where they must.
template <class T>
inline T flushed(T v) {
    const T m = v < 0 ? -v : v;
    return m < std::numeric_limits<T>::min() ? cooked(raw(v) & (decltype(raw(v)){1} << (sizeof(T) * 8 - 1))) : v;
}
// A NaN becomes the canonical one in single precision and stays what it is in double.
template <class T, bool Flush>
struct Neg : Plain {
    using Plain::Plain;
    T operator()(T a) const {
        if (Flush) a = flushed(a);
        return a != a ? canonical(a) : cooked(raw(a) ^ (decltype(raw(a)){1} << (sizeof(T) * 8 - 1)));
    }
};
template <class T, bool Flush>
struct Abs : Plain {
    using Plain::Plain;
    T operator()(T a) const {
        if (Flush) a = flushed(a);
        return a != a ? canonical(a) : cooked(raw(a) & ~(decltype(raw(a)){1} << (sizeof(T) * 8 - 1)));
    }
};
template <class F, class T>
struct Flushed : F {
    using F::F;
    T operator()(T a) const { return flushed(F::operator()(flushed(a))); }
};
template <class T>
struct Copysign : Plain {  // the sign of a, the rest of b
    using Plain::Plain;
    T operator()(T a, T b) const {
        constexpr auto sign = decltype(raw(a)){1} << (sizeof(T) * 8 - 1);
        return cooked((raw(a) & sign) | (raw(b) & ~sign));
    }
};
template <class T>
inline T quiet() {
    if constexpr (sizeof(T) == 4)
        return cooked(std::uint32_t{0x7fffffff});
    else
        return cooked(std::uint64_t{0x7ff8000000000000});
}
// -0 counts as less than +0. A NaN loses against a number, unless NaN shall win.
template <class T, bool Nan, bool Less, bool Flush>
struct MinMax : Plain {
    using Plain::Plain;
    T operator()(T a, T b) const {
        if (Flush) a = flushed(a), b = flushed(b);
        const T zero = cooked(Less ? raw(a) | raw(b) : raw(a) & raw(b));
        T r = Less ? (a < b ? a : b) : (a > b ? a : b);
        r = a == b ? zero : r;
        if (Nan) return a != a || b != b ? quiet<T>() : r;
        r = a != a ? b : r;
        r = b != b ? a : r;
        return a != a && b != b ? quiet<T>() : r;
    }
};
// div.approx: 0 for 2^126 < |b| < 2^128, except NaN when a is infinite there.
template <class T, bool S>
struct DivApprox : Plain {
    using Plain::Plain;
    T operator()(T a, T b) const {
        const T m = __builtin_fabsf(b);
        T r = a / b;
        if (m > 0x1p126f && m < std::numeric_limits<T>::infinity()) r = a * (__builtin_copysignf(0.0f, b));
        return finish<S>(r);
    }
};

// testp gives a predicate.
template <class T, Op O>
const Instr* testp(Warp& w, const Instr* i, std::uint32_t mask) {
    const T* a = w.at<const T>(i->src[0]);
    alignas(64) std::uint32_t hit[lanes];
    constexpr T infinity = std::numeric_limits<T>::infinity();
    constexpr T smallest = std::numeric_limits<T>::min();
    for (unsigned l = 0; l < lanes; l++) {
        const T v = a[l], m = v < 0 ? -v : v;
        bool is = false;
        switch (O) {
            case Op::TestFinite: is = m < infinity; break;
            case Op::TestInfinite: is = m == infinity; break;
            case Op::TestNumber: is = v == v; break;
            case Op::TestNotNumber: is = v != v; break;
            case Op::TestNormal: is = (m >= smallest && m < infinity) || m == 0; break;  // zero counts as normal
            default: is = m > 0 && m < smallest; break;
        }
        hit[l] = is ? ~0u : 0;
    }
    auto& d = *w.at<std::uint32_t>(i->dst);
    d = (d & ~mask) | (pack(hit) & mask);
    return i + 1;
}

template <bool E, class F, class T, class... S>
Handler pick() {
    return E ? map_environment<F, T, S...> : map<F, T, S...>;
}

template <class F, class T, bool E>
Handler approximation() {
    return E ? Handler{map<Flushed<F, T>, T, T>} : Handler{map<F, T, T>};
}

template <class T, bool S, bool E>
Handler arithmetic(Op op) {
    switch (op) {
        case Op::Add: return pick<E, Add<T, S>, T, T, T>();
        case Op::Sub: return pick<E, Sub<T, S>, T, T, T>();
        case Op::Mul: return pick<E, Mul<T, S>, T, T, T>();
        case Op::Fma: return pick<E, Fma<T, S>, T, T, T, T>();
        default: break;
    }
    if constexpr (!S) {
        switch (op) {
            case Op::Div: return pick<E, Div<T, S>, T, T, T>();
            case Op::Rcp: return pick<E, Rcp<T, S>, T, T>();
            case Op::Sqrt: return pick<E, Sqrt<T, S>, T, T>();
            case Op::Rsqrt: return pick<E, Rsqrt<T, S>, T, T>();
            case Op::Min: return pick<E, MinMax<T, false, true, E>, T, T, T>();
            case Op::Max: return pick<E, MinMax<T, false, false, E>, T, T, T>();
            default: break;
        }
        if constexpr (sizeof(T) == 4) {
            switch (op) {
                case Op::Sin: return approximation<Sin<T, S>, T, E>();
                case Op::Cos: return approximation<Cos<T, S>, T, E>();
                case Op::Tanh: return approximation<Tanh<T, S>, T, E>();
                case Op::Ex2: return approximation<Ex2<T, S>, T, E>();
                case Op::Lg2: return approximation<Lg2<T, S>, T, E>();
                case Op::DivApprox: return pick<E, DivApprox<T, S>, T, T, T>();
                case Op::DivFull: return pick<E, Div<T, S>, T, T, T>();
                case Op::MinNan: return pick<E, MinMax<T, true, true, E>, T, T, T>();
                case Op::MaxNan: return pick<E, MinMax<T, true, false, E>, T, T, T>();
                case Op::Neg: return map<Neg<T, E>, T, T>;
                case Op::Abs: return map<Abs<T, E>, T, T>;
                default: break;
            }
        } else {
            if (op == Op::Neg) return map<Neg<T, false>, T, T>;
            if (op == Op::Abs) return map<Abs<T, false>, T, T>;
        }
        switch (op) {
            case Op::Copysign: return map<Copysign<T>, T, T, T>;
            case Op::TestFinite: return testp<T, Op::TestFinite>;
            case Op::TestInfinite: return testp<T, Op::TestInfinite>;
            case Op::TestNumber: return testp<T, Op::TestNumber>;
            case Op::TestNotNumber: return testp<T, Op::TestNotNumber>;
            case Op::TestNormal: return testp<T, Op::TestNormal>;
            case Op::TestSubnormal: return testp<T, Op::TestSubnormal>;
            default: break;
        }
    }
    return nullptr;
}

template <class T>
Handler variant(Op op, bool saturate, bool environment) {
    if (saturate) return environment ? arithmetic<T, true, true>(op) : arithmetic<T, true, false>(op);
    return environment ? arithmetic<T, false, true>(op) : arithmetic<T, false, false>(op);
}

}  // namespace

namespace HPE_ISA {

Handler floating_handler(Op op, Type type, bool saturate, bool environment) {
    if (type == Type::F32) return variant<float>(op, saturate, environment);
    if (type == Type::F64 && !saturate) {
        return environment ? arithmetic<double, false, true>(op) : arithmetic<double, false, false>(op);
    }
    return nullptr;
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
