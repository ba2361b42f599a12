// SPDX-License-Identifier: MIT
// Integer, logic and bit instructions over 32 lanes (PTX ISA, "Integer Arithmetic", "Logic and Shift Instructions").
// Compiled once per instruction set.
#include <limits>
#include <type_traits>

#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/lanes.h"

namespace hpe::soft::exec {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Arithmetic wraps around, so it is done unsigned; types narrower than int are widened by C++ and cut again.
template <class T>
inline constexpr auto wide(T v) {
    if constexpr (sizeof(T) < 4)
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(v));
    else
        return static_cast<Unsigned<T>>(v);
}
template <class T>
using Double = std::conditional_t<
    sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, std::int16_t, std::uint16_t>,
    std::conditional_t<
        sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
        std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                           std::conditional_t<std::is_signed_v<T>, __int128_t, __uint128_t>>>>;

template <class T>
constexpr unsigned bits = sizeof(T) * 8;
template <class T>
T mul_hi(T a, T b) {
    return static_cast<T>((static_cast<Double<T>>(a) * static_cast<Double<T>>(b)) >> bits<T>);
}
template <class T>
T clamp_signed(std::int64_t v) {
    if (v > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
    if (v < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    return static_cast<T>(v);
}

struct Plain {
    explicit Plain(const Instr&) {}
};
#define HPE_OP(NAME, RESULT, ...)                      \
    template <class T>                                 \
    struct NAME : Plain {                              \
        using Plain::Plain;                            \
        auto operator()(__VA_ARGS__) const -> T RESULT \
    };

HPE_OP(
    Mov, { return a; }, T a)
HPE_OP(
    Add, { return static_cast<T>(wide(a) + wide(b)); }, T a, T b)
HPE_OP(
    Sub, { return static_cast<T>(wide(a) - wide(b)); }, T a, T b)
HPE_OP(
    AddSat, { return clamp_signed<T>(std::int64_t{a} + b); }, T a, T b)
HPE_OP(
    SubSat, { return clamp_signed<T>(std::int64_t{a} - b); }, T a, T b)
HPE_OP(
    MulLo, { return static_cast<T>(wide(a) * wide(b)); }, T a, T b)
HPE_OP(
    MulHi, { return mul_hi(a, b); }, T a, T b)
HPE_OP(
    MadLo, { return static_cast<T>(wide(a) * wide(b) + wide(c)); }, T a, T b, T c)
HPE_OP(
    MadHi, { return static_cast<T>(wide(mul_hi(a, b)) + wide(c)); }, T a, T b, T c)
HPE_OP(
    And, { return static_cast<T>(a & b); }, T a, T b)
HPE_OP(
    Or, { return static_cast<T>(a | b); }, T a, T b)
HPE_OP(
    Xor, { return static_cast<T>(a ^ b); }, T a, T b)
HPE_OP(
    Not, { return static_cast<T>(~a); }, T a)
HPE_OP(
    Cnot, { return a == 0 ? 1 : 0; }, T a)
HPE_OP(
    Neg, { return static_cast<T>(0u - wide(a)); }, T a)
HPE_OP(
    Abs, { return a < 0 ? static_cast<T>(0u - wide(a)) : a; }, T a)
HPE_OP(
    Min, { return a < b ? a : b; }, T a, T b)
HPE_OP(
    Max, { return a > b ? a : b; }, T a, T b)
HPE_OP(
    Sad, { return static_cast<T>(wide(c) + (a < b ? wide(b) - wide(a) : wide(a) - wide(b))); }, T a, T b, T c)
// Division by zero is undefined in PTX; the hardware gives all ones, and the remainder the dividend.
HPE_OP(
    Div,
    {
        if (b == 0) return static_cast<T>(-1);
        if constexpr (std::is_signed_v<T>)
            if (b == -1) return static_cast<T>(0u - wide(a));
        return static_cast<T>(a / b);
    },
    T a, T b)
HPE_OP(
    Rem,
    {
        if (b == 0) return a;
        if constexpr (std::is_signed_v<T>)
            if (b == -1) return 0;
        return static_cast<T>(a % b);
    },
    T a, T b)
template <class T>
struct Shl : Plain {
    using Plain::Plain;
    T operator()(T a, std::uint32_t n) const { return n < bits<T> ? static_cast<T>(wide(a) << n) : T{0}; }
};
template <class T>
struct Shr : Plain {
    using Plain::Plain;
    T operator()(T a, std::uint32_t n) const { return static_cast<T>(n < bits<T> ? a >> n : (a < 0 ? -1 : 0)); }
};
template <class T>
struct MulWide : Plain {
    using Plain::Plain;
    Double<T> operator()(T a, T b) const { return static_cast<Double<T>>(static_cast<Double<T>>(a) * b); }
};
template <class T>
struct MadWide : Plain {
    using Plain::Plain;
    using W = Unsigned<Double<T>>;
    Double<T> operator()(T a, T b, Double<T> c) const {
        return static_cast<Double<T>>(static_cast<W>(static_cast<Double<T>>(a) * b) + static_cast<W>(c));
    }
};
// 24-bit products: the operands' low 24 bits, sign-extended for s32; lo and hi are 32 of the 48 bits.
template <class T, int Shift>
struct Mul24 : Plain {
    using Plain::Plain;
    static T cut(T v) { return static_cast<T>(static_cast<T>(static_cast<std::uint32_t>(v) << 8) >> 8); }
    T operator()(T a, T b) const {
        return static_cast<T>((static_cast<Double<T>>(cut(a)) * static_cast<Double<T>>(cut(b))) >> Shift);
    }
    T operator()(T a, T b, T c) const { return static_cast<T>(wide((*this)(a, b)) + wide(c)); }
};

template <class T>
struct Popc : Plain {
    using Plain::Plain;
    std::uint32_t operator()(T a) const { return static_cast<std::uint32_t>(__builtin_popcountll(a)); }
};
template <class T>
struct Clz : Plain {
    using Plain::Plain;
    std::uint32_t operator()(T a) const {
        return a == 0 ? bits<T> : static_cast<std::uint32_t>(__builtin_clzll(a)) - (64 - bits<T>);
    }
};
template <class T, bool Shift>
struct Bfind : Plain {
    using Plain::Plain;
    std::uint32_t operator()(T a) const {
        if (std::is_signed_v<T> && a < 0) a = static_cast<T>(~a);
        const auto u = static_cast<Unsigned<T>>(a);
        if (u == 0) return 0xffffffffu;
        const auto at = 63u - static_cast<std::uint32_t>(__builtin_clzll(u));
        return Shift ? bits<T> - 1 - at : at;
    }
};
template <class T>
struct Brev : Plain {
    using Plain::Plain;
    T operator()(T a) const {
        T r = 0;
        for (unsigned n = 0; n < bits<T>; n++) r |= static_cast<T>(((a >> n) & 1) << (bits<T> - 1 - n));
        return r;
    }
};
template <class T>
struct Bfe : Plain {
    using Plain::Plain;
    T operator()(T a, std::uint32_t position, std::uint32_t length) const {
        using U = Unsigned<T>;
        // Both count modulo 256, but not in 64 bits.
        const unsigned p = sizeof(T) == 8 ? position : position & 255, n = sizeof(T) == 8 ? length : length & 255;
        constexpr unsigned top = bits<T> - 1;
        U fill = 0;
        if (std::is_signed_v<T> && n != 0) {
            const std::uint64_t end = std::uint64_t{p} + n - 1;
            const unsigned last = end < top ? static_cast<unsigned>(end) : top;
            fill = (static_cast<U>(a) >> last) & 1 ? ~U{0} : 0;
        }
        if (n == 0) return 0;
        const U field = p <= top ? static_cast<U>(static_cast<U>(a) >> p) : 0;
        // Bits beyond the field or beyond the operand are copies of the sign.
        const unsigned valid = p > top ? 0 : (n < bits<T> - p ? n : bits<T> - p);
        const U keep = valid >= bits<T> ? ~U{0} : static_cast<U>((U{1} << valid) - 1);
        return static_cast<T>((field & keep) | (fill & ~keep));
    }
};
template <class T>
struct Bfi : Plain {
    using Plain::Plain;
    T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
        const unsigned p = sizeof(T) == 8 ? position : position & 255, n = sizeof(T) == 8 ? length : length & 255;
        if (p >= bits<T> || n == 0) return b;
        const T ones = n >= bits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << n) - 1);
        const T field = static_cast<T>(ones << p);
        return static_cast<T>((b & ~field) | ((a << p) & field));
    }
};
template <bool Wrap>
struct Bmsk : Plain {
    using Plain::Plain;
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
        if (Wrap) a &= 31, b &= 31;
        if (a >= 32 || b == 0) return 0;
        const std::uint32_t ones = b >= 32 ? ~0u : (1u << b) - 1;
        return ones << a;
    }
};
template <int Mode>  // 0 default, 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr, 6 rc16
struct Prmt : Plain {
    using Plain::Plain;
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
        const std::uint64_t both = std::uint64_t{b} << 32 | a;
        std::uint32_t r = 0;
        const unsigned s = c & 3;
        for (unsigned n = 0; n < 4; n++) {
            unsigned pick = 0;
            bool sign = false;
            switch (Mode) {
                case 0:
                    pick = (c >> (4 * n)) & 7;
                    sign = ((c >> (4 * n)) & 8) != 0;
                    break;
                case 1: pick = (s + n) & 7; break;
                case 2: pick = (s + 8 - n) & 7; break;
                case 3: pick = s; break;
                case 4: pick = n > s ? n : s; break;
                case 5: pick = n < s ? n : s; break;
                default: pick = (s & 1) * 2 + (n & 1); break;
            }
            auto byte = static_cast<std::uint32_t>((both >> (8 * pick)) & 255);
            if (sign) byte = (byte & 128) != 0 ? 255 : 0;
            r |= byte << (8 * n);
        }
        return r;
    }
};
template <bool Left, bool Wrap>
struct Shf : Plain {
    using Plain::Plain;
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
        const std::uint32_t n = Wrap ? c & 31 : (c < 32 ? c : 32);
        const std::uint64_t both = std::uint64_t{b} << 32 | a;
        return static_cast<std::uint32_t>(Left ? (both << n) >> 32 : both >> n);
    }
};
struct Lop3 {
    std::uint32_t k[8];
    explicit Lop3(const Instr& i) {
        for (unsigned n = 0; n < 8; n++) k[n] = (i.imm >> n) & 1 ? ~0u : 0;
    }
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
        return (~a & ~b & ~c & k[0]) | (~a & ~b & c & k[1]) | (~a & b & ~c & k[2]) | (~a & b & c & k[3]) |
               (a & ~b & ~c & k[4]) | (a & ~b & c & k[5]) | (a & b & ~c & k[6]) | (a & b & c & k[7]);
    }
};
template <class A, class B>
struct Dp4a : Plain {
    using Plain::Plain;
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
        for (unsigned n = 0; n < 4; n++)
            c += static_cast<std::uint32_t>(std::int32_t{static_cast<A>(a >> (8 * n))} *
                                            std::int32_t{static_cast<B>(b >> (8 * n))});
        return c;
    }
};
// Two 16-bit values of a with two bytes of b: the low or, with imm 1, the high ones.
template <class A, class B>
struct Dp2a {
    unsigned shift;
    explicit Dp2a(const Instr& i) : shift(i.imm != 0 ? 16 : 0) {}
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
        b >>= shift;
        for (unsigned n = 0; n < 2; n++)
            c += static_cast<std::uint32_t>(std::int32_t{static_cast<A>(a >> (16 * n))} *
                                            std::int32_t{static_cast<B>(b >> (8 * n))});
        return c;
    }
};
template <class T>
struct Slct : Plain {
    using Plain::Plain;
    T operator()(T a, T b, std::int32_t c) const { return c >= 0 ? a : b; }
};
template <class T>
struct SlctFloat : Plain {
    using Plain::Plain;
    T operator()(T a, T b, float c) const { return c >= 0 ? a : b; }
};

