// SPDX-License-Identifier: MIT
// How handlers work on 32 lanes at once, a warp of PTX ISA, "PTX Machine Model". Included only by the handler files,
// which are compiled once per instruction set: everything here has internal linkage, so that no copy for one set is
// linked into the other.
//
// Threads: a warp is run by one at a time. Errors: handlers return nullptr or set Warp::stop.
#pragma once

#include <immintrin.h>

#include <tuple>
#include <utility>

#include "toolchain/softgpu/exec/machine.h"

// In front of a loop over lanes: no lane reads what another one writes, though arrays may be the same. GCC then leaves
// out its check for overlap; clang has no such word that is not also a demand to vectorise, and makes the check.
#ifdef __clang__
#define HPE_LANES_APART
#else
#define HPE_LANES_APART _Pragma("GCC ivdep")
#endif

namespace hpe::soft::exec {
namespace {

template <class T>
[[gnu::always_inline]] inline void blend(T* to, const T* from, std::uint32_t mask) {
    HPE_LANES_APART
    for (unsigned l = 0; l < lanes; l++) to[l] = ((mask >> l) & 1) != 0 ? from[l] : to[l];
}

// d = F(a, b, ...) in every lane of the mask. F is made from the instruction, so it can carry constants.
template <class F, class D, class... S, std::size_t... N>
[[gnu::always_inline]] inline const Instr* map_lanes(Warp& w, const Instr* i, std::uint32_t mask,
                                                     std::index_sequence<N...>) {
    const F f{*i};
    D* const d = w.template at<D>(i->dst);
    const std::tuple<const S*...> s{w.template at<const S>(i->src[N])...};
    alignas(64) D scratch[lanes];
    D* const out = mask == all_lanes ? d : scratch;
    HPE_LANES_APART
    for (unsigned l = 0; l < lanes; l++) out[l] = f(std::get<N>(s)[l]...);
    if (mask != all_lanes) blend(d, scratch, mask);
    return i + 1;
}

template <class F, class D, class... S>
const Instr* map(Warp& w, const Instr* i, std::uint32_t mask) {
    return map_lanes<F, D, S...>(w, i, mask, std::index_sequence_for<S...>{});
}

// Sets rounding and flushing for the time of one instruction. The clobbers keep the arithmetic between them.
class FloatingEnvironment {
public:
    [[gnu::always_inline]] explicit FloatingEnvironment(std::uint32_t control) : before_(_mm_getcsr()) {
        _mm_setcsr(control);
        asm volatile("" ::: "memory");
    }
    [[gnu::always_inline]] ~FloatingEnvironment() {
        asm volatile("" ::: "memory");
        _mm_setcsr(before_);
    }
    FloatingEnvironment(const FloatingEnvironment&) = delete;
    FloatingEnvironment& operator=(const FloatingEnvironment&) = delete;

private:
    unsigned before_;
};

// The same with the control word in Instr::mode.
template <class F, class D, class... S>
const Instr* map_environment(Warp& w, const Instr* i, std::uint32_t mask) {
    const FloatingEnvironment environment(i->mode);
    return map_lanes<F, D, S...>(w, i, mask, std::index_sequence_for<S...>{});
}

// Bit l of the result is the sign bit of lane l.
[[gnu::always_inline]] inline std::uint32_t pack(const std::uint32_t* lane) {
    std::uint32_t mask = 0;
#ifdef __AVX2__
    for (unsigned n = 0; n < 4; n++)
        mask |=
            static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_load_ps(reinterpret_cast<const float*>(lane + 8 * n))))
            << (8 * n);
#else
    for (unsigned n = 0; n < 8; n++)
        mask |= static_cast<std::uint32_t>(_mm_movemask_ps(_mm_load_ps(reinterpret_cast<const float*>(lane + 4 * n))))
                << (4 * n);
#endif
    return mask;
}

}  // namespace
}  // namespace hpe::soft::exec
