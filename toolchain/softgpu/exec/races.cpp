// SPDX-License-Identifier: MIT
// Clocks of threads, and what was last done to each word of shared memory.
#include "toolchain/softgpu/exec/races.h"

#include <algorithm>
#include <set>

#include "toolchain/softgpu/exec/handlers.h"

namespace hpe::soft {
namespace {

std::atomic<void (*)(const char*)> reporter{nullptr};
std::mutex report_lock;  // what follows
std::set<std::string>* reported = nullptr;

// One line for each pair of places in a kernel.
void report_once(const std::string& key, const std::string& line) {
    const std::lock_guard guard(report_lock);
    const auto report = reporter.load();
    if (reported == nullptr) reported = new std::set<std::string>;
    if (report != nullptr && reported->insert(key).second) report(line.c_str());
}

}  // namespace

void check_races(void (*report)(const char* line)) {
    const std::lock_guard guard(report_lock);
    reporter = report;
    delete reported;
    reported = nullptr;
}

namespace exec {
namespace {

// Places that threads meet at, together; beyond that they are one place, which only assumes more order.
constexpr std::size_t most_sync_bytes = std::size_t{32} << 20;

std::string thread_name(const LaunchState& launch, unsigned t) {
    const Dim3& b = launch.block;
    return position("thread", t % b.x, t / b.x % b.y, t / b.x / b.y);
}

}  // namespace

bool watching() { return reporter.load(std::memory_order_relaxed) != nullptr; }

Races::Races(const LaunchState& launch)
    : launch_(launch),
      threads_(launch.warps_per_block * lanes),
      words_((launch.shared_bytes + 3) / 4),
      clock_(threads_, 1) {}

void Races::start() {
    generation_++;
    split_.clear();
    syncs_.clear();
}

bool Races::ordered(const Stamp& s, unsigned thread) const {
    if (s.instr == nullptr || s.generation != generation_ || s.thread == thread) return true;
    return !known_.empty() && known_generation_[thread] == generation_ &&
           known_[std::size_t{thread} * threads_ + s.thread] >= s.clock;
}

Races::Stamp Races::stamp(const Warp& w, const Instr* i, unsigned thread) const {
    return {i, w.frame->code, generation_, clock_[thread], static_cast<std::uint16_t>(thread)};
}

std::uint32_t* Races::row(unsigned thread) {
    if (known_.empty()) {
        known_.resize(std::size_t{threads_} * threads_);
        known_generation_.resize(threads_);
    }
    std::uint32_t* const r = known_.data() + std::size_t{thread} * threads_;
    if (known_generation_[thread] != generation_) {
        std::fill_n(r, threads_, 0u);
        known_generation_[thread] = generation_;
    }
    return r;
}

void Races::renew(Sync& s) const {
    if (s.generation == generation_) return;
    s.generation = generation_;
    s.known.assign(threads_, 0);
}

Races::Sync& Races::sync(std::uint64_t key) {
    const auto at = syncs_.find(key);
    const bool room = at != syncs_.end() || syncs_.size() * threads_ * 4 < most_sync_bytes;
    Sync& s = at != syncs_.end() ? at->second : syncs_[room ? key : ~std::uint64_t{0}];
    renew(s);
    return s;
}

void Races::join(Sync& into, unsigned thread) {
    const std::uint32_t* const r = row(thread);
    for (unsigned u = 0; u < threads_; u++) into.known[u] = std::max(into.known[u], r[u]);
    into.known[thread] = std::max(into.known[thread], clock_[thread]);
}

void Races::learn(unsigned thread, const Sync& from) {
    std::uint32_t* const r = row(thread);
    for (unsigned u = 0; u < threads_; u++) r[u] = std::max(r[u], from.known[u]);
}

void Races::release(const Warp& w, unsigned lane, std::uint64_t key) {
    const unsigned t = thread_of(w, lane);
    join(sync(key), t);
    clock_[t]++;
}

void Races::acquire(const Warp& w, unsigned lane, std::uint64_t key) {
    if (syncs_.empty()) return;
    learn(thread_of(w, lane), sync(key));
}

void Races::arrive(const Warp& w, std::uint32_t id, std::uint32_t mask) {
    renew(arrived_[id]);
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const unsigned t = thread_of(w, static_cast<unsigned>(__builtin_ctz(rest)));
        join(arrived_[id], t);
        clock_[t]++;
    }
}

void Races::meet(const Warp& w, std::uint32_t mask, const std::uint32_t* members) {
    const auto count = [](std::uint32_t m) { return static_cast<unsigned>(__builtin_popcount(m)); };
    Sync together;
    for (std::uint32_t rest = mask; rest != 0;) {
        const auto first = static_cast<unsigned>(__builtin_ctz(rest));
        const std::uint32_t set = (members[first] & mask) | 1u << first;
        rest &= ~set;
        if (count(set) == w.block->live_threads) {
            generation_++;
            return;
        }
        if (count(set) == 1) continue;
        renew(together);
        std::fill(together.known.begin(), together.known.end(), 0u);
        for (std::uint32_t s = set; s != 0; s &= s - 1)
            join(together, thread_of(w, static_cast<unsigned>(__builtin_ctz(s))));
        for (std::uint32_t s = set; s != 0; s &= s - 1) {
            const unsigned t = thread_of(w, static_cast<unsigned>(__builtin_ctz(s)));
            learn(t, together);
            clock_[t]++;
        }
    }
}

void Races::barrier(const Block& block, std::uint32_t id) {
    const bool counted = block.barriers[id].expected != 0;
    const Group* first = nullptr;
    const Warp* first_warp = nullptr;
    unsigned waiting = 0;
    const auto each = [&](auto f) {
        for (std::uint32_t n = 0; n < block.warp_count; n++)
            for (const Group& g : block.warps[n]->groups)
                if (g.state == State::AtBarrier && g.barrier == id) f(*block.warps[n], g);
    };
    each([&](const Warp& w, const Group& g) {
        waiting += static_cast<unsigned>(__builtin_popcount(g.mask));
        if (first == nullptr || (counted && first_warp != &w)) {
            first = &g;
            first_warp = &w;
        } else if (g.pc != first->pc && (g.pc->flags & flag_aligned) != 0 && (first->pc->flags & flag_aligned) != 0) {
            diverged(block, *first, *first_warp, g, w);
        }
    });
    if (waiting == block.live_threads) {
        generation_++;
        return;
    }
    Sync& s = arrived_[id];
    renew(s);
    const auto threads = [&](auto f) {
        each([&](const Warp& w, const Group& g) {
            for (std::uint32_t rest = g.mask; rest != 0; rest &= rest - 1)
                f(thread_of(w, static_cast<unsigned>(__builtin_ctz(rest))));
        });
    };
    threads([&](unsigned t) { join(s, t); });
    threads([&](unsigned t) {
        learn(t, s);
        clock_[t]++;
    });
    s.generation = 0;
}

template <class F>
void Races::cells(std::uint32_t at, std::uint32_t bytes, F f) {
    const std::uint32_t end = at + bytes;
    while (at < end) {
        const std::uint32_t word = at / 4;
        auto split = split_.empty() ? split_.end() : split_.find(word);
        if (split == split_.end() && at % 4 == 0 && end - at >= 4) {
            f(words_[word], at, 4u);
            at += 4;
            continue;
        }
        if (split == split_.end()) {
            const Cell& whole = words_[word];
            split = split_.emplace(word, std::array<Cell, 4>{whole, whole, whole, whole}).first;
        }
        for (; at < end && at / 4 == word; at++) f(split->second[at % 4], at, 1u);
    }
}

void Races::note_read(Cell& cell, const Stamp& s) {
    Stamp* to = nullptr;
    for (Stamp& r : cell.reads)
        if (to == nullptr && ordered(r, s.thread)) to = &r;  // what follows this read follows that one, too
    for (std::size_t n = 0; n < cell.reads.size() && to == nullptr; n++)
        for (std::size_t k = 0; k < n && to == nullptr; k++)
            if (cell.reads[n].thread / lanes == cell.reads[k].thread / lanes) to = &cell.reads[n];
    if (to != nullptr) *to = s;
}

void Races::read(const Warp& w, const Instr* i, unsigned lane, std::uint32_t at, std::uint32_t bytes) {
    const unsigned t = thread_of(w, lane);
    const Stamp now = stamp(w, i, t);
    cells(at, bytes, [&](Cell& cell, std::uint32_t where, std::uint32_t) {
        if (!ordered(cell.write, t)) race(w, where, now, false, cell.write, true);
        note_read(cell, now);
    });
}

void Races::write(const Warp& w, const Instr* i, unsigned lane, std::uint32_t at, std::uint32_t bytes, bool strong,
                  const std::byte* value) {
    const unsigned t = thread_of(w, lane);
    const Stamp now = stamp(w, i, t);
    cells(at, bytes, [&](Cell& cell, std::uint32_t where, std::uint32_t size) {
        const bool changes = value == nullptr || std::memcmp(w.block->shared + where, value + (where - at), size) != 0;
        if (changes) {
            if (!ordered(cell.write, t)) race(w, where, now, true, cell.write, true);
            if (!strong) {
                if (!ordered(cell.strong_write, t)) race(w, where, now, true, cell.strong_write, true);
                for (const Stamp& r : cell.reads)
                    if (!ordered(r, t)) race(w, where, now, true, r, false);
                cell.reads = {};
            }
        }
        (strong ? cell.strong_write : cell.write) = now;
    });
}

void Races::race(const Warp& w, std::uint32_t at, const Stamp& now, bool writes, const Stamp& before,
                 bool wrote) const {
    const std::string key = launch_.kernel->name + "/" + std::to_string(now.instr->line) + "/" +
                            std::to_string(before.instr->line) + (writes ? "w" : "r") + (wrote ? "w" : "r");
    const Dim3& b = w.block->id;
    char offset[32];
    std::snprintf(offset, sizeof offset, "0x%x", at);
    report_once(key, "race: kernel " + launch_.kernel->name + ", " + position("block", b.x, b.y, b.z) +
                         ", shared memory at " + offset + ": " + thread_name(launch_, now.thread) +
                         (writes ? " writes, " : " reads, ") + launch_.program->source(*now.code, *now.instr) +
                         " | what " + thread_name(launch_, before.thread) + (wrote ? " wrote, " : " read, ") +
                         launch_.program->source(*before.code, *before.instr) + " | with no barrier between them");
}

void Races::diverged(const Block& block, const Group& a, const Warp& wa, const Group& b, const Warp& wb) const {
    const std::string key = launch_.kernel->name + "/" + std::to_string(a.pc->line) + "/" + std::to_string(b.pc->line);
    const auto thread = [&](const Warp& w, const Group& g) {
        return thread_name(launch_, thread_of(w, static_cast<unsigned>(__builtin_ctz(g.mask))));
    };
    report_once(key, "barrier divergence: kernel " + launch_.kernel->name + ", " +
                         position("block", block.id.x, block.id.y, block.id.z) + ": " + thread(wa, a) + " is at " +
                         launch_.program->source(*a.frame->code, *a.pc) + " | " + thread(wb, b) + " at " +
                         launch_.program->source(*b.frame->code, *b.pc) +
                         " | not all threads come to the same barrier");
}

}  // namespace exec
}  // namespace hpe::soft
