// SPDX-License-Identifier: MIT
// Constants, jumps and the placing of registers.
#include "toolchain/softgpu/exec/draft.h"

#include <algorithm>

#include "toolchain/softgpu/exec/handlers.h"

namespace hpe::soft::exec {

std::uint32_t Drafts::make_register(unsigned bytes) {
    registers_.push_back(static_cast<std::uint8_t>(bytes));
    return static_cast<std::uint32_t>(registers_.size() - 1) << 1;
}

std::uint32_t Drafts::add_constant(std::uint64_t bits, unsigned bytes) {
    const std::size_t step = bytes == 0 ? 4 : bytes;
    const std::size_t count = bytes == 0 ? 1 : lanes;
    const std::size_t at = (code_.constants.size() + 63) / 64 * 64;
    code_.constants.resize(at + step * count);
    for (std::size_t n = 0; n < count; n++) std::memcpy(code_.constants.data() + at + n * step, &bits, step);
    return static_cast<std::uint32_t>(at) | 1;
}

std::uint32_t Drafts::constant(std::uint64_t bits, unsigned bytes) {
    if (bytes != 0 && bytes < 8) bits &= (std::uint64_t{1} << (bytes * 8)) - 1;
    const auto [at, fresh] = constants_.try_emplace({bits, bytes}, 0);
    if (fresh) at->second = add_constant(bits, bytes);
    return at->second;
}

std::uint32_t Drafts::address(const std::string& symbol, std::int64_t addend, unsigned bytes) {
    const auto [at, fresh] = addresses_.try_emplace({symbol + (bytes == 4 ? "/4" : ""), addend}, 0);
    if (fresh) {
        at->second = add_constant(0, bytes);
        code_.fixups.push_back({at->second & ~1u, symbol, addend, bytes});
    }
    return at->second;
}

Draft& Drafts::emit(Handler run, std::uint32_t line) {
    Draft& d = drafts_.emplace_back();
    d.i.run = run;
    d.i.line = line;
    return d;
}

void Drafts::leader() {
    if (!drafts_.empty() && drafts_.back().leader) return;
    emit(run_leader, 0).leader = true;
}

void Drafts::place_label(std::uint32_t label) {
    leader();
    places_[label] = static_cast<std::uint32_t>(drafts_.size() - 1);
}

template <class F>
void Drafts::registers_of(Draft& d, F f) {
    const auto visit = [&](std::uint32_t& ref, bool definition) {
        if ((ref & 1) == 0 && ref != 0) f(ref, definition);
    };
    if (d.i.guard != 0) {
        std::uint32_t ref = d.i.guard & ~1u;
        f(ref, false);
        d.i.guard = ref | (d.i.guard & 1);
    }
    static constexpr std::uint16_t sources[4] = {role_src0, role_src1, role_src2, role_src3};
    for (unsigned n = 0; n < 4; n++)
        if ((d.roles & sources[n]) != 0) visit(d.i.src[n], false);
    if ((d.roles & role_extras_use) != 0)
        for (unsigned n = 0; n < d.i.count; n++) visit(code_.extras[d.i.extra + n], false);
    if ((d.roles & role_dst) != 0) visit(d.i.dst, true);
    if ((d.roles & role_src3_def) != 0) visit(d.i.src[3], true);
    if ((d.roles & role_extra_def) != 0) visit(d.i.extra, true);
    if ((d.roles & role_extras_def) != 0)
        for (unsigned n = 0; n < d.i.count; n++) visit(code_.extras[d.i.extra + n], true);
}

// Linear scan over live intervals: from the first to the last place where a register holds a value that counts.
void Drafts::allocate() {
    const std::size_t count = registers_.size(), words = (count + 63) / 64;
    struct Part {
        std::size_t begin, end;
        std::vector<std::uint64_t> use, kill, in, out;
        std::vector<std::size_t> next;
    };
    std::vector<Part> parts;
    std::vector<std::size_t> part_of(drafts_.size());
    for (std::size_t n = 0; n < drafts_.size(); n++) {
        const bool starts = n == 0 || drafts_[n].leader || drafts_[n - 1].label != 0 ||
                            !drafts_[n - 1].labels.empty() || drafts_[n - 1].ends;
        if (starts) {
            Part& p = parts.emplace_back();
            p.begin = n;
            p.use.resize(words);
            p.kill.resize(words);
            p.in.resize(words);
            p.out.resize(words);
        }
        parts.back().end = n + 1;
        part_of[n] = parts.size() - 1;
    }
    for (std::size_t k = 0; k < parts.size(); k++) {
        Part& p = parts[k];
        for (std::size_t n = p.begin; n < p.end; n++)
            registers_of(drafts_[n], [&](std::uint32_t& ref, bool definition) {
                const std::uint32_t r = ref >> 1;
                const std::uint64_t bit = std::uint64_t{1} << (r % 64);
                if (!definition) {
                    if ((p.kill[r / 64] & bit) == 0) p.use[r / 64] |= bit;
                } else if (drafts_[n].i.guard == 0) {
                    p.kill[r / 64] |= bit;
                }
            });
        const Draft& last = drafts_[p.end - 1];
        const auto to = [&](std::uint32_t label) {
            const auto at = places_.find(label);
            if (at != places_.end()) p.next.push_back(part_of[at->second]);
        };
        if (last.label != 0) to(last.label);
        for (const auto label : last.labels) to(label);
        if ((!last.ends || last.i.guard != 0) && k + 1 < parts.size()) p.next.push_back(k + 1);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t k = parts.size(); k-- > 0;) {
            Part& p = parts[k];
            for (std::size_t word = 0; word < words; word++) {
                std::uint64_t out = 0;
                for (const auto next : p.next) out |= parts[next].in[word];
                const std::uint64_t in = p.use[word] | (out & ~p.kill[word]);
                changed = changed || in != p.in[word] || out != p.out[word];
                p.in[word] = in;
                p.out[word] = out;
            }
        }
    }
    constexpr std::size_t never = ~std::size_t{0};
    std::vector<std::size_t> begin(count, never), end(count, 0);
    const auto cover = [&](std::size_t r, std::size_t at) {
        begin[r] = std::min(begin[r], at);
        end[r] = std::max(end[r], at);
    };
    for (const Part& p : parts)
        for (std::size_t r = 1; r < count; r++) {
            if (((p.in[r / 64] >> (r % 64)) & 1) != 0) cover(r, p.begin);
            if (((p.out[r / 64] >> (r % 64)) & 1) != 0) cover(r, p.end - 1);
        }
    for (std::size_t n = 0; n < drafts_.size(); n++)
        registers_of(drafts_[n], [&](std::uint32_t& ref, bool) { cover(ref >> 1, n); });
    std::vector<std::uint32_t> order;
    for (std::uint32_t r = 1; r < count; r++)
        if (begin[r] != never) order.push_back(r);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return begin[a] < begin[b]; });
    // Predicates lie first, four bytes each; then the arrays, aligned to cache lines.
    struct Class {
        std::vector<std::pair<std::size_t, std::uint32_t>> busy;  // end, slot
        std::vector<std::uint32_t> free;
        std::uint32_t slots = 0;
    };
    Class classes[5];
    const auto class_of = [&](std::uint32_t r) {
        return registers_[r] == 0 ? 0 : registers_[r] == 2 ? 1 : registers_[r] == 4 ? 2 : registers_[r] == 8 ? 3 : 4;
    };
    std::vector<std::uint32_t> slot(count, 0);
    for (const auto r : order) {
        Class& c = classes[class_of(r)];
        std::erase_if(c.busy, [&](const auto& b) {
            if (b.first >= begin[r]) return false;  // an instruction may write one register before it reads another
            c.free.push_back(b.second);
            return true;
        });
        if (c.free.empty()) {
            slot[r] = c.slots++;
        } else {
            slot[r] = c.free.back();
            c.free.pop_back();
        }
        c.busy.emplace_back(end[r], slot[r]);
    }
    const std::uint32_t sizes[5] = {4, 64, 128, 256, 512};
    std::uint32_t base[5], at = 4;
    for (unsigned k = 0; k < 5; k++) {
        if (k == 1) at = (at + 63) / 64 * 64;
        base[k] = at;
        at += classes[k].slots * sizes[k];
    }
    code_.register_bytes = (at + 63) / 64 * 64;
    for (Draft& d : drafts_)
        registers_of(d, [&](std::uint32_t& ref, bool) {
            const std::uint32_t r = ref >> 1;
            ref = base[class_of(r)] + slot[r] * sizes[class_of(r)];
        });
}

