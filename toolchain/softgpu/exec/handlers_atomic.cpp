// SPDX-License-Identifier: MIT
// atom and red: the processor's own atomic instructions on the bytes, so that they are atomic between blocks, with
// other launches and with the CPU. Shared memory is only ever touched by the thread that runs its block.
#include <type_traits>

#include "toolchain/softgpu/exec/half.h"
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/resolve.h"

namespace hpe::soft::exec {
namespace {

struct PairF16 {
    std::uint32_t bits;
};
struct PairBf16 {
    std::uint32_t bits;
};
struct OneF16 {
    std::uint16_t bits;
};
struct OneBf16 {
    std::uint16_t bits;
};

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

inline float flush(float v, bool on) { return on && __builtin_fabsf(v) < 0x1p-126f ? __builtin_copysignf(0.0f, v) : v; }
template <class H>
inline std::uint16_t add_half(std::uint16_t a, std::uint16_t b) {
    return H::store(static_cast<double>(H::load(a)) + H::load(b));
}
template <class H>
inline std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t high = add_half<H>(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16));
    return high << 16 | add_half<H>(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
}

template <Atomic A, class T>
T combine(T old, T b, T c, bool flushes) {
    if constexpr (std::is_same_v<T, float>) {
        const float r = flush(flush(old, flushes) + flush(b, flushes), flushes);
        return r != r ? float_of_bits(0x7fffffffu) : r;
    } else if constexpr (std::is_same_v<T, double>) {
        return old + b;
    } else if constexpr (std::is_same_v<T, OneF16>) {
        return {add_half<F16>(old.bits, b.bits)};
    } else if constexpr (std::is_same_v<T, OneBf16>) {
        return {add_half<Bf16>(old.bits, b.bits)};
    } else if constexpr (std::is_same_v<T, PairF16>) {
        return {add_pair<F16>(old.bits, b.bits)};
    } else if constexpr (std::is_same_v<T, PairBf16>) {
        return {add_pair<Bf16>(old.bits, b.bits)};
    } else {
        switch (A) {
            case Atomic::Add: return static_cast<T>(static_cast<Bits<T>>(old) + static_cast<Bits<T>>(b));
            case Atomic::Min: return b < old ? b : old;
            case Atomic::Max: return b > old ? b : old;
            case Atomic::And: return old & b;
            case Atomic::Or: return old | b;
            case Atomic::Xor: return old ^ b;
            case Atomic::Exch: return b;
            case Atomic::Cas: return old == b ? c : old;
            case Atomic::Inc: return old >= b ? T{0} : static_cast<T>(old + 1);
            case Atomic::Dec: return old == 0 || old > b ? b : static_cast<T>(old - 1);
        }
        return old;
    }
}

template <Atomic A, class T>
Bits<T> update(std::byte* where, T b, T c, bool alone, bool flushes) {
    using U = Bits<T>;
    auto* const p = reinterpret_cast<U*>(where);
    const auto cook = [](U v) { return __builtin_bit_cast(T, v); };
    const auto raw = [](T v) { return __builtin_bit_cast(U, v); };
    if (alone) {
        const U old = *p;
        *p = raw(combine<A, T>(cook(old), b, c, flushes));
        return old;
    }
    if constexpr (std::is_integral_v<T>) {
        if constexpr (A == Atomic::Add) return __atomic_fetch_add(p, raw(b), __ATOMIC_SEQ_CST);
        if constexpr (A == Atomic::And) return __atomic_fetch_and(p, raw(b), __ATOMIC_SEQ_CST);
        if constexpr (A == Atomic::Or) return __atomic_fetch_or(p, raw(b), __ATOMIC_SEQ_CST);
        if constexpr (A == Atomic::Xor) return __atomic_fetch_xor(p, raw(b), __ATOMIC_SEQ_CST);
        if constexpr (A == Atomic::Exch) return __atomic_exchange_n(p, raw(b), __ATOMIC_SEQ_CST);
        if constexpr (A == Atomic::Cas) {
            U expected = raw(b);
            __atomic_compare_exchange_n(p, &expected, raw(c), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
            return expected;
        }
    }
    U old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, raw(combine<A, T>(cook(old), b, c, flushes)), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}

template <Atomic A, class T, bool Result>
const Instr* atomic(Warp& w, const Instr* i, std::uint32_t mask) {
    using U = Bits<T>;
    Resolved at;
    // The first element of a vector stands for its alignment and its end.
    const unsigned bytes = static_cast<unsigned>(sizeof(T)) * (i->count > 1 ? i->count : 1u);
    if (!resolve(w, i, mask, bytes, true, at)) return nullptr;
    if (A == Atomic::Cas || A == Atomic::Exch) w.spins = true;
    if (at.first != nullptr)
        for (unsigned l = 0; l < lanes; l++) at.host[l] = at.first + l * bytes;
    const auto* b = w.at<const T>(i->src[1]);
    const auto* c = A == Atomic::Cas ? w.at<const T>(i->src[2]) : b;
    // On the hardware single precision additions flush subnormals, except in shared memory.
    const bool flushes = (i->flags & flag_flush) != 0 && !at.shared;
    alignas(64) U old[lanes];
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        old[l] = update<A, T>(at.host[l], b[l], c[l], at.shared, flushes);
    }
    if (Result) {
        U* d = w.at<U>(i->dst);
        for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
            const auto l = static_cast<unsigned>(__builtin_ctz(rest));
            d[l] = old[l];
        }
    }
    return i + 1;
}

