// SPDX-License-Identifier: MIT
// Control flow (PTX ISA, "Control Flow Instructions"): branches, calls, exits, predicates and special registers: what
// works on masks and groups rather than on lanes' values.
#include <ctime>

#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/memory.h"
#include "toolchain/softgpu/exec/scheduler.h"

namespace hpe::soft::exec {
namespace {

const Instr* jump(const Instr* i, std::uint64_t distance) { return i + static_cast<std::int64_t>(distance); }

void park(Warp& w, const Instr* pc, std::uint32_t mask) {
    Group& g = w.groups.emplace_back();
    g.pc = pc;
    g.frame = w.frame;
    g.mask = mask;
    g.last_run = w.clock;
}

std::uint64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

const Instr* enter(Warp& w, const Instr* i, std::uint32_t mask, const Code* callee) {
    Frame* const caller = w.frame;
    const std::uint32_t base = caller->local_base + caller->code->local_bytes + caller->dynamic;
    if (base + callee->local_bytes > w.block->launch->local_bytes)
        return fail(w, i, Fault::IllegalAddress, static_cast<unsigned>(__builtin_ctz(mask)),
                    "the stack of a thread is full");
    Frame* const f = take_frame(w, *callee);
    f->parent = caller;
    f->call = i;
    f->live = mask;
    f->depth = caller->depth + 1;
    f->local_base = base;
    f->dynamic = 0;
    const std::uint32_t* copy = caller->code->extras.data() + i->extra;
    for (std::uint32_t n = 0; n < i->count; n++, copy += 3)
        copy_local(w, mask, caller->local_base + copy[0], base + copy[1], copy[2]);
    w.frame = f;
    w.base[0] = f->registers;
    w.base[1] = const_cast<std::byte*>(callee->constants.data());
    return w.leave(Stop::Reschedule, callee->instructions.data());
}

}  // namespace

void copy_local(Warp& w, std::uint32_t mask, std::uint32_t from, std::uint32_t to, std::uint32_t bytes) {
    for (std::uint32_t at = 0; at < bytes; at += local_granule)
        for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
            const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
            std::memcpy(w.local + local_offset(to + at, l), w.local + local_offset(from + at, l), local_granule);
        }
}

const Instr* run_leader(Warp& w, const Instr* i, std::uint32_t mask) {
    if (--w.budget < 0 || (w.join != nullptr && i >= w.join)) {
        if (w.block->launch->failed.load(std::memory_order_relaxed)) return w.leave(Stop::Fault, i);
        if (w.join != nullptr && i >= w.join) return w.leave(Stop::Reschedule, i);
        // Others wait at a later place. Let this group go on for long, unless it may be waiting for them.
        if (!w.groups.empty() && !w.spins && ++w.extensions < 256) {
            w.budget = 16;
        } else {
            w.expired = true;
            return w.leave(Stop::Reschedule, i);
        }
    }
    w.executed += i->imm * static_cast<unsigned>(__builtin_popcount(mask));
    return i + 1;
}

const Instr* run_branch(Warp&, const Instr* i, std::uint32_t) { return jump(i, i->imm); }

const Instr* run_branch_if(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t p = w.predicate(i->src[0]) ^ ((i->flags & flag_negated) != 0 ? all_lanes : 0);
    const std::uint32_t taken = p & mask;
    if (taken == mask) return jump(i, i->imm);
    if (taken == 0) return i + 1;
    park(w, jump(i, i->imm), taken);
    w.mask = mask & ~taken;
    return w.leave(Stop::Reschedule, i + 1);
}

const Instr* run_branch_table(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto* index = w.at<const std::uint32_t>(i->src[0]);
    const std::uint32_t* table = w.frame->code->extras.data() + i->extra;
    if (w.mask != mask) park(w, i + 1, w.mask & ~mask);
    w.mask = mask;
    for (std::uint32_t rest = mask; rest != 0;) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        if (index[l] >= i->count) return fail(w, i, Fault::IllegalInstruction, l, "a branch beyond its table");
        std::uint32_t same = 0;
        for (unsigned k = 0; k < lanes; k++)
            if (((rest >> k) & 1) != 0 && index[k] == index[l]) same |= 1u << k;
        const Instr* target = i + static_cast<std::int32_t>(table[index[l]]);
        if (same == mask) return target;
        park(w, target, same);
        rest &= ~same;
    }
    w.mask = 0;
    return w.leave(Stop::Reschedule, i);
}