template <class T>
const Instr* selp(Warp& w, const Instr* i, std::uint32_t mask) {
    const T* a = w.at<const T>(i->src[0]);
    const T* b = w.at<const T>(i->src[1]);
    T* d = w.at<T>(i->dst);
    const std::uint32_t p = w.predicate(i->src[2]) ^ ((i->flags & flag_negated) != 0 ? all_lanes : 0);
    alignas(64) T scratch[lanes];
    T* out = mask == all_lanes ? d : scratch;
    HPE_LANES_APART
    for (unsigned l = 0; l < lanes; l++) out[l] = ((p >> l) & 1) != 0 ? a[l] : b[l];
    if (mask != all_lanes) blend(d, scratch, mask);
    return i + 1;
}

// Extended precision: the carry flag of each lane is a bit of the predicate in src[3]. Product says which half of a*b
// is added to c; without one it is a itself. Subtraction uses the flag as borrow.
enum class Product { None, Low, High };
template <class T, Product P, bool Subtract, bool In, bool Out>
const Instr* carry(Warp& w, const Instr* i, std::uint32_t mask) {
    using U = Unsigned<T>;
    const T* a = w.at<const T>(i->src[0]);
    const T* b = w.at<const T>(i->src[1]);
    const T* c = P == Product::None ? b : w.at<const T>(i->src[2]);
    T* d = w.at<T>(i->dst);
    auto& flag = *w.at<std::uint32_t>(i->src[3]);
    std::uint32_t out = flag;
    for (unsigned l = 0; l < lanes; l++) {
        if (((mask >> l) & 1) == 0) continue;
        U x = static_cast<U>(a[l]);
        if (P == Product::Low) x = static_cast<U>(x * static_cast<U>(b[l]));
        if (P == Product::High) x = static_cast<U>(mul_hi(a[l], b[l]));
        const U y = static_cast<U>(c[l]);
        const U in = In ? (flag >> l) & 1 : 0;
        U r = 0, part = 0;
        bool carried = false;
        if (Subtract) {
            carried = __builtin_sub_overflow(x, y, &part);
            carried |= __builtin_sub_overflow(part, in, &r);
        } else {
            carried = __builtin_add_overflow(x, y, &part);
            carried |= __builtin_add_overflow(part, in, &r);
        }
        d[l] = static_cast<T>(r);
        if (Out) out = (out & ~(1u << l)) | (carried ? 1u << l : 0);
    }
    if (Out) flag = out;
    return i + 1;
}