bool Drafts::finish(Code& out) {
    code_.constants.resize((code_.constants.size() + 63) / 64 * 64 + 64);
    allocate();
    std::uint64_t length = 0;
    for (std::size_t n = drafts_.size(); n-- > 0;) {
        Draft& d = drafts_[n];
        if (d.leader) {
            d.i.imm = length;
            length = 0;
        } else {
            length++;
        }
        const auto distance = [&](std::uint32_t label, std::int64_t& by) {
            const auto at = places_.find(label);
            if (at == places_.end()) return false;
            by = static_cast<std::int64_t>(at->second) - static_cast<std::int64_t>(n);
            return true;
        };
        std::int64_t by = 0;
        if (d.label != 0) {
            if (!distance(d.label, by)) return false;
            d.i.imm = static_cast<std::uint64_t>(by);
        }
        for (std::size_t k = 0; k < d.labels.size(); k++) {
            if (!distance(d.labels[k], by)) return false;
            code_.extras[d.i.extra + k] = static_cast<std::uint32_t>(static_cast<std::int32_t>(by));
        }
    }
    code_.instructions.reserve(drafts_.size());
    for (const Draft& d : drafts_) code_.instructions.push_back(d.i);
    if (watching()) {
        code_.watched.resize(drafts_.size());
        for (std::size_t n = 0; n < drafts_.size(); n++) {
            if (drafts_[n].watched.kind == Watched::Kind::None) continue;
            code_.watched[n] = drafts_[n].watched;
            code_.watched[n].run = drafts_[n].i.run;
            code_.instructions[n].run = run_watched;
        }
    }
    out = std::move(code_);
    return true;
}

}  // namespace hpe::soft::exec