const Instr* run_exit(Warp& w, const Instr* i, std::uint32_t mask) {
    w.exited |= mask;
    w.block->live_threads -= static_cast<unsigned>(__builtin_popcount(mask));
    for (Frame* f = w.frame; f != nullptr;) {
        Frame* const parent = f->parent;
        f->live &= ~mask;
        if (f->live == 0 && parent != nullptr) give_frame(w, f);
        f = parent;
    }
    w.mask &= ~mask;  // of a guarded exit the others go on
    if (w.mask != 0) return w.leave(Stop::Reschedule, i + 1);
    return w.leave(Stop::Done, i);
}

const Instr* run_return(Warp& w, const Instr* i, std::uint32_t mask) {
    Frame* const f = w.frame;
    if (f->parent == nullptr) return run_exit(w, i, mask);
    const Instr* const call = f->call;
    Frame* const caller = f->parent;
    const std::uint32_t* copy = caller->code->extras.data() + call->extra + 3u * call->count;
    const std::uint32_t results = *copy++;
    for (std::uint32_t n = 0; n < results; n++, copy += 3)
        copy_local(w, mask, f->local_base + copy[1], caller->local_base + copy[0], copy[2]);
    f->live &= ~mask;
    if (f->live == 0) give_frame(w, f);
    if (w.mask != mask) park(w, i + 1, w.mask & ~mask);
    w.mask = mask;
    w.frame = caller;
    return w.leave(Stop::Reschedule, call + 1);
}

const Instr* run_call(Warp& w, const Instr* i, std::uint32_t mask) {
    const Code* callee = w.block->launch->program->code(i->imm);
    if (callee == nullptr) return fail(w, i, Fault::IllegalInstruction, 0, "a call of nothing");
    if (w.mask != mask) park(w, i + 1, w.mask & ~mask);
    w.mask = mask;
    return enter(w, i, mask, callee);
}

const Instr* run_call_indirect(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto* target = w.at<const std::uint64_t>(i->src[0]);
    if (w.mask != mask) park(w, i + 1, w.mask & ~mask);
    // One target after the other: the other lanes come back to this instruction.
    const auto first = static_cast<unsigned>(__builtin_ctz(mask));
    std::uint32_t same = 0;
    for (unsigned l = 0; l < lanes; l++)
        if (((mask >> l) & 1) != 0 && target[l] == target[first]) same |= 1u << l;
    if (same != mask) park(w, i, mask & ~same);
    w.mask = same;
    const std::uint64_t address = target[first];
    const Code* callee = nullptr;
    if ((address >> window_shift) == (code_window >> window_shift) && (address & 15) == 0)
        callee = w.block->launch->program->code((address - code_window) / 16);
    if (callee == nullptr || callee->entry)
        return fail(w, i, Fault::IllegalInstruction, first, "a call through a pointer that is no function");
    // What the caller passes must be what the function takes.
    const std::uint32_t* copy = w.frame->code->extras.data() + i->extra;
    bool matches = i->count == callee->parameter_at.size() && copy[3u * i->count] == callee->result_at.size();
    for (std::uint32_t n = 0; matches && n < i->count; n++)
        matches = copy[3 * n + 1] == callee->parameter_at[n] && copy[3 * n + 2] == callee->parameter_size[n];
    if (!matches) return fail(w, i, Fault::IllegalInstruction, first, "a call of a function with other parameters");
    return enter(w, i, same, callee);
}

const Instr* run_trap(Warp& w, const Instr* i, std::uint32_t mask) {
    return fail(w, i, Fault::Trap, static_cast<unsigned>(__builtin_ctz(mask)), "trap");
}