template <class T>
Handler any_width(Op op) {
    switch (op) {
        case Op::Mov: return map<Mov<T>, T, T>;
        case Op::Add: return map<Add<T>, T, T, T>;
        case Op::Sub: return map<Sub<T>, T, T, T>;
        case Op::MulLo: return map<MulLo<T>, T, T, T>;
        case Op::MadLo: return map<MadLo<T>, T, T, T, T>;
        case Op::And: return map<And<T>, T, T, T>;
        case Op::Or: return map<Or<T>, T, T, T>;
        case Op::Xor: return map<Xor<T>, T, T, T>;
        case Op::Not: return map<Not<T>, T, T>;
        case Op::Cnot: return map<Cnot<T>, T, T>;
        case Op::Neg: return map<Neg<T>, T, T>;
        case Op::Shl: return map<Shl<T>, T, T, std::uint32_t>;
        case Op::Selp: return selp<T>;
        case Op::Slct: return map<Slct<T>, T, T, T, std::int32_t>;
        case Op::SlctFloat: return map<SlctFloat<T>, T, T, T, float>;
        default: return nullptr;
    }
}

template <class T>
Handler with_sign(Op op) {
    switch (op) {
        case Op::MulHi: return map<MulHi<T>, T, T, T>;
        case Op::MadHi: return map<MadHi<T>, T, T, T, T>;
        case Op::Abs: return map<Abs<T>, T, T>;
        case Op::Min: return map<Min<T>, T, T, T>;
        case Op::Max: return map<Max<T>, T, T, T>;
        case Op::Sad: return map<Sad<T>, T, T, T, T>;
        case Op::Div: return map<Div<T>, T, T, T>;
        case Op::Rem: return map<Rem<T>, T, T, T>;
        case Op::Shr: return map<Shr<T>, T, T, std::uint32_t>;
        default: break;
    }
    if constexpr (sizeof(T) <= 4) {
        if (op == Op::MulWide) return map<MulWide<T>, Double<T>, T, T>;
        if (op == Op::MadWide) return map<MadWide<T>, Double<T>, T, T, Double<T>>;
    }
    if constexpr (sizeof(T) == 4) {
        switch (op) {
            case Op::Mul24Lo: return map<Mul24<T, 0>, T, T, T>;
            case Op::Mul24Hi: return map<Mul24<T, 16>, T, T, T>;
            case Op::Mad24Lo: return map<Mul24<T, 0>, T, T, T, T>;
            case Op::Mad24Hi: return map<Mul24<T, 16>, T, T, T, T>;
            default: break;
        }
    }
    if constexpr (sizeof(T) >= 4) {
        switch (op) {
            case Op::Bfind: return map<Bfind<T, false>, std::uint32_t, T>;
            case Op::BfindShift: return map<Bfind<T, true>, std::uint32_t, T>;
            case Op::Bfe: return map<Bfe<T>, T, T, std::uint32_t, std::uint32_t>;
            case Op::AddCc: return carry<T, Product::None, false, false, true>;
            case Op::AddcCc: return carry<T, Product::None, false, true, true>;
            case Op::Addc: return carry<T, Product::None, false, true, false>;
            case Op::SubCc: return carry<T, Product::None, true, false, true>;
            case Op::SubcCc: return carry<T, Product::None, true, true, true>;
            case Op::Subc: return carry<T, Product::None, true, true, false>;
            case Op::MadLoCc: return carry<T, Product::Low, false, false, true>;
            case Op::MadcLo: return carry<T, Product::Low, false, true, false>;
            case Op::MadcLoCc: return carry<T, Product::Low, false, true, true>;
            case Op::MadHiCc: return carry<T, Product::High, false, false, true>;
            case Op::MadcHi: return carry<T, Product::High, false, true, false>;
            case Op::MadcHiCc: return carry<T, Product::High, false, true, true>;
            default: break;
        }
    }
    return nullptr;
}

