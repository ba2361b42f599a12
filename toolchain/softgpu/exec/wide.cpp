// SPDX-License-Identifier: MIT
// 128-bit moves and atomics, and fns: what is too rare to be compiled for several instruction sets.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/resolve.h"

namespace hpe::soft::exec {
namespace {

__extension__ using Word128 = unsigned __int128;

// Every processor that runs 64-bit systems of today has this instruction; compilers call a library for it unless told
// so.
Word128 compare_and_swap(std::byte* where, Word128 expected, Word128 desired) {
    auto low = static_cast<std::uint64_t>(expected), high = static_cast<std::uint64_t>(expected >> 64);
    asm volatile("lock cmpxchg16b %0"
                 : "+m"(*reinterpret_cast<Word128*>(where)), "+a"(low), "+d"(high)
                 : "b"(static_cast<std::uint64_t>(desired)), "c"(static_cast<std::uint64_t>(desired >> 64))
                 : "cc", "memory");
    return Word128{high} << 64 | low;
}

}  // namespace

const Instr* run_move_128(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto* a = w.at<const Word128>(i->src[0]);
    auto* d = w.at<Word128>(i->dst);
    each(mask, [&](unsigned l) { d[l] = a[l]; });
    return i + 1;
}

const Instr* run_atomic_128(Warp& w, const Instr* i, std::uint32_t mask) {
    Resolved at;
    if (!resolve(w, i, mask, sizeof(Word128), true, at)) return nullptr;
    w.spins = true;
    const auto* b = w.at<const Word128>(i->src[1]);
    const auto* c = i->mode != 0 ? w.at<const Word128>(i->src[2]) : b;
    auto* d = w.at<Word128>(i->dst);
    each(mask, [&](unsigned l) {
        std::byte* const where = at.first != nullptr ? at.first + l * sizeof(Word128) : at.host[l];
        if (i->mode != 0) {
            d[l] = compare_and_swap(where, b[l], c[l]);
            return;
        }
        const Word128 value = b[l];
        Word128 old = 0;
        for (Word128 seen = 0; (seen = compare_and_swap(where, old, value)) != old;) old = seen;
        d[l] = old;
    });
    return i + 1;
}

// The n-th set bit from a position, up or down.
const Instr* run_fns(Warp& w, const Instr* i, std::uint32_t mask) {
    each(mask, [&](unsigned l) {
        const std::uint32_t bits = w.at<const std::uint32_t>(i->src[0])[l];
        const std::uint32_t base = w.at<const std::uint32_t>(i->src[1])[l];
        const std::int32_t offset = w.at<const std::int32_t>(i->src[2])[l];
        std::uint32_t found = all_lanes;
        if (offset == 0) {
            if (base < 32 && ((bits >> base) & 1) != 0) found = base;
        } else {
            std::int64_t left = offset < 0 ? -std::int64_t{offset} : std::int64_t{offset};
            for (std::int64_t at = base; at >= 0 && at < 32 && found == all_lanes; at += offset < 0 ? -1 : 1)
                if (((bits >> at) & 1) != 0 && --left == 0) found = static_cast<std::uint32_t>(at);
        }
        w.at<std::uint32_t>(i->dst)[l] = found;
    });
    return i + 1;
}

}  // namespace hpe::soft::exec
