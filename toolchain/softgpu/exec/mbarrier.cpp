// SPDX-License-Identifier: MIT
// mbarrier objects (PTX ISA, "mbarrier"), bulk copies that report to them, and the part of a thread's stack that alloca
// takes.
//
// An mbarrier is 64 bits of shared memory whose meaning is ours: arrivals still pending, arrivals expected per phase,
// bytes still to come, and the phase, of which programs only ever see whether it is another one. Shared memory belongs
// to the one thread that runs the block, so nothing here is atomic.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/memory.h"

namespace hpe::soft::exec {
namespace {

constexpr std::uint64_t most_arrivals = (1u << 20) - 1;

struct Barrier64 {
    std::uint64_t pending, expected;
    std::int64_t bytes;  // announced and not there yet
    std::uint64_t phase;

    explicit Barrier64(std::uint64_t word)
        : pending(word & most_arrivals),
          expected(word >> 20 & most_arrivals),
          bytes(static_cast<std::int64_t>(word << 3) >> 43),
          phase(word >> 61) {}
    std::uint64_t word() const {
        return pending | expected << 20 | (static_cast<std::uint64_t>(bytes) & ((1u << 21) - 1)) << 40 |
               (phase & 7) << 61;
    }
    void complete_if_all_there() {
        if (pending != 0 || bytes != 0) return;
        phase++;
        pending = expected;
    }
};

template <class T>
T get(const std::byte* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class F>
void each_while(std::uint32_t mask, F f) {
    for (; mask != 0; mask &= mask - 1)
        if (!f(static_cast<unsigned>(__builtin_ctz(mask)))) return;
}

std::uint64_t address_of(const Warp& w, const Instr* i, unsigned l) {
    const std::uint64_t offset = i->imm + ((i->flags & flag_frame) != 0 ? w.frame->local_base : 0);
    if ((i->flags & flag_address32) != 0)
        return w.at<const std::uint32_t>(i->src[0])[l] + static_cast<std::uint32_t>(offset);
    return w.at<const std::uint64_t>(i->src[0])[l] + offset;
}

// The object at an address, which must be in this block's shared memory; nullptr: the launch failed.
std::byte* object_at(Warp& w, const Instr* i, unsigned l, std::uint64_t address, Memory memory) {
    if (address % 8 != 0) {
        fail_address(w, i, l, address, 8, true, true);
        return nullptr;
    }
    std::byte* const p = find_lane(w, l, address, {memory, 8, true});
    if (p < w.block->shared || p >= w.block->shared + w.block->launch->shared_bytes) {
        fail_address(w, i, l, address, 8, true, false);
        return nullptr;
    }
    return p;
}

bool arrive(Warp& w, const Instr* i, unsigned l, Barrier64& s, std::uint64_t count) {
    if (count == 0 || count > s.pending) {
        fail(w, i, Fault::IllegalInstruction, l, "an arrival that this phase of the mbarrier does not expect");
        return false;
    }
    s.pending -= count;
    s.complete_if_all_there();
    return true;
}

}  // namespace

// src[0]: address, src[1]: count of arrivals, src[2]: bytes; of waits src[1]: state or parity.
const Instr* run_mbarrier(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto operation = static_cast<Mbarrier>(i->mode);
    bool fine = true;
    each_while(mask, [&](unsigned l) {
        std::byte* const p = object_at(w, i, l, address_of(w, i, l), i->memory);
        fine = p != nullptr;
        if (!fine) return false;
        const auto before = get<std::uint64_t>(p);
        Barrier64 s(before);
        const std::uint64_t count = i->src[1] != 0 ? w.at<const std::uint32_t>(i->src[1])[l] : 1;
        const std::int64_t bytes = i->src[2] != 0 ? w.at<const std::int32_t>(i->src[2])[l] : 0;
        switch (operation) {
            case Mbarrier::Init:
                if (count == 0 || count > most_arrivals) {
                    fail(w, i, Fault::IllegalInstruction, l, "an mbarrier for this number of arrivals");
                    fine = false;
                }
                s = Barrier64(0);
                s.pending = s.expected = count & most_arrivals;
                break;
            case Mbarrier::Invalidate: break;
            case Mbarrier::ArriveDrop: s.expected -= s.expected < count ? s.expected : count; [[fallthrough]];
            case Mbarrier::Arrive:
                s.bytes += bytes;
                fine = arrive(w, i, l, s, count);
                break;
            case Mbarrier::Expect: s.bytes += bytes; break;
            case Mbarrier::Complete:
                s.bytes -= bytes;
                s.complete_if_all_there();
                break;
        }
        if (!fine) return false;
        const std::uint64_t after = s.word();
        std::memcpy(p, &after, sizeof after);
        if (i->count != 0) w.at<std::uint64_t>(i->dst)[l] = before;
        return true;
    });
    return fine ? i + 1 : nullptr;
}

const Instr* run_mbarrier_wait(Warp& w, const Instr* i, std::uint32_t mask) {
    bool fine = true;
    std::uint32_t over = 0;
    each_while(mask, [&](unsigned l) {
        const std::byte* const p = object_at(w, i, l, address_of(w, i, l), i->memory);
        fine = p != nullptr;
        if (!fine) return false;
        const Barrier64 s(get<std::uint64_t>(p));
        const bool parity = i->mode != 0;
        const bool done = parity ? (s.phase & 1) != (w.at<const std::uint32_t>(i->src[1])[l] & 1)
                                 : s.phase != Barrier64(w.at<const std::uint64_t>(i->src[1])[l]).phase;
        over |= (done ? 1u : 0u) << l;
        return true;
    });
    if (!fine) return nullptr;
    auto& d = *w.at<std::uint32_t>(i->dst);
    d = (d & ~mask) | over;
    if (over != mask) {  // someone else should run
        w.spins = true;
        if (w.budget > 2) w.budget = 2;
    }
    return i + 1;
}

const Instr* run_mbarrier_pending(Warp& w, const Instr* i, std::uint32_t mask) {
    each_while(mask, [&](unsigned l) {
        w.at<std::uint32_t>(i->dst)[l] =
            static_cast<std::uint32_t>(Barrier64(w.at<const std::uint64_t>(i->src[0])[l]).pending);
        return true;
    });
    return i + 1;
}

// src[0]: to, src[1]: from, src[2]: bytes, src[3]: the mbarrier, when the copy comes in; all addresses are sums.
const Instr* run_copy_bulk(Warp& w, const Instr* i, std::uint32_t mask) {
    const bool in = i->mode != 0;
    const auto address = [&](unsigned n, unsigned l, bool shared) {
        return shared && (i->flags & (flag_bulk32 << n)) != 0 ? w.at<const std::uint32_t>(i->src[n])[l]
                                                              : w.at<const std::uint64_t>(i->src[n])[l];
    };
    bool fine = true;
    each_while(mask, [&](unsigned l) {
        const std::uint32_t bytes = w.at<const std::uint32_t>(i->src[2])[l];
        const std::uint64_t to = address(0, l, in), from = address(1, l, !in);
        fine = false;
        if (bytes % 16 != 0) {
            fail(w, i, Fault::IllegalInstruction, l, "a bulk copy of bytes that are no multiple of 16");
            return false;
        }
        if ((to | from) % 16 != 0) {
            fail_address(w, i, l, to % 16 != 0 ? to : from, 16, to % 16 != 0, true);
            return false;
        }
        std::byte* const mbarrier =
            in ? object_at(w, i, l,
                           (i->flags & flag_bulk_mbarrier32) != 0 ? w.at<const std::uint32_t>(i->src[3])[l]
                                                                  : w.at<const std::uint64_t>(i->src[3])[l],
                           Memory::Shared)
               : nullptr;
        if (in && mbarrier == nullptr) return false;
        if (bytes != 0) {
            const std::uint64_t inside = in ? to : from, outside = in ? from : to;
            std::byte* const shared = find_lane(w, l, inside, {Memory::Shared, 1, in});
            std::byte* global = nullptr;
            const std::byte* const end = w.block->shared + w.block->launch->shared_bytes;
            if (shared == nullptr || shared >= end || bytes > static_cast<std::size_t>(end - shared)) {
                fail_address(w, i, l, inside, bytes, in, false);
                return false;
            }
            if (!find_global(*w.block->worker, outside, bytes, !in, global)) {
                fail_address(w, i, l, outside, bytes, !in, false);
                return false;
            }
            std::memcpy(in ? shared : global, in ? global : shared, bytes);
        }
        if (in) {
            Barrier64 s(get<std::uint64_t>(mbarrier));
            s.bytes -= bytes;
            s.complete_if_all_there();
            const std::uint64_t after = s.word();
            std::memcpy(mbarrier, &after, sizeof after);
        }
        fine = true;
        return true;
    });
    return fine ? i + 1 : nullptr;
}

// A frame's lanes share one top of the stack: what a lane does not need of it, it leaves unused.
const Instr* run_alloca(Warp& w, const Instr* i, std::uint32_t mask) {
    Frame& f = *w.frame;
    const std::uint64_t limit = w.block->launch->local_bytes, align = i->imm;
    const std::uint64_t base = f.local_base + f.code->local_bytes;
    std::uint64_t most = 0;
    each_while(mask, [&](unsigned l) {
        const std::uint64_t size =
            i->count == 8 ? w.at<const std::uint64_t>(i->src[0])[l] : w.at<const std::uint32_t>(i->src[0])[l];
        most = size > most ? size : most;
        return true;
    });
    const std::uint64_t at = (base + f.dynamic + align - 1) / align * align;
    if (most > limit || at + most > limit)
        return fail(w, i, Fault::IllegalAddress, static_cast<unsigned>(__builtin_ctz(mask)),
                    "the stack of a thread is full");
    f.dynamic = static_cast<std::uint32_t>((at + most + local_granule - 1) / local_granule * local_granule - base);
    each_while(mask, [&](unsigned l) {
        if (i->count == 8)
            w.at<std::uint64_t>(i->dst)[l] = at;
        else
            w.at<std::uint32_t>(i->dst)[l] = static_cast<std::uint32_t>(at);
        return true;
    });
    return i + 1;
}

const Instr* run_stack_save(Warp& w, const Instr* i, std::uint32_t mask) {
    each_while(mask, [&](unsigned l) {
        if (i->count == 8)
            w.at<std::uint64_t>(i->dst)[l] = w.frame->dynamic;
        else
            w.at<std::uint32_t>(i->dst)[l] = w.frame->dynamic;
        return true;
    });
    return i + 1;
}

const Instr* run_stack_restore(Warp& w, const Instr* i, std::uint32_t mask) {
    // Lanes that are elsewhere may still use what lies above.
    if (mask != w.frame->live) return i + 1;
    std::uint64_t top = 0;
    each_while(mask, [&](unsigned l) {
        const std::uint64_t v =
            i->count == 8 ? w.at<const std::uint64_t>(i->src[0])[l] : w.at<const std::uint32_t>(i->src[0])[l];
        top = v > top ? v : top;
        return true;
    });
    if (top < w.frame->dynamic) w.frame->dynamic = static_cast<std::uint32_t>(top);
    return i + 1;
}

}  // namespace hpe::soft::exec
