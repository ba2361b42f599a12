// SPDX-License-Identifier: MIT
// Half precision (f16) and bfloat16 as numbers. Internal linkage: see lanes.h.
// Pure functions. Source: IEEE 754-2008 binary16; PTX ISA, cvt, for rounding and NaN.
#pragma once

#include <cstdint>

namespace hpe::soft::exec {
namespace {

inline float float_of_bits(std::uint32_t v) { return __builtin_bit_cast(float, v); }
inline std::uint32_t bits_of_float(float v) { return __builtin_bit_cast(std::uint32_t, v); }

enum class To { Nearest, Zero, Down, Up };

// Rounds a double to a format with `Mantissa` stored bits and `Exponent` exponent bits. Exact for every mode.
template <unsigned Exponent, unsigned Mantissa>
inline std::uint16_t narrow(double value, To mode) {
    const auto bits = __builtin_bit_cast(std::uint64_t, value);
    const auto sign = static_cast<std::uint16_t>((bits >> 63) << 15);
    constexpr int bias = (1 << (Exponent - 1)) - 1;
    constexpr auto infinity = static_cast<std::uint16_t>(((1 << Exponent) - 1) << Mantissa);
    if (value != value) return 0x7fff;
    const double magnitude = __builtin_fabs(value);
    if (magnitude == __builtin_inf()) return static_cast<std::uint16_t>(sign | infinity);
    if (magnitude == 0) return sign;
    int exponent = static_cast<int>((bits >> 52) & 2047) - 1023;  // of a double's own subnormals: far below any result
    std::uint64_t mantissa = (bits & 0xfffffffffffffu) | (exponent == -1023 ? 0 : std::uint64_t{1} << 52);
    // Keep Mantissa+1 bits, fewer below the smallest normal number.
    int drop = 52 - static_cast<int>(Mantissa);
    if (exponent < 1 - bias) drop += 1 - bias - exponent;
    std::uint64_t kept = 0;
    bool half = false, rest = false;
    if (drop > 62) {
        rest = true;
    } else {
        kept = mantissa >> drop;
        half = ((mantissa >> (drop - 1)) & 1) != 0;
        rest = (mantissa & ((std::uint64_t{1} << (drop - 1)) - 1)) != 0;
    }
    const bool up = mode == To::Nearest ? half && (rest || (kept & 1) != 0)
                    : mode == To::Zero  ? false
                                        : (half || rest) && (mode == To::Up) == (sign == 0);
    kept += up ? 1 : 0;
    std::uint64_t result = 0;
    if (exponent < 1 - bias)
        result = kept;  // carries into the exponent by itself
    else
        result = (static_cast<std::uint64_t>(exponent + bias) << Mantissa) + (kept - (std::uint64_t{1} << Mantissa));
    if (result >= infinity) {
        const bool to_infinity =
            mode == To::Nearest || (mode == To::Up && sign == 0) || (mode == To::Down && sign != 0);
        result = to_infinity ? infinity : infinity - 1u;
    }
    return static_cast<std::uint16_t>(sign | result);
}

struct F16 {
    static float load(std::uint16_t h) {
        const std::uint32_t sign = std::uint32_t{h & 0x8000u} << 16, rest = h & 0x7fffu;
        if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000u | ((rest & 0x3ff) << 13));
        if (rest >= 0x400) return float_of_bits(sign | ((rest << 13) + (112u << 23)));
        const float small = static_cast<float>(rest) * 0x1p-24f;
        return float_of_bits(sign | bits_of_float(small));
    }
    static std::uint16_t store(double v, To mode = To::Nearest) { return narrow<5, 10>(v, mode); }
    static constexpr std::uint16_t smallest = 0x0400;
    static constexpr double tiny = 0x1p-14 * (1 - 0x1p-12);
};

struct Bf16 {
    static float load(std::uint16_t h) { return float_of_bits(std::uint32_t{h} << 16); }
    static std::uint16_t store(double v, To mode = To::Nearest) { return narrow<8, 7>(v, mode); }
    static constexpr std::uint16_t smallest = 0x0080;
    static constexpr double tiny = 0x1p-126 * (1 - 0x1p-9);
};

// a*b + c rounded to odd in double, so that rounding once more to half is exact. a*b itself is exact.
inline double fma_to_odd(float a, float b, float c) {
    const double p = static_cast<double>(a) * b, q = c, s = p + q;
    if (!(__builtin_fabs(s) < __builtin_inf())) return s;
    const double t = s - p, error = (p - (s - t)) + (q - t);
    auto bits = __builtin_bit_cast(std::uint64_t, s);
    if (error != 0 && (bits & 1) == 0) bits += (error > 0) == (s > 0) ? 1 : ~std::uint64_t{0};
    return __builtin_bit_cast(double, bits);
}

}  // namespace
}  // namespace hpe::soft::exec