template <class T, bool R>
Handler integer(Atomic a) {
    switch (a) {
        case Atomic::Add: return atomic<Atomic::Add, T, R>;
        case Atomic::Min: return atomic<Atomic::Min, T, R>;
        case Atomic::Max: return atomic<Atomic::Max, T, R>;
        case Atomic::And: return atomic<Atomic::And, T, R>;
        case Atomic::Or: return atomic<Atomic::Or, T, R>;
        case Atomic::Xor: return atomic<Atomic::Xor, T, R>;
        case Atomic::Exch: return atomic<Atomic::Exch, T, R>;
        case Atomic::Cas: return atomic<Atomic::Cas, T, R>;
        case Atomic::Inc: return atomic<Atomic::Inc, T, R>;
        case Atomic::Dec: return atomic<Atomic::Dec, T, R>;
    }
    return nullptr;
}

template <bool R>
Handler by_type(Atomic a, Type type) {
    const bool add = a == Atomic::Add;
    switch (type) {
        case Type::B16: return a == Atomic::Cas ? Handler{atomic<Atomic::Cas, std::uint16_t, R>} : nullptr;
        case Type::B32:
        case Type::U32: return integer<std::uint32_t, R>(a);
        case Type::S32: return integer<std::int32_t, R>(a);
        case Type::B64:
        case Type::U64: return integer<std::uint64_t, R>(a);
        case Type::S64: return integer<std::int64_t, R>(a);
        case Type::F32: return add ? Handler{atomic<Atomic::Add, float, R>} : nullptr;
        case Type::F64: return add ? Handler{atomic<Atomic::Add, double, R>} : nullptr;
        case Type::F16: return add ? Handler{atomic<Atomic::Add, OneF16, R>} : nullptr;
        case Type::BF16: return add ? Handler{atomic<Atomic::Add, OneBf16, R>} : nullptr;
        case Type::F16x2: return add ? Handler{atomic<Atomic::Add, PairF16, R>} : nullptr;
        case Type::BF16x2: return add ? Handler{atomic<Atomic::Add, PairBf16, R>} : nullptr;
        default: return nullptr;
    }
}

}  // namespace

namespace HPE_ISA {

Handler atomic_handler(Atomic a, Type type, bool result) {
    return result ? by_type<true>(a, type) : by_type<false>(a, type);
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
