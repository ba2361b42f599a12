// SPDX-License-Identifier: MIT
// Warp-wide instructions (PTX ISA, "Parallel Synchronization and Communication Instructions"): shfl, vote, match,
// redux, bar.warp.sync, elect. Each lane names the lanes it works with; an instruction runs when all of these that have
// not exited are at it, even if they came there on different paths.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/races.h"

#include "toolchain/softgpu/exec/scheduler.h"

namespace hpe::soft::exec {
namespace {

// Operands of lanes that may be in different frames, even in different functions. src[3] is the member mask.
struct Gather {
    const Instr* instr[lanes];
    std::byte* base[lanes][2];
    std::uint32_t members[lanes];

    template <class T>
    T& at(std::uint32_t ref, unsigned l) const {
        return reinterpret_cast<T*>(base[l][ref & 1] + (ref & ~1u))[l];
    }
    std::uint32_t& word(std::uint32_t ref, unsigned l) const {
        return *reinterpret_cast<std::uint32_t*>(base[l][ref & 1] + (ref & ~1u));
    }
    std::uint32_t source(unsigned n, unsigned l) const { return at<std::uint32_t>(instr[l]->src[n], l); }
    bool predicate(unsigned n, unsigned l) const {
        return (((word(instr[l]->src[n], l) >> l) & 1) != 0) != ((instr[l]->flags & flag_negated) != 0);
    }
    void put_predicate(std::uint32_t ref, unsigned l, bool value) const {
        if (ref == 0) return;
        auto& d = word(ref, l);
        d = (d & ~(1u << l)) | (value ? 1u << l : 0);
    }
    void add(const Warp& w, const Instr* i, std::uint32_t mask, Frame* frame) {
        for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
            const auto l = static_cast<unsigned>(__builtin_ctz(rest));
            instr[l] = i;
            base[l][0] = frame->registers;
            base[l][1] = const_cast<std::byte*>(frame->code->constants.data());
            members[l] = at<std::uint32_t>(i->src[3], l) & ~w.exited;
        }
    }
};

template <Collective C>
void shuffle(const Gather& g, std::uint32_t mask) {
    std::uint32_t value[lanes] = {}, result[lanes] = {};
    each(mask, [&](unsigned l) { value[l] = g.source(0, l); });
    each(mask, [&](unsigned l) {
        const std::uint32_t b = g.source(1, l) & 31, c = g.source(2, l);
        const std::uint32_t clamp = c & 31, segment = (c >> 8) & 31;
        const std::uint32_t last = (l & segment) | (clamp & ~segment), first = l & segment;
        std::int32_t from = 0;
        bool inside = false;
        const auto lane = static_cast<std::int32_t>(l), distance = static_cast<std::int32_t>(b);
        switch (C) {
            case Collective::ShflUp:
                from = lane - distance;
                inside = from >= static_cast<std::int32_t>(last);
                break;
            case Collective::ShflDown:
                from = lane + distance;
                inside = from <= static_cast<std::int32_t>(last);
                break;
            case Collective::ShflBfly:
                from = lane ^ distance;
                inside = from <= static_cast<std::int32_t>(last);
                break;
            default:
                from = static_cast<std::int32_t>(first | (b & ~segment));
                inside = from <= static_cast<std::int32_t>(last);
        }
        // A lane that does not take part has no value to give. PTX leaves the result open; the hardware's is 0, and
        // reductions over fewer lanes than a warp rely on it.
        result[l] = value[inside ? static_cast<unsigned>(from) : l];
        g.put_predicate(g.instr[l]->extra, l, inside);
    });
    each(mask, [&](unsigned l) {
        if (g.instr[l]->count != 0) g.at<std::uint32_t>(g.instr[l]->dst, l) = result[l];
    });
}

template <Collective C>
void vote(const Gather& g, std::uint32_t mask) {
    std::uint32_t yes = 0;
    each(mask, [&](unsigned l) { yes |= g.predicate(0, l) ? 1u << l : 0; });
    each(mask, [&](unsigned l) {
        const std::uint32_t members = g.members[l] & mask, those = yes & members;
        switch (C) {
            case Collective::VoteAll: g.put_predicate(g.instr[l]->dst, l, those == members); break;
            case Collective::VoteAny: g.put_predicate(g.instr[l]->dst, l, those != 0); break;
            case Collective::VoteUni: g.put_predicate(g.instr[l]->dst, l, those == members || those == 0); break;
            default: g.at<std::uint32_t>(g.instr[l]->dst, l) = those;
        }
    });
}

template <Collective C>
void match(const Gather& g, std::uint32_t mask) {
    constexpr bool wide = C == Collective::MatchAny64 || C == Collective::MatchAll64;
    constexpr bool any = C == Collective::MatchAny32 || C == Collective::MatchAny64;
    std::uint64_t value[lanes] = {};
    std::uint32_t result[lanes] = {};
    each(mask, [&](unsigned l) { value[l] = wide ? g.at<std::uint64_t>(g.instr[l]->src[0], l) : g.source(0, l); });
    each(mask, [&](unsigned l) {
        const std::uint32_t members = g.members[l] & mask;
        std::uint32_t same = 0;
        each(members, [&](unsigned k) { same |= value[k] == value[l] ? 1u << k : 0; });
        result[l] = any ? same : (same == members ? members : 0);
    });
    each(mask, [&](unsigned l) {
        g.at<std::uint32_t>(g.instr[l]->dst, l) = result[l];
        if (!any) g.put_predicate(g.instr[l]->extra, l, result[l] != 0);
    });
}

template <Collective C>
void reduce(const Gather& g, std::uint32_t mask) {
    std::uint32_t value[lanes] = {}, result[lanes] = {};
    each(mask, [&](unsigned l) { value[l] = g.source(0, l); });
    std::uint32_t known_for = 0, known = 0;
    each(mask, [&](unsigned l) {
        const std::uint32_t members = g.members[l] & mask;
        if (members != known_for) {
            bool first = true;
            each(members, [&](unsigned k) {
                const std::uint32_t v = value[k];
                if (first) {
                    known = v;
                    first = false;
                    return;
                }
                const auto s = static_cast<std::int32_t>(v), t = static_cast<std::int32_t>(known);
                switch (C) {
                    case Collective::ReduxAdd: known += v; break;
                    case Collective::ReduxMinU: known = v < known ? v : known; break;
                    case Collective::ReduxMaxU: known = v > known ? v : known; break;
                    case Collective::ReduxMinS: known = s < t ? v : known; break;
                    case Collective::ReduxMaxS: known = s > t ? v : known; break;
                    case Collective::ReduxAnd: known &= v; break;
                    case Collective::ReduxOr: known |= v; break;
                    default: known ^= v;
                }
            });
            known_for = members;
        }
        result[l] = known;
    });
    each(mask, [&](unsigned l) { g.at<std::uint32_t>(g.instr[l]->dst, l) = result[l]; });
}

template <Collective C>
void perform(const Gather& g, std::uint32_t mask) {
    if constexpr (C <= Collective::ShflIdx) {
        shuffle<C>(g, mask);
    } else if constexpr (C <= Collective::VoteBallot) {
        vote<C>(g, mask);
    } else if constexpr (C <= Collective::MatchAll64) {
        match<C>(g, mask);
    } else if constexpr (C <= Collective::ReduxXor) {
        reduce<C>(g, mask);
    } else if constexpr (C == Collective::Elect) {
        each(mask, [&](unsigned l) {
            const auto leader = static_cast<unsigned>(__builtin_ctz(g.members[l] & mask));
            if (g.instr[l]->count != 0) g.at<std::uint32_t>(g.instr[l]->dst, l) = leader;
            g.put_predicate(g.instr[l]->extra, l, leader == l);
        });
    }
}

template <Collective C>
const Instr* run(Warp& w, const Instr* i, std::uint32_t mask) {
    Gather g;
    g.add(w, i, mask, w.frame);
    std::uint32_t needed = 0;
    each(mask, [&](unsigned l) { needed |= g.members[l]; });
    if ((needed & ~mask) == 0) {
        if (w.block->races != nullptr) w.block->races->meet(w, mask, g.members);
        perform<C>(g, mask);
        return i + 1;
    }
    if (w.mask != mask) {
        Group& rest = w.groups.emplace_back();
        rest.pc = i + 1;
        rest.frame = w.frame;
        rest.mask = w.mask & ~mask;
        rest.last_run = w.clock;
        w.mask = mask;
    }
    return w.leave(Stop::Sync, i);
}

using Perform = void (*)(const Gather&, std::uint32_t);
struct Row {
    Handler handler;
    Perform perform;
};
#define HPE_ROW(C) \
    Row { run<Collective::C>, perform<Collective::C> }
const Row rows[] = {HPE_ROW(ShflUp),     HPE_ROW(ShflDown),   HPE_ROW(ShflBfly),   HPE_ROW(ShflIdx),
                    HPE_ROW(VoteAll),    HPE_ROW(VoteAny),    HPE_ROW(VoteUni),    HPE_ROW(VoteBallot),
                    HPE_ROW(MatchAny32), HPE_ROW(MatchAny64), HPE_ROW(MatchAll32), HPE_ROW(MatchAll64),
                    HPE_ROW(ReduxAdd),   HPE_ROW(ReduxMinU),  HPE_ROW(ReduxMinS),  HPE_ROW(ReduxMaxU),
                    HPE_ROW(ReduxMaxS),  HPE_ROW(ReduxAnd),   HPE_ROW(ReduxOr),    HPE_ROW(ReduxXor),
                    HPE_ROW(Barrier),    HPE_ROW(Elect)};

}  // namespace

