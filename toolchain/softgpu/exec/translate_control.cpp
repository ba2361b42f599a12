// SPDX-License-Identifier: MIT
// Translation of branches, calls, barriers and warp-wide instructions.
#include "toolchain/softgpu/exec/memory.h"
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {

bool Translator::branch() {
    has("uni");
    if (!all_taken() || !operand_count(1)) return false;
    const std::uint32_t label = find_label(now_->operands[0].name);
    if (!ok_) return false;
    Draft& d = drafts_.emit(guard_ == 0 ? run_branch : run_branch_if, now_->line);
    d.label = label;
    if (guard_ == 0) {
        d.ends = true;
    } else {
        d.i.src[0] = guard_ & ~1u;
        d.i.flags = (guard_ & 1) != 0 ? flag_negated : 0;
        d.roles = role_src0;
    }
    drafts_.leader();
    return true;
}

bool Translator::branch_table() {
    has("idx"), has("uni");
    if (!all_taken() || !operand_count(2)) return false;
    const std::uint32_t index = source(now_->operands[0], 4);
    const ptx::Directive* list = nullptr;
    for (const auto& s : scopes_)
        if (const auto at = s.directives.find(now_->operands[1].name); at != s.directives.end()) list = at->second;
    if (list == nullptr || list->name != "branchtargets") return wrong("a table of branch targets was expected");
    std::vector<std::uint32_t> labels;
    for (const auto& word : list->words)
        if (word != ",") labels.push_back(find_label(word));
    if (!ok_) return false;
    Draft& d = emit(run_branch_table);
    d.i.src[0] = index;
    d.roles = role_src0;
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    d.i.count = static_cast<std::uint16_t>(labels.size());
    drafts_.extras().resize(drafts_.extras().size() + labels.size());
    d.labels = labels;
    d.ends = true;
    drafts_.leader();
    return true;
}

// Arguments or results: .param variables of the caller, and where the callee expects them.
bool Translator::call_arguments(const Operand* list, std::vector<Copy>& copies, std::uint32_t& place) {
    if (list == nullptr) return true;
    for (const Operand& o : list->elements) {
        const Name* n = o.kind == Operand::Kind::Name ? find(o.name) : nullptr;
        if (n == nullptr || n->kind != Name::Kind::Local) return refuse("an argument that is no .param variable");
        copies.push_back({n->at, place, n->bytes});
        place += (n->bytes + local_granule - 1) / local_granule * local_granule;
    }
    return true;
}

bool Translator::call() {
    has("uni");
    if (!all_taken()) return false;
    std::size_t at = 0;
    const auto& o = now_->operands;
    const Operand* results = nullptr;
    const Operand* arguments = nullptr;
    if (at < o.size() && o[at].kind == Operand::Kind::List) results = &o[at++];
    if (at >= o.size() || o[at].kind != Operand::Kind::Name) return wrong("a function was expected");
    const Operand& target = o[at++];
    if (at < o.size() && o[at].kind == Operand::Kind::List) arguments = &o[at++];
    std::vector<Copy> in, out;
    std::uint32_t place = 0;
    if (!call_arguments(results, out, place) || !call_arguments(arguments, in, place)) return false;
    std::uint32_t number = 0, pointer = 0;
    const bool indirect = is_register(target);
    const ptx::Function* callee = nullptr;
    if (indirect) {
        pointer = source(target, 8);
        calls_indirectly_ = true;
    } else {
        const auto f = symbols_.functions.find(target.name);
        if (f == symbols_.functions.end()) return wrong("an unknown function: " + target.name);
        number = f->second;
        callee = symbols_.by_number[number];
        if (!callee->defined) {
            if (target.name == "vprintf" && in.size() == 2) {
                Draft& d = emit(run_vprintf);
                d.i.src[0] = in[0].from;
                d.i.src[1] = in[1].from;
                d.i.count = out.empty() ? 0 : 1;
                d.i.src[2] = out.empty() ? 0 : out[0].from;
                return ok_;
            }
            if (target.name == "__assertfail" && in.size() == 5) {
                Draft& d = emit(run_assertfail);
                d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
                for (const Copy& c : in) drafts_.extras().push_back(c.from);
                return ok_;
            }
            if ((target.name == "malloc" && in.size() == 1 && out.size() == 1) ||
                (target.name == "free" && in.size() == 1 && out.empty())) {
                Draft& d = emit(out.empty() ? run_device_free : run_device_malloc);
                d.i.src[0] = in[0].from;
                d.i.src[1] = out.empty() ? 0 : out[0].from;
                return ok_;
            }
            if (target.name == "cudaGraphSetConditional" && in.size() == 2 && out.empty()) {
                Draft& d = emit(run_set_conditional);
                d.i.src[0] = in[0].from;
                d.i.src[1] = in[1].from;
                return ok_;
            }
            return refuse("the function " + target.name +
                          (is_device_runtime_function(target.name) ? " of the device runtime"
                                                                   : ", which the module does not define"));
        }
        if (callee->entry) return refuse("a call of a kernel");
        bool matches = callee->results.size() == out.size() && callee->parameters.size() == in.size();
        for (std::size_t n = 0; matches && n < in.size(); n++) matches = callee->parameters[n].bytes() == in[n].bytes;
        for (std::size_t n = 0; matches && n < out.size(); n++) matches = callee->results[n].bytes() == out[n].bytes;
        if (!matches) return wrong("arguments that are not those of the function");
        callees_.push_back(number);
    }
    Draft& d = emit(indirect ? run_call_indirect : run_call);
    d.i.imm = number;
    d.i.src[0] = pointer;
    d.i.count = static_cast<std::uint16_t>(in.size());
    d.roles = indirect ? role_src0 : 0;
    auto& extras = drafts_.extras();
    d.i.extra = static_cast<std::uint32_t>(extras.size());
    const auto add = [&](const std::vector<Copy>& copies) {
        for (const Copy& c : copies) {
            extras.push_back(c.from);
            extras.push_back(c.to);
            extras.push_back(c.bytes);
        }
    };
    add(in);
    extras.push_back(static_cast<std::uint32_t>(out.size()));
    add(out);
    drafts_.leader();
    return ok_;
}

bool Translator::barrier() {
    const auto& o = now_->operands;
    has("cta");
    const bool aligned = has("aligned") || now_->opcode == "bar";
    if (has("warp")) {
        if (!has("sync") || !all_taken() || !operand_count(1)) return refuse("");
        const std::uint32_t members = source(o[0], 4);
        Draft& d = emit(collective_handler(Collective::Barrier));
        d.i.src[3] = members;
        d.roles = role_src3;
        drafts_.leader();
        return ok_;
    }
    const bool sync = has("sync"), arrive = has("arrive"), red = has("red");
    const bool popc = has("popc"), all = has("and"), any = has("or");
    if (red) take_type();
    if (!all_taken() || (sync ? 1 : 0) + (arrive ? 1 : 0) + (red ? 1 : 0) != 1) return refuse("");
    const std::size_t first = red ? 1 : 0, last = red ? o.size() - 1 : o.size();
    if (o.size() < first + 1 || last < first + 1) return wrong("a wrong number of operands");
    const std::uint32_t number = source(o[first], 4);
    const std::uint32_t expected = last > first + 1 ? source(o[first + 1], 4) : 0;
    if (arrive && expected == 0) return wrong("bar.arrive without a number of threads");
    bool negated = false;
    const std::uint32_t p = red ? predicate_source(o.back(), negated) : 0;
    const std::uint32_t dst = !red ? 0 : popc ? destination(o[0], 4) : predicate_destination(o[0]);
    if (red && !popc && !all && !any) return refuse("");
    Draft& d = emit(run_barrier);
    d.i.src[0] = number;
    d.i.src[1] = expected;
    d.i.src[2] = p;
    d.i.dst = dst;
    d.i.mode = arrive ? barrier_arrive : !red ? barrier_sync : popc ? barrier_popc : all ? barrier_and : barrier_or;
    d.i.flags = static_cast<std::uint8_t>((negated ? flag_negated : 0) | (aligned ? flag_aligned : 0));
    d.roles =
        static_cast<std::uint16_t>(role_src0 | (expected != 0 ? role_src1 : 0) | (red ? role_src2 | role_dst : 0));
    drafts_.leader();
    return ok_;
}

bool Translator::collective(const std::string& op) {
    const auto& o = now_->operands;
    if (op == "activemask") {
        take_type();
        if (!all_taken() || !operand_count(1)) return false;
        const std::uint32_t dst = destination(o[0], 4);
        Draft& d = emit(run_activemask);
        d.i.dst = dst;
        d.roles = role_dst;
        return ok_;
    }
    if (!has("sync")) return refuse("without .sync");
    struct Form {
        const char* name;
        Collective kind;
    };
    Collective kind{};
    Type t = Type::None;
    if (op == "shfl") {
        kind = has("up")     ? Collective::ShflUp
               : has("down") ? Collective::ShflDown
               : has("bfly") ? Collective::ShflBfly
                             : Collective::ShflIdx;
        has("idx");
        t = take_type();
        if (!all_taken() || !operand_count(5)) return false;
    } else if (op == "vote") {
        kind = has("all")   ? Collective::VoteAll
               : has("any") ? Collective::VoteAny
               : has("uni") ? Collective::VoteUni
                            : Collective::VoteBallot;
        has("ballot");
        t = take_type();
        if (!all_taken() || !operand_count(3)) return false;
    } else if (op == "match") {
        const bool any = has("any");
        has("all");
        t = take_type();
        const bool wide = ptx::size_of(t) == 8;
        kind = any ? (wide ? Collective::MatchAny64 : Collective::MatchAny32)
                   : (wide ? Collective::MatchAll64 : Collective::MatchAll32);
        if (!all_taken() || !operand_count(3)) return false;
    } else if (op == "redux") {
        const bool add = has("add"), low = has("min"), high = has("max"), all = has("and"), any = has("or");
        has("xor");
        t = take_type();
        const bool sign = t == Type::S32;
        kind = add    ? Collective::ReduxAdd
               : low  ? (sign ? Collective::ReduxMinS : Collective::ReduxMinU)
               : high ? (sign ? Collective::ReduxMaxS : Collective::ReduxMaxU)
               : all  ? Collective::ReduxAnd
               : any  ? Collective::ReduxOr
                      : Collective::ReduxXor;
        if (ptx::size_of(t) != 4 || t == Type::F32) return refuse("");
        if (!all_taken() || !operand_count(3)) return false;
    } else {
        kind = Collective::Elect;
        if (!all_taken() || !operand_count(2)) return false;
    }
    // d or d|p
    const Operand& to = o[0];
    const Operand& value = to.kind == Operand::Kind::Pair ? to.elements[0] : to;
    const bool vote_bit = kind >= Collective::VoteAll && kind <= Collective::VoteUni;
    const bool sink = value.kind == Operand::Kind::Name && value.name == "_";
    const std::uint32_t dst = vote_bit ? predicate_destination(value) : destination(value, 4);
    const std::uint32_t also = to.kind == Operand::Kind::Pair ? predicate_destination(to.elements[1]) : 0;
    std::uint32_t refs[3] = {};
    bool negated = false;
    std::uint16_t roles = role_src3;
    if (op == "shfl") {
        for (unsigned n = 0; n < 3; n++) refs[n] = source(o[n + 1], 4);
        roles |= role_src0 | role_src1 | role_src2;
    } else if (op == "vote") {
        refs[0] = predicate_source(o[1], negated);
        roles |= role_src0;
    } else if (op != "elect") {
        refs[0] = source(o[1], ptx::size_of(t));
        roles |= role_src0;
    }
    const std::uint32_t members = source(o.back(), 4);
    Draft& d = emit(collective_handler(kind));
    d.i.dst = dst;
    for (unsigned n = 0; n < 3; n++) d.i.src[n] = refs[n];
    d.i.src[3] = members;
    d.i.extra = also;
    d.i.count = sink ? 0 : 1;
    d.i.flags = negated ? flag_negated : 0;
    d.roles = static_cast<std::uint16_t>(roles | role_dst | (also != 0 ? role_extra_def : 0));
    drafts_.leader();
    return ok_;
}

bool Translator::fence_or_hint(const std::string& op) {
    if (op == "membar" || op == "fence") {
        for (const char* word : {"gl", "cta", "cluster", "gpu", "sys", "sc", "acq_rel", "acquire", "release"})
            has(word);
        if (!all_taken() || !operand_count(0)) return false;
        emit(run_fence);
        return ok_;
    }
    if (op == "griddepcontrol") {
        // Launches of one stream run one after the other here, so what a kernel waits for has already ended.
        has("wait"), has("launch_dependents");
        if (!all_taken()) return false;
        emit(run_fence);
        return ok_;
    }
    if (op == "nanosleep") {
        take_type();
        if (!all_taken()) return false;
        emit(run_sleep);
        return ok_;
    }
    emit(run_nothing);  // discard, which leaves the bytes open, prefetch, pmevent, applypriority: no value depends on
                        // them
    return ok_;
}

}  // namespace hpe::soft::exec