const Instr* run_nothing(Warp&, const Instr* i, std::uint32_t) { return i + 1; }

const Instr* run_sleep(Warp& w, const Instr* i, std::uint32_t) {
    w.spins = true;
    if (w.budget > 2) w.budget = 2;  // someone else should run
    return i + 1;
}

const Instr* run_fence(Warp&, const Instr* i, std::uint32_t) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return i + 1;
}

const Instr* run_activemask(Warp& w, const Instr* i, std::uint32_t mask) {
    auto* d = w.at<std::uint32_t>(i->dst);
    for (unsigned l = 0; l < lanes; l++)
        if (((mask >> l) & 1) != 0) d[l] = mask;
    return i + 1;
}

const Instr* run_local_address(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint64_t address = i->imm + w.frame->local_base;
    for (unsigned l = 0; l < lanes; l++) {
        if (((mask >> l) & 1) == 0) continue;
        if (i->count == 4)
            w.at<std::uint32_t>(i->dst)[l] = static_cast<std::uint32_t>(address);
        else
            w.at<std::uint64_t>(i->dst)[l] = address;
    }
    return i + 1;
}

const Instr* run_isspace(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto* a = w.at<const std::uint64_t>(i->src[0]);
    std::uint32_t hit = 0;
    for (unsigned l = 0; l < lanes; l++) {
        const std::uint64_t window = a[l] >> window_shift << window_shift;
        bool is = false;
        switch (i->memory) {
            case Memory::Shared: is = window == shared_window; break;
            case Memory::Local: is = window == local_window; break;
            case Memory::Param: is = window == param_window; break;
            default: is = window != shared_window && window != local_window && window != param_window; break;
        }
        hit |= (is ? 1u : 0u) << l;
    }
    auto& d = *w.at<std::uint32_t>(i->dst);
    d = (d & ~mask) | (hit & mask);
    return i + 1;
}

// Several registers into the parts of one, and back. imm: bytes of a part, count: parts.
const Instr* run_pack(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t* part = w.frame->code->extras.data() + i->extra;
    const std::size_t bytes = i->imm, whole = bytes * i->count, in_register = bytes == 1 ? 2 : bytes;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<std::size_t>(__builtin_ctz(rest));
        std::byte value[16];
        for (unsigned k = 0; k < i->count; k++)
            std::memcpy(value + k * bytes, w.at<const std::byte>(part[k]) + l * in_register, bytes);
        std::memcpy(w.at<std::byte>(i->dst) + l * whole, value, whole);
    }
    return i + 1;
}

const Instr* run_unpack(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t* part = w.frame->code->extras.data() + i->extra;
    const std::size_t bytes = i->imm, whole = bytes * i->count, in_register = bytes == 1 ? 2 : bytes;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<std::size_t>(__builtin_ctz(rest));
        std::byte value[16] = {};
        std::memcpy(value, w.at<const std::byte>(i->src[0]) + l * whole, whole);
        for (unsigned k = 0; k < i->count; k++) {
            std::byte* const to = w.at<std::byte>(part[k]) + l * in_register;
            std::memset(to, 0, in_register);  // a byte lies in a register of two
            std::memcpy(to, value + k * bytes, bytes);
        }
    }
    return i + 1;
}