template <class T>
Handler bit_fields(Op op) {
    switch (op) {
        case Op::Popc: return map<Popc<T>, std::uint32_t, T>;
        case Op::Clz: return map<Clz<T>, std::uint32_t, T>;
        case Op::Brev: return map<Brev<T>, T, T>;
        case Op::Bfi: return map<Bfi<T>, T, T, T, std::uint32_t, std::uint32_t>;
        default: return nullptr;
    }
}

Handler only_32(Op op) {
    using U = std::uint32_t;
    switch (op) {
        case Op::AddSat: return map<AddSat<std::int32_t>, std::int32_t, std::int32_t, std::int32_t>;
        case Op::SubSat: return map<SubSat<std::int32_t>, std::int32_t, std::int32_t, std::int32_t>;
        case Op::Bmsk: return map<Bmsk<false>, U, U, U>;
        case Op::BmskWrap: return map<Bmsk<true>, U, U, U>;
        case Op::Prmt: return map<Prmt<0>, U, U, U, U>;
        case Op::PrmtF4e: return map<Prmt<1>, U, U, U, U>;
        case Op::PrmtB4e: return map<Prmt<2>, U, U, U, U>;
        case Op::PrmtRc8: return map<Prmt<3>, U, U, U, U>;
        case Op::PrmtEcl: return map<Prmt<4>, U, U, U, U>;
        case Op::PrmtEcr: return map<Prmt<5>, U, U, U, U>;
        case Op::PrmtRc16: return map<Prmt<6>, U, U, U, U>;
        case Op::ShfLeft: return map<Shf<true, false>, U, U, U, U>;
        case Op::ShfLeftWrap: return map<Shf<true, true>, U, U, U, U>;
        case Op::ShfRight: return map<Shf<false, false>, U, U, U, U>;
        case Op::ShfRightWrap: return map<Shf<false, true>, U, U, U, U>;
        case Op::Lop3: return map<Lop3, U, U, U, U>;
        case Op::Dp4aUU: return map<Dp4a<std::uint8_t, std::uint8_t>, U, U, U, U>;
        case Op::Dp4aUS: return map<Dp4a<std::uint8_t, std::int8_t>, U, U, U, U>;
        case Op::Dp4aSU: return map<Dp4a<std::int8_t, std::uint8_t>, U, U, U, U>;
        case Op::Dp4aSS: return map<Dp4a<std::int8_t, std::int8_t>, U, U, U, U>;
        case Op::Dp2aUU: return map<Dp2a<std::uint16_t, std::uint8_t>, U, U, U, U>;
        case Op::Dp2aUS: return map<Dp2a<std::uint16_t, std::int8_t>, U, U, U, U>;
        case Op::Dp2aSU: return map<Dp2a<std::int16_t, std::uint8_t>, U, U, U, U>;
        case Op::Dp2aSS: return map<Dp2a<std::int16_t, std::int8_t>, U, U, U, U>;
        default: return nullptr;
    }
}

}  // namespace

namespace HPE_ISA {

Handler integer_handler(Op op, Type type) {
    const bool is_signed = type == Type::S16 || type == Type::S32 || type == Type::S64;
    Handler h = nullptr;
    switch (ptx::size_of(type)) {
        case 2:
            h = any_width<std::uint16_t>(op);
            if (h == nullptr) h = is_signed ? with_sign<std::int16_t>(op) : with_sign<std::uint16_t>(op);
            return h;
        case 4:
            h = any_width<std::uint32_t>(op);
            if (h == nullptr) h = bit_fields<std::uint32_t>(op);
            if (h == nullptr) h = only_32(op);
            if (h == nullptr) h = is_signed ? with_sign<std::int32_t>(op) : with_sign<std::uint32_t>(op);
            return h;
        case 8:
            h = any_width<std::uint64_t>(op);
            if (h == nullptr) h = bit_fields<std::uint64_t>(op);
            if (h == nullptr) h = is_signed ? with_sign<std::int64_t>(op) : with_sign<std::uint64_t>(op);
            return h;
        default: return nullptr;
    }
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
