// SPDX-License-Identifier: MIT
// cvt over 32 lanes: widen to 64-bit integers or doubles, which is exact, then round once into the destination.
#include <cmath>
#include <limits>
#include <type_traits>

#include "toolchain/softgpu/exec/half.h"
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/lanes.h"

namespace hpe::soft::exec {
namespace {

template <class V, class R, class T>
void widen_from(const R* from, T* to) {
    HPE_LANES_APART
    for (unsigned l = 0; l < lanes; l++) to[l] = static_cast<T>(static_cast<V>(from[l]));
}
template <class V>
void widen_integer(const Warp& w, const Instr* i, unsigned bytes, std::int64_t* to) {
    if constexpr (sizeof(V) <= 2)
        if (bytes == 2) return widen_from<V>(w.at<const std::uint16_t>(i->src[0]), to);
    if constexpr (sizeof(V) <= 4)
        if (bytes == 4) return widen_from<V>(w.at<const std::uint32_t>(i->src[0]), to);
    widen_from<V>(w.at<const std::uint64_t>(i->src[0]), to);
}
void load_integer(const Warp& w, const Instr* i, const ConvertCode& c, std::int64_t* to) {
    switch (c.from) {
        case Type::U8: return widen_integer<std::uint8_t>(w, i, c.from_register, to);
        case Type::S8: return widen_integer<std::int8_t>(w, i, c.from_register, to);
        case Type::U16: return widen_integer<std::uint16_t>(w, i, c.from_register, to);
        case Type::S16: return widen_integer<std::int16_t>(w, i, c.from_register, to);
        case Type::U32: return widen_integer<std::uint32_t>(w, i, c.from_register, to);
        case Type::S32: return widen_integer<std::int32_t>(w, i, c.from_register, to);
        default: return widen_integer<std::int64_t>(w, i, c.from_register, to);
    }
}

// The low bits of a register as the float type it holds.
template <class R>
double float_from(R v, Type type) {
    switch (type) {
        case Type::F16: return F16::load(static_cast<std::uint16_t>(v));
        case Type::BF16: return Bf16::load(static_cast<std::uint16_t>(v));
        case Type::F32: return float_of_bits(static_cast<std::uint32_t>(v));
        default: return __builtin_bit_cast(double, std::uint64_t{v});
    }
}
void load_float(const Warp& w, const Instr* i, unsigned source, const ConvertCode& c, double* to) {
    if (c.from == Type::F32 && c.from_register == 4) {
        const float* a = w.at<const float>(i->src[source]);
        HPE_LANES_APART
        for (unsigned l = 0; l < lanes; l++) to[l] = a[l];
    } else if (c.from_register == 2) {
        const auto* a = w.at<const std::uint16_t>(i->src[source]);
        for (unsigned l = 0; l < lanes; l++) to[l] = float_from(a[l], c.from);
    } else if (c.from_register == 4) {
        const auto* a = w.at<const std::uint32_t>(i->src[source]);
        for (unsigned l = 0; l < lanes; l++) to[l] = float_from(a[l], c.from);
    } else {
        const auto* a = w.at<const std::uint64_t>(i->src[source]);
        for (unsigned l = 0; l < lanes; l++) to[l] = float_from(a[l], c.from);
    }
    if (c.flush && c.from == Type::F32)
        for (unsigned l = 0; l < lanes; l++)
            if (__builtin_fabs(to[l]) < 0x1p-126) to[l] = __builtin_copysign(0.0, to[l]);
}

// Values of type V into the register, extended as V's sign says.
template <class V>
void store_lanes(Warp& w, const Instr* i, unsigned bytes, std::uint32_t mask, const V* from) {
    const auto put = [&](auto* d) {
        using R = std::remove_pointer_t<decltype(d)>;
        alignas(64) R scratch[lanes];
        R* out = mask == all_lanes ? d : scratch;
        HPE_LANES_APART
        for (unsigned l = 0; l < lanes; l++) out[l] = static_cast<R>(from[l]);
        if (mask != all_lanes) blend(d, scratch, mask);
    };
    if (bytes == 2)
        put(w.at<std::uint16_t>(i->dst));
    else if (bytes == 4)
        put(w.at<std::uint32_t>(i->dst));
    else
        put(w.at<std::uint64_t>(i->dst));
}

template <class V, bool FromUnsigned64>
void narrow_integer(Warp& w, const Instr* i, const ConvertCode& c, std::uint32_t mask, const std::int64_t* from) {
    alignas(64) V to[lanes];
    using Limits = std::numeric_limits<V>;
    for (unsigned l = 0; l < lanes; l++) {
        if (!c.saturate) {
            to[l] = static_cast<V>(from[l]);
        } else if (FromUnsigned64) {
            const auto v = static_cast<std::uint64_t>(from[l]);
            const auto top = static_cast<std::uint64_t>(Limits::max());
            to[l] = static_cast<V>(v > top ? top : v);
        } else if (std::is_signed_v<V>) {
            const std::int64_t v = from[l], low = static_cast<std::int64_t>(Limits::min()),
                               top = static_cast<std::int64_t>(Limits::max());
            to[l] = static_cast<V>(v < low ? low : v > top ? top : v);
        } else {
            const std::uint64_t top = Limits::max();
            to[l] = static_cast<V>(from[l] < 0                                 ? 0
                                   : static_cast<std::uint64_t>(from[l]) > top ? top
                                                                               : static_cast<std::uint64_t>(from[l]));
        }
    }
    store_lanes(w, i, c.to_register, mask, to);
}
template <bool FromUnsigned64>
void store_integer(Warp& w, const Instr* i, const ConvertCode& c, std::uint32_t mask, const std::int64_t* v) {
    switch (c.to) {
        case Type::U8: return narrow_integer<std::uint8_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::S8: return narrow_integer<std::int8_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::U16: return narrow_integer<std::uint16_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::S16: return narrow_integer<std::int16_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::U32: return narrow_integer<std::uint32_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::S32: return narrow_integer<std::int32_t, FromUnsigned64>(w, i, c, mask, v);
        case Type::U64: return narrow_integer<std::uint64_t, FromUnsigned64>(w, i, c, mask, v);
        default: return narrow_integer<std::int64_t, FromUnsigned64>(w, i, c, mask, v);
    }
}

const Instr* integer_to_integer(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto c = __builtin_bit_cast(ConvertCode, i->imm);
    alignas(64) std::int64_t v[lanes];
    load_integer(w, i, c, v);
    if (c.from == Type::U64)
        store_integer<true>(w, i, c, mask, v);
    else
        store_integer<false>(w, i, c, mask, v);
    return i + 1;
}

void round_integral(double* v, Rounding r) {
    switch (r) {
        case Rounding::Rni:
            for (unsigned l = 0; l < lanes; l++) v[l] = __builtin_rint(v[l]);  // the environment rounds to nearest
            break;
        case Rounding::Rzi:
            for (unsigned l = 0; l < lanes; l++) v[l] = __builtin_trunc(v[l]);
            break;
        case Rounding::Rmi:
            for (unsigned l = 0; l < lanes; l++) v[l] = __builtin_floor(v[l]);
            break;
        case Rounding::Rpi:
            for (unsigned l = 0; l < lanes; l++) v[l] = __builtin_ceil(v[l]);
            break;
        default: break;
    }
}

// Out of range gives the nearest end of the range. NaN gives 0, but the sign bit alone where 64 bits are involved.
template <class V>
void float_into(Warp& w, const Instr* i, const ConvertCode& c, std::uint32_t mask, const double* from) {
    using Limits = std::numeric_limits<V>;
    constexpr double low = static_cast<double>(Limits::min());
    constexpr double beyond =
        sizeof(V) == 8 ? (std::is_signed_v<V> ? 0x1p63 : 0x1p64) : static_cast<double>(Limits::max()) + 1.0;
    const bool wide = c.from == Type::F64 || sizeof(V) == 8;
    constexpr unsigned top_bit = sizeof(V) * 8 - 1;
    const V of_nan = wide ? static_cast<V>(std::uint64_t{1} << top_bit) : V{0};
    alignas(64) V to[lanes];
    for (unsigned l = 0; l < lanes; l++) {
        const double v = from[l];
        to[l] = v != v ? of_nan : v < low ? Limits::min() : v >= beyond ? Limits::max() : static_cast<V>(v);
    }
    store_lanes(w, i, c.to_register, mask, to);
}

const Instr* float_to_integer(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto c = __builtin_bit_cast(ConvertCode, i->imm);
    alignas(64) double v[lanes];
    load_float(w, i, 0, c, v);
    round_integral(v, static_cast<Rounding>(i->mode));
    switch (c.to) {
        case Type::U8: float_into<std::uint8_t>(w, i, c, mask, v); break;
        case Type::S8: float_into<std::int8_t>(w, i, c, mask, v); break;
        case Type::U16: float_into<std::uint16_t>(w, i, c, mask, v); break;
        case Type::S16: float_into<std::int16_t>(w, i, c, mask, v); break;
        case Type::U32: float_into<std::uint32_t>(w, i, c, mask, v); break;
        case Type::S32: float_into<std::int32_t>(w, i, c, mask, v); break;
        case Type::U64: float_into<std::uint64_t>(w, i, c, mask, v); break;
        default: float_into<std::int64_t>(w, i, c, mask, v); break;
    }
    return i + 1;
}

std::uint32_t control_of(Rounding r) {
    switch (r) {
        case Rounding::Rz: return 0x1f80 | 0x6000;
        case Rounding::Rm: return 0x1f80 | 0x2000;
        case Rounding::Rp: return 0x1f80 | 0x4000;
        default: return 0x1f80;
    }
}
To mode_of(Rounding r) {
    switch (r) {
        case Rounding::Rz: return To::Zero;
        case Rounding::Rm: return To::Down;
        case Rounding::Rp: return To::Up;
        default: return To::Nearest;
    }
}

template <class F>
std::uint16_t half_of(double v, const ConvertCode& c, Rounding r) {
    if (c.relu && v < 0) v = 0;  // a NaN stays
    if (c.relu && v == 0) v = 0;
    if (c.saturate) v = v > 0 ? (v < 1 ? v : 1) : 0;
    // Of a double's NaN the hardware keeps the upper bits.
    if (v != v && c.from == Type::F64 && c.to == Type::F16)
        return static_cast<std::uint16_t>(__builtin_bit_cast(std::uint64_t, v) >> 48 & 0x8000) | 0x7e00;
    return F::store(v, mode_of(r));
}

const Instr* float_to_float(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto c = __builtin_bit_cast(ConvertCode, i->imm);
    const auto r = static_cast<Rounding>(i->mode);
    alignas(64) double v[lanes];
    load_float(w, i, 0, c, v);
    round_integral(v, r);
    if (c.to == Type::F32 && c.from == Type::BF16 && c.from_register == 2 && !c.saturate) {
        // Only a shift, even of a NaN.
        const auto* a = w.at<const std::uint16_t>(i->src[0]);
        alignas(64) std::uint32_t to[lanes];
        for (unsigned l = 0; l < lanes; l++) to[l] = std::uint32_t{a[l]} << 16;
        store_lanes(w, i, c.to_register, mask, to);
    } else if (c.to == Type::F32) {
        alignas(64) std::uint32_t to[lanes];
        const FloatingEnvironment environment(control_of(r) | (c.flush ? 0x8000u : 0));
        for (unsigned l = 0; l < lanes; l++) {
            float f = static_cast<float>(v[l]);
            if (c.saturate) f = f > 0 ? (f < 1 ? f : 1) : 0;
            to[l] = f != f && c.from != Type::F64 ? 0x7fffffffu : bits_of_float(f);
        }
        store_lanes(w, i, c.to_register, mask, to);
    } else if (c.to == Type::F64) {
        alignas(64) std::uint64_t to[lanes];
        for (unsigned l = 0; l < lanes; l++) {
            double f = v[l];
            if (c.saturate) f = f > 0 ? (f < 1 ? f : 1) : 0;
            to[l] = f != f && c.flush ? 0x7fffffffe0000000u : __builtin_bit_cast(std::uint64_t, f);
        }
        store_lanes(w, i, c.to_register, mask, to);
    } else {
        alignas(64) std::uint16_t to[lanes];
        for (unsigned l = 0; l < lanes; l++)
            to[l] = c.to == Type::F16 ? half_of<F16>(v[l], c, r) : half_of<Bf16>(v[l], c, r);
        store_lanes(w, i, c.to_register, mask, to);
    }
    return i + 1;
}

// Two floats into a pair: the first operand is the upper half.
const Instr* floats_to_pair(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto c = __builtin_bit_cast(ConvertCode, i->imm);
    const auto r = static_cast<Rounding>(i->mode);
    alignas(64) double high[lanes], low[lanes];
    load_float(w, i, 0, c, high);
    load_float(w, i, 1, c, low);
    alignas(64) std::uint32_t to[lanes];
    for (unsigned l = 0; l < lanes; l++) {
        const bool f16 = c.to == Type::F16x2;
        const std::uint32_t h = f16 ? half_of<F16>(high[l], c, r) : half_of<Bf16>(high[l], c, r);
        to[l] = h << 16 | (f16 ? half_of<F16>(low[l], c, r) : half_of<Bf16>(low[l], c, r));
    }
    store_lanes(w, i, 4, mask, to);
    return i + 1;
}

// Rounds once, as the environment says. A compiler may make the conversion of an unsigned integer of steps that are
// right only when rounding to nearest (clang's gives -0 for 0 when rounding down), that of a signed one is an
// instruction.
template <class F>
F of_unsigned(std::uint64_t v) {
    if ((v >> 63) == 0) return static_cast<F>(static_cast<std::int64_t>(v));
    // Half of it, with a last bit that remembers what was cut off; doubling is exact.
    return static_cast<F>(static_cast<std::int64_t>(v >> 1 | (v & 1))) * 2;
}

const Instr* integer_to_float(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto c = __builtin_bit_cast(ConvertCode, i->imm);
    const auto r = static_cast<Rounding>(i->mode);
    const bool big = c.from == Type::U64;
    alignas(64) std::int64_t v[lanes];
    load_integer(w, i, c, v);
    if (c.to == Type::F32) {
        alignas(64) float f[lanes];
        alignas(64) std::uint32_t to[lanes];
        {
            const FloatingEnvironment environment(control_of(r));
            for (unsigned l = 0; l < lanes; l++)
                f[l] = big ? of_unsigned<float>(static_cast<std::uint64_t>(v[l])) : static_cast<float>(v[l]);
            asm volatile("" : : "r"(f) : "memory");
        }
        for (unsigned l = 0; l < lanes; l++) {
            if (c.saturate) f[l] = f[l] > 0 ? (f[l] < 1 ? f[l] : 1) : 0;
            to[l] = bits_of_float(f[l]);
        }
        store_lanes(w, i, c.to_register, mask, to);
    } else if (c.to == Type::F64) {
        alignas(64) double f[lanes];
        alignas(64) std::uint64_t to[lanes];
        {
            const FloatingEnvironment environment(control_of(r));
            for (unsigned l = 0; l < lanes; l++)
                f[l] = big ? of_unsigned<double>(static_cast<std::uint64_t>(v[l])) : static_cast<double>(v[l]);
            asm volatile("" : : "r"(f) : "memory");
        }
        for (unsigned l = 0; l < lanes; l++) {
            if (c.saturate) f[l] = f[l] > 0 ? (f[l] < 1 ? f[l] : 1) : 0;
            to[l] = __builtin_bit_cast(std::uint64_t, f[l]);
        }
        store_lanes(w, i, c.to_register, mask, to);
    } else {
        alignas(64) std::uint16_t to[lanes];
        for (unsigned l = 0; l < lanes; l++) {
            // Cut to 52 bits with a sticky last bit, so that the one rounding is the one to half precision.
            const bool minus = !big && v[l] < 0;
            std::uint64_t m = minus ? 0 - static_cast<std::uint64_t>(v[l]) : static_cast<std::uint64_t>(v[l]);
            if ((m >> 52) != 0) m = (m & ~std::uint64_t{0xffff}) | ((m & 0xffff) != 0 ? 0x10000u : 0);
            const double d = minus ? -static_cast<double>(m) : static_cast<double>(m);
            to[l] = c.to == Type::F16 ? half_of<F16>(d, c, r) : half_of<Bf16>(d, c, r);
        }
        store_lanes(w, i, c.to_register, mask, to);
    }
    return i + 1;
}

bool is_float(Type t) { return t == Type::F16 || t == Type::BF16 || t == Type::F32 || t == Type::F64; }
bool is_integer(Type t) { return t >= Type::U8 && t <= Type::S64; }

}  // namespace

namespace HPE_ISA {

Handler convert_handler(Type to, Type from) {
    if (is_integer(to) && is_integer(from)) return integer_to_integer;
    if (is_integer(to) && is_float(from)) return float_to_integer;
    if (is_float(to) && is_integer(from)) return integer_to_float;
    if (is_float(to) && is_float(from)) return float_to_float;
    if ((to == Type::F16x2 || to == Type::BF16x2) && from == Type::F32) return floats_to_pair;
    return nullptr;
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
