// SPDX-License-Identifier: MIT
// Translation of mbarrier, of asynchronous copies, and of alloca with its relatives. A copy is done when its
// instruction is, so that there is never anything to wait for.
#include <algorithm>

#include "toolchain/softgpu/exec/memory.h"
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {

// An address as a sum in a register of its own, for instructions that have more addresses than offsets.
std::uint32_t Translator::address_sum(const Draft& d) {
    const bool narrow = (d.i.flags & flag_address32) != 0;
    const std::uint32_t r = drafts_.make_register(narrow ? 4 : 8), by = drafts_.constant(d.i.imm, narrow ? 4 : 8);
    Draft& add = emit(handlers().integer(Op::Add, narrow ? Type::U32 : Type::U64));
    add.i.dst = r;
    add.i.src[0] = d.i.src[0];
    add.i.src[1] = by;
    add.roles = role_dst | role_src0 | role_src1;
    return r;
}

// A block is a cluster of its own, so its shared memory is all of the cluster's.
bool Translator::take_shared() { return has("shared") || has("shared::cta") || has("shared::cluster"); }

bool Translator::mbarrier() {
    const auto& o = now_->operands;
    const bool drop = has("arrive_drop"), arrives = drop || has("arrive");
    const bool tests = has("test_wait"), tries = has("try_wait");
    const bool expects = arrives && has("expect_tx");
    const bool parity = has("parity");
    for (const char* word : {"noComplete", "release", "acquire", "relaxed", "cta", "cluster"}) has(word);
    if (has("pending_count")) {
        if (take_type() != Type::B64 || !all_taken() || !operand_count(2)) return refuse("");
        const std::uint32_t state = source(o[1], 8), dst = destination(o[0], 4);
        Draft& d = emit(run_mbarrier_pending);
        d.i.dst = dst;
        d.i.src[0] = state;
        d.roles = role_dst | role_src0;
        return ok_;
    }
    Mbarrier operation = drop ? Mbarrier::ArriveDrop : Mbarrier::Arrive;
    if (!arrives && !tests && !tries) {
        if (has("init"))
            operation = Mbarrier::Init;
        else if (has("inval"))
            operation = Mbarrier::Invalidate;
        else if (has("expect_tx"))
            operation = Mbarrier::Expect;
        else if (has("complete_tx"))
            operation = Mbarrier::Complete;
        else
            return refuse("");
    }
    const Memory memory = take_shared() ? Memory::Shared : Memory::Generic;
    if (take_type() != Type::B64 || !all_taken()) return refuse("");
    Draft at;
    if (tests || tries) {
        if (!operand_count(3, tries ? 4 : 3) || !address(o[1], at, memory)) return false;
        const std::uint32_t state = source(o[2], parity ? 4 : 8), dst = predicate_destination(o[0]);
        Draft& d = emit(run_mbarrier_wait);
        d.i = at.i;
        d.i.run = run_mbarrier_wait;
        d.i.line = now_->line;
        d.i.guard = guard_;
        d.i.src[1] = state;
        d.i.dst = dst;
        d.i.mode = parity ? 1 : 0;
        watch(d, Watched::Kind::MbarrierWait, true, 8, 0);
        d.roles = role_dst | role_src0 | role_src1;
        return ok_;
    }
    const std::size_t first = arrives && !o.empty() && o[0].kind != Operand::Kind::Address ? 1 : 0;
    if (o.size() <= first || o.size() > first + 2 || !address(o[first], at, memory)) return refuse("");
    const bool more = o.size() == first + 2;
    const bool bytes = expects || operation == Mbarrier::Expect || operation == Mbarrier::Complete;
    if (operation == Mbarrier::Invalidate ? more : !more && (bytes || operation == Mbarrier::Init)) return refuse("");
    const std::uint32_t number = more ? source(o[first + 1], 4) : 0;
    const bool wanted = first == 1 && !(o[0].kind == Operand::Kind::Name && o[0].name == "_");
    const std::uint32_t dst = wanted ? destination(o[0], 8) : 0;
    Draft& d = emit(run_mbarrier);
    d.i = at.i;
    d.i.run = run_mbarrier;
    d.i.line = now_->line;
    d.i.guard = guard_;
    d.i.src[bytes ? 2 : 1] = number;
    d.i.dst = dst;
    d.i.mode = static_cast<std::uint16_t>(operation);
    d.i.count = wanted ? 1 : 0;
    watch(d, Watched::Kind::Mbarrier, operation != Mbarrier::Init && operation != Mbarrier::Invalidate, 8, 0);
    d.roles = static_cast<std::uint16_t>(role_src0 |
                                         (!more   ? 0
                                          : bytes ? role_src2
                                                  : role_src1) |
                                         (wanted ? role_dst : 0));
    return ok_;
}

// cp.async.mbarrier.arrive: all copies of the thread are done, so with .noinc it is an arrival, and without it is one
// that was announced by the same instruction.
bool Translator::copy_arrive() {
    if (!has("arrive")) return refuse("");
    const bool counts = has("noinc");
    const Memory memory = take_shared() ? Memory::Shared : Memory::Generic;
    if (take_type() != Type::B64 || !all_taken() || !operand_count(1)) return refuse("");
    Draft at;
    if (!address(now_->operands[0], at, memory)) return false;
    Draft& d = emit(run_mbarrier);
    d.i = at.i;
    d.i.run = run_mbarrier;
    d.i.line = now_->line;
    d.i.guard = guard_;
    d.i.mode = static_cast<std::uint16_t>(counts ? Mbarrier::Arrive : Mbarrier::Expect);  // of no bytes: nothing
    watch(d, Watched::Kind::Mbarrier, true, 8, 0);
    d.roles = role_src0;
    return ok_;
}

// Between global memory and the block's own shared memory. Tensors, prefetches and reductions are left out.
bool Translator::copy_bulk() {
    const auto& o = now_->operands;
    if (has("commit_group")) {
        if (!all_taken() || !operand_count(0)) return false;
        emit(run_nothing);
        return ok_;
    }
    if (has("wait_group")) {
        has("read");
        if (!all_taken() || !operand_count(1)) return false;
        emit(run_nothing);
        return ok_;
    }
    const auto& m = now_->modifiers;
    if (m.size() < 5) return refuse("");
    const bool in = m[3] == "global";
    if (!take_shared() || !has("global")) return refuse("");
    skip_memory_hints();
    if (!has(in ? "mbarrier::complete_tx::bytes" : "bulk_group")) return refuse("");
    if (!all_taken() || !operand_count(in ? 4 : 3)) return false;
    Draft to, from, mbarrier;
    if (!address(o[0], to, in ? Memory::Shared : Memory::Global) ||
        !address(o[1], from, in ? Memory::Global : Memory::Shared) || (in && !address(o[3], mbarrier, Memory::Shared)))
        return false;
    const std::uint32_t bytes = source(o[2], 4);
    const std::uint32_t target = address_sum(to), origin = address_sum(from), object = in ? address_sum(mbarrier) : 0;
    const auto narrow = [](const Draft& a) { return (a.i.flags & flag_address32) != 0; };
    Draft& d = emit(run_copy_bulk);
    d.i.src[0] = target;
    d.i.src[1] = origin;
    d.i.src[2] = bytes;
    d.i.src[3] = object;
    d.i.mode = in ? 1 : 0;
    d.i.flags = static_cast<std::uint8_t>((narrow(to) ? flag_bulk32 : 0) | (narrow(from) ? flag_bulk32 << 1 : 0) |
                                          (in && narrow(mbarrier) ? flag_bulk_mbarrier32 : 0));
    d.i.memory = Memory::Shared;
    watch(d, Watched::Kind::CopyBulk, false, 1, 0);
    d.roles = static_cast<std::uint16_t>(role_src0 | role_src1 | role_src2 | (in ? role_src3 : 0));
    return ok_;
}

bool Translator::stack(const std::string& op) {
    const auto& o = now_->operands;
    const unsigned bytes = ptx::size_of(take_type());
    if ((bytes != 4 && bytes != 8) || !all_taken()) return refuse("");
    allocates_ = true;
    const bool restores = op == "stackrestore";
    std::uint64_t alignment = local_granule;
    if (op == "alloca") {
        if (!operand_count(2, 3)) return false;
        if (o.size() == 3) {
            if (o[2].kind != Operand::Kind::Integer) return refuse("");
            alignment = std::max(alignment, static_cast<std::uint64_t>(o[2].value));
        }
        if ((alignment & (alignment - 1)) != 0 || alignment > 4096) return refuse("an alignment like this");
    } else if (!operand_count(1)) {
        return false;
    }
    const std::uint32_t from = op == "alloca" ? source(o[1], bytes) : restores ? source(o[0], bytes) : 0;
    const std::uint32_t dst = restores ? 0 : destination(o[0], bytes);
    Draft& d = emit(op == "alloca" ? run_alloca : restores ? run_stack_restore : run_stack_save);
    d.i.dst = dst;
    d.i.src[0] = from;
    d.i.imm = alignment;
    d.i.count = static_cast<std::uint16_t>(bytes);
    d.roles = static_cast<std::uint16_t>((restores ? 0 : role_dst) | (op == "stacksave" ? 0 : role_src0));
    return ok_;
}

}  // namespace hpe::soft::exec
