// SPDX-License-Identifier: MIT
// Translation of 128-bit loads, stores and atomics, and of fns.
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {
namespace {

void take_address(Draft& d, const Draft& at) {
    d.i.memory = at.i.memory;
    d.i.imm = at.i.imm;
    d.i.src[0] = at.i.src[0];
    d.i.flags = at.i.flags;
}

}  // namespace

// As two halves. Within this device they are one access: a block runs on one thread, and what other threads may change
// at the same time is for atomics.
bool Translator::load_128(const Draft& at) {
    const std::vector<std::uint32_t> halves = {drafts_.make_register(8), drafts_.make_register(8)};
    Draft& d = emit(handlers().load(Type::B64, 8));
    take_address(d, at);
    d.i.count = 2;
    watch(d, Watched::Kind::Load, (at.i.flags & flag_synchronises) != 0, 8, 8);
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), halves.begin(), halves.end());
    d.roles = role_src0 | role_extras_def;
    pack_into(now_->operands[0], 16, halves);
    return ok_;
}

bool Translator::store_128(const Draft& at) {
    const auto halves = unpacked(now_->operands[1], 16, 8);
    Draft& d = emit(handlers().store(Type::B64, 8));
    take_address(d, at);
    d.i.count = 2;
    watch(d, Watched::Kind::Store, (at.i.flags & flag_synchronises) != 0, 8, 8);
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), halves.begin(), halves.end());
    d.roles = role_src0 | role_extras_use;
    return ok_;
}

bool Translator::atomic_128(bool compares, bool result, Memory memory) {
    if (!compares && !now_->has("exch")) return refuse("");
    const auto& o = now_->operands;
    if (!result || !all_taken() || !operand_count(compares ? 4 : 3)) return refuse("");
    Draft at;
    if (!address(o[1], at, memory)) return false;
    const std::uint32_t b = source(o[2], 16), c = compares ? source(o[3], 16) : 0, dst = destination(o[0], 16);
    Draft& d = emit(run_atomic_128);
    take_address(d, at);
    d.i.src[1] = b;
    d.i.src[2] = c;
    d.i.dst = dst;
    d.i.mode = compares ? 1 : 0;
    watch(d, Watched::Kind::Atomic, true, 16, 16);
    d.roles = static_cast<std::uint16_t>(role_dst | role_src0 | role_src1 | (compares ? role_src2 : 0));
    return ok_;
}

bool Translator::find_nth_set(const std::string&) {
    if (take_type() != Type::B32) return refuse("");
    return simple(run_fns, Type::B32, {Type::B32, Type::B32, Type::S32});
}

}  // namespace hpe::soft::exec