const Instr* run_special(Warp& w, const Instr* i, std::uint32_t mask) {
    const LaunchState& launch = *w.block->launch;
    const Block& block = *w.block;
    std::uint64_t v = 0;
    alignas(64) std::uint64_t value[lanes];
    const auto per_lane = [&](auto f) {
        for (unsigned l = 0; l < lanes; l++) value[l] = f(l);
    };
    bool uniform = true;
    const auto special = static_cast<Special>(i->mode);
    switch (special) {
        case Special::TidX:
        case Special::TidY:
        case Special::TidZ:
            per_lane([&](unsigned l) { return w.tid[i->mode - static_cast<unsigned>(Special::TidX)][l]; });
            uniform = false;
            break;
        case Special::Laneid: per_lane([](unsigned l) { return l; }), uniform = false; break;
        case Special::LanemaskEq: per_lane([](unsigned l) { return 1u << l; }), uniform = false; break;
        case Special::LanemaskLt: per_lane([](unsigned l) { return (1u << l) - 1; }), uniform = false; break;
        case Special::LanemaskLe: per_lane([](unsigned l) { return (2u << l) - 1; }), uniform = false; break;
        case Special::LanemaskGt: per_lane([](unsigned l) { return ~((2u << l) - 1); }), uniform = false; break;
        case Special::LanemaskGe: per_lane([](unsigned l) { return ~((1u << l) - 1); }), uniform = false; break;
        case Special::NtidX: v = launch.block.x; break;
        case Special::NtidY: v = launch.block.y; break;
        case Special::NtidZ: v = launch.block.z; break;
        case Special::CtaidX: v = block.id.x; break;
        case Special::CtaidY: v = block.id.y; break;
        case Special::CtaidZ: v = block.id.z; break;
        case Special::NctaidX: v = launch.grid.x; break;
        case Special::NctaidY: v = launch.grid.y; break;
        case Special::NctaidZ: v = launch.grid.z; break;
        case Special::Warpid: v = w.index; break;
        case Special::Nwarpid: v = 64; break;
        case Special::Smid: v = 0; break;
        case Special::Nsmid: v = 1; break;
        case Special::Gridid: v = launch.launch_id; break;
        case Special::Clock:
        case Special::Clock64: v = now_ns() - launch.started_ns; break;
        case Special::ClockHi: v = (now_ns() - launch.started_ns) >> 32; break;
        case Special::Globaltimer: v = now_ns(); break;
        case Special::GlobaltimerLo: v = now_ns() & 0xffffffffu; break;
        case Special::GlobaltimerHi: v = now_ns() >> 32; break;
        case Special::Envreg1: v = launch.cooperative ? workspace_window >> 32 : 0; break;
        case Special::Envreg2: v = launch.cooperative ? workspace_window & 0xffffffffu : 0; break;
        case Special::ReservedShared: v = launch.reserved_at; break;
        case Special::DynamicShared: v = launch.dynamic_shared; break;
        case Special::TotalShared: v = launch.shared_bytes; break;
        case Special::WarpSize: v = lanes; break;
        case Special::One: v = 1; break;
        case Special::EnvregZero:
        case Special::Zero: v = 0; break;
    }
    if (uniform) per_lane([&](unsigned) { return v; });
    for (unsigned l = 0; l < lanes; l++) {
        if (((mask >> l) & 1) == 0) continue;
        if (i->count == 2)
            w.at<std::uint16_t>(i->dst)[l] = static_cast<std::uint16_t>(value[l]);
        else if (i->count == 4)
            w.at<std::uint32_t>(i->dst)[l] = static_cast<std::uint32_t>(value[l]);
        else
            w.at<std::uint64_t>(i->dst)[l] = value[l];
    }
    return i + 1;
}

namespace {
template <Op O>
const Instr* run_predicate(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t a = w.predicate(i->src[0]) ^ ((i->flags & flag_negated) != 0 ? all_lanes : 0);
    std::uint32_t r = a;
    if (O == Op::And) r = a & w.predicate(i->src[1]);
    if (O == Op::Or) r = a | w.predicate(i->src[1]);
    if (O == Op::Xor) r = a ^ w.predicate(i->src[1]);
    if (O == Op::Not) r = ~a;
    auto& d = *w.at<std::uint32_t>(i->dst);
    d = (d & ~mask) | (r & mask);
    return i + 1;
}
}  // namespace

Handler predicate_handler(Op op) {
    switch (op) {
        case Op::Mov: return run_predicate<Op::Mov>;
        case Op::And: return run_predicate<Op::And>;
        case Op::Or: return run_predicate<Op::Or>;
        case Op::Xor: return run_predicate<Op::Xor>;
        case Op::Not: return run_predicate<Op::Not>;
        default: return nullptr;
    }
}

}  // namespace hpe::soft::exec