Handler collective_handler(Collective c) { return rows[static_cast<unsigned>(c)].handler; }

bool run_waiting_collectives(Warp& w) {
    for (const Row& row : rows) {
        Gather g;
        std::uint32_t there = 0;
        for (const Group& group : w.groups) {
            if (group.state != State::AtSync || group.pc->run != row.handler) continue;
            g.add(w, group.pc, group.mask, group.frame);
            there |= group.mask;
        }
        std::uint32_t ready = 0;
        each(there, [&](unsigned l) { ready |= (g.members[l] & ~there) == 0 ? 1u << l : 0; });
        if (ready == 0) continue;
        if (w.block->races != nullptr) w.block->races->meet(w, ready, g.members);
        row.perform(g, ready);
        // Groups of which only some lanes were ready are split.
        const std::size_t count = w.groups.size();
        for (std::size_t n = 0; n < count; n++) {
            Group group = w.groups[n];
            if (group.state != State::AtSync || group.pc->run != row.handler || (group.mask & ready) == 0) continue;
            Group stays = group;
            stays.mask &= ~ready;
            group.mask &= ready;
            group.state = State::Runnable;
            group.last_run = w.clock;
            group.pc++;
            w.groups[n] = group;
            if (stays.mask != 0) w.groups.push_back(stays);
        }
        return true;
    }
    return false;
}

}  // namespace hpe::soft::exec
