// SPDX-License-Identifier: MIT
// The scheduler: picks a group of a warp, runs it until it has to stop, and joins groups that meet.
//
// Within a warp the group in the deepest call and there at the lowest place runs first, so that the others wait where
// the paths join. A group that may be waiting for another (it spins on an atomic or a volatile load) gives way after a
// few rounds of its loop, so that a lock held by a lane of the same warp is released in the end.
#include "toolchain/softgpu/exec/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/races.h"

namespace hpe::soft::exec {
namespace {

constexpr std::int32_t alone_budget = 4096, shared_budget = 16;
constexpr unsigned turns_per_slice = 256;
constexpr std::size_t none = ~std::size_t{0};
// Decisions after which a group that was passed over has its turn: loops with calls never use up a budget.
constexpr std::uint64_t longest_wait = 512;

std::size_t choose(const Warp& w, bool oldest) {
    std::size_t best = none;
    for (const Group& g : w.groups)
        oldest = oldest || (g.state == State::Runnable && w.clock - g.last_run > longest_wait);
    for (std::size_t n = 0; n < w.groups.size(); n++) {
        const Group& g = w.groups[n];
        if (g.state != State::Runnable) continue;
        if (best == none) {
            best = n;
            continue;
        }
        const Group& b = w.groups[best];
        const bool better = oldest ? g.last_run < b.last_run
                                   : (g.frame->depth != b.frame->depth ? g.frame->depth > b.frame->depth : g.pc < b.pc);
        if (better) best = n;
    }
    return best;
}

// Takes the chosen group off the list, together with those at the same place.
void make_current(Warp& w, std::size_t pick) {
    const Group chosen = w.groups[pick];
    w.mask = 0;
    w.join = nullptr;
    bool others = false;
    std::erase_if(w.groups, [&](const Group& g) {
        if (g.state != State::Runnable) return false;
        if (g.pc == chosen.pc && g.frame == chosen.frame) {
            w.mask |= g.mask;
            return true;
        }
        others = true;
        if (g.frame == chosen.frame && g.pc > chosen.pc && (w.join == nullptr || g.pc < w.join)) w.join = g.pc;
        return false;
    });
    w.frame = chosen.frame;
    w.base[0] = chosen.frame->registers;
    w.base[1] = const_cast<std::byte*>(chosen.frame->code->constants.data());
    w.budget = others ? shared_budget : alone_budget;
    w.extensions = 0;
    w.spins = false;
    w.expired = false;
    w.stop = Stop::None;
    w.pc = chosen.pc;
}

void run_group(Warp& w) {
    const Instr* i = w.pc;
    if (i->run == run_leader) {
        w.executed += i->imm * static_cast<unsigned>(__builtin_popcount(w.mask));
        i++;
    }
    while (i != nullptr) {
        std::uint32_t mask = w.mask;
        if (i->guard != 0) {
            mask &= w.predicate(i->guard & ~1u) ^ ((i->guard & 1) != 0 ? all_lanes : 0);
            if (mask == 0) {
                i++;
                continue;
            }
        }
        i = i->run(w, i, mask);
    }
}

void park_current(Warp& w, State state, std::uint32_t barrier = 0) {
    Group& g = w.groups.emplace_back();
    g.pc = w.pc;
    g.frame = w.frame;
    g.mask = w.mask;
    g.state = state;
    g.barrier = barrier;
    g.last_run = ++w.clock;
}

void release(Block& block, std::uint32_t id) {
    Barrier& b = block.barriers[id];
    if (block.races != nullptr) block.races->barrier(block, id);
    for (std::uint32_t n = 0; n < block.warp_count; n++) {
        Warp& w = *block.warps[n];
        for (Group& g : w.groups) {
            if (g.state != State::AtBarrier || g.barrier != id) continue;
            const Instr& i = *g.pc;
            if (i.mode == barrier_popc) {
                auto* d = reinterpret_cast<std::uint32_t*>(g.frame->registers + i.dst);
                for (unsigned l = 0; l < lanes; l++)
                    if (((g.mask >> l) & 1) != 0) d[l] = b.ones;
            } else if (i.mode == barrier_and || i.mode == barrier_or) {
                auto& d = *reinterpret_cast<std::uint32_t*>(g.frame->registers + i.dst);
                const bool yes = i.mode == barrier_and ? b.ones == b.voters : b.ones != 0;
                d = (d & ~g.mask) | (yes ? g.mask : 0);
            }
            g.state = State::Runnable;
            g.last_run = w.clock;
            g.pc++;
        }
    }
    b = Barrier{};
}

bool check_barriers(Block& block) {
    bool any = false;
    for (std::uint32_t id = 0; id < named_barriers; id++) {
        const Barrier& b = block.barriers[id];
        const std::uint32_t there = b.waiting + b.arrived;
        if (there == 0 || there < (b.expected != 0 ? b.expected : block.live_threads)) continue;
        release(block, id);
        any = true;
    }
    return any;
}

bool is_only_runnable(const Warp& w) {
    return std::count_if(w.groups.begin(), w.groups.end(), [](const Group& g) { return g.state == State::Runnable; }) ==
           1;
}

// One slice of a warp. True: it got something done.
bool run_warp(Warp& w) {
    bool ran = false;
    for (unsigned turn = 0; turn < turns_per_slice; turn++) {
        const bool oldest = w.expired;
        w.expired = false;
        const std::size_t pick = choose(w, oldest);
        if (pick == none) {
            if (!run_waiting_collectives(w)) break;
            continue;
        }
        make_current(w, pick);
        ran = true;
        run_group(w);
        switch (w.stop) {
            case Stop::Done: break;
            case Stop::Reschedule:
                if (w.mask != 0) park_current(w, State::Runnable);
                if (w.expired && is_only_runnable(w)) return true;  // busy, perhaps waiting: let other warps run
                break;
            case Stop::Barrier: park_current(w, State::AtBarrier, w.barrier); break;
            case Stop::Sync:
                park_current(w, State::AtSync);
                run_waiting_collectives(w);
                break;
            default:
                park_current(w, State::Runnable);  // so that its frames are found when the block is cleared away
                return true;
        }
    }
    return ran;
}

}  // namespace

const Instr* run_barrier(Warp& w, const Instr* i, std::uint32_t mask) {
    Block& block = *w.block;
    // Lanes that name other barriers come to this instruction again on their own.
    const auto* number = w.at<const std::uint32_t>(i->src[0]);
    const std::uint32_t id = number[__builtin_ctz(mask)];
    if (id >= named_barriers)
        return fail(w, i, Fault::IllegalInstruction, static_cast<unsigned>(__builtin_ctz(mask)), "a barrier beyond 15");
    std::uint32_t same = 0;
    for (unsigned l = 0; l < lanes; l++)
        if (((mask >> l) & 1) != 0 && number[l] == id) same |= 1u << l;
    const auto put_aside = [&](const Instr* pc, std::uint32_t which) {
        Group& rest = w.groups.emplace_back();
        rest.pc = pc;
        rest.frame = w.frame;
        rest.mask = which;
        rest.last_run = w.clock;
        w.mask &= ~which;
    };
    if (same != mask) put_aside(i, mask & ~same);
    mask = same;
    w.barrier = id;
    const std::uint32_t expected = i->src[1] != 0 ? w.at<const std::uint32_t>(i->src[1])[__builtin_ctz(mask)] : 0;
    Barrier& b = block.barriers[id];
    auto count = static_cast<std::uint32_t>(__builtin_popcount(mask));
    if (expected != 0) {
        // Counts are in whole warps: the lanes that are gone count with the last that arrive.
        std::uint32_t there = mask;
        for (const Group& g : w.groups)
            if (g.state == State::AtBarrier && g.barrier == id) there |= g.mask;
        if ((there | w.exited) == all_lanes) count += static_cast<std::uint32_t>(__builtin_popcount(w.exited));
        b.expected = expected;
    }
    if (i->mode == barrier_arrive) {
        if (block.races != nullptr) block.races->arrive(w, id, mask);
        b.arrived += count;
        return i + 1;
    }
    if (i->mode != barrier_sync) {
        const std::uint32_t p = w.predicate(i->src[2]) ^ ((i->flags & flag_negated) != 0 ? all_lanes : 0);
        b.ones += static_cast<std::uint32_t>(__builtin_popcount(p & mask));
        b.voters += static_cast<std::uint32_t>(__builtin_popcount(mask));
    }
    b.waiting += count;
    if (w.mask != mask) put_aside(i + 1, w.mask & ~mask);
    return w.leave(Stop::Barrier, i);
}

Frame* take_frame(Warp& w, const Code& code) {
    for (std::size_t n = w.free_frames.size(); n-- > 0;) {
        if (w.free_frames[n]->code != &code) continue;
        Frame* const f = w.free_frames[n];
        w.free_frames.erase(w.free_frames.begin() + static_cast<std::ptrdiff_t>(n));
        return f;
    }
    auto* const f = new Frame;
    f->code = &code;
    f->registers = static_cast<std::byte*>(::operator new (code.register_bytes, std::align_val_t{64}));
    std::memset(f->registers, 0, code.register_bytes);
    return f;
}

void give_frame(Warp& w, Frame* frame) { w.free_frames.push_back(frame); }

Block::~Block() {
    for (auto& w : warps) {
        for (const Group& g : w->groups) {
            for (Frame* f = g.frame; f != nullptr && f->parent != nullptr;) {
                // A failed launch leaves groups inside calls; a frame is theirs together, so the last one frees it.
                Frame* const parent = f->parent;
                f->live &= ~g.mask;
                if (f->live == 0) w->free_frames.push_back(f);
                f = parent;
            }
        }
        for (Frame* f : w->free_frames) {
            ::operator delete (f->registers, std::align_val_t{64});
            delete f;
        }
    }
    delete races;
    if (local_storage != nullptr) munmap(local_storage, local_storage_bytes);
}

bool start_block(Block& block, Worker& worker, LaunchState& launch, std::uint64_t linear) {
    try {
        if (block.launch == nullptr) {
            block.launch = &launch;
            block.worker = &worker;
            block.warp_count = launch.warps_per_block;
            const std::size_t per_warp = (launch.code->register_bytes + 63u) / 64 * 64 + 64;
            block.registers.resize(per_warp * block.warp_count + 64);
            block.shared_storage.resize(launch.shared_bytes + 256u);
            const auto up = [](std::byte* p) { return p + (64 - reinterpret_cast<std::uintptr_t>(p) % 64) % 64; };
            std::byte* const registers = up(block.registers.data());
            auto* const shared = block.shared_storage.data();
            block.shared = shared + (128 - reinterpret_cast<std::uintptr_t>(shared) % 128) % 128;
            const std::size_t local_per_warp = std::size_t{launch.local_bytes} * lanes;
            if (local_per_warp != 0) {
                block.local_storage_bytes = local_per_warp * block.warp_count;
                void* const p = mmap(nullptr, block.local_storage_bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (p == MAP_FAILED) return false;
                block.local_storage = static_cast<std::byte*>(p);
            }
            for (std::uint32_t n = 0; n < block.warp_count; n++) {
                auto& w = *block.warps.emplace_back(std::make_unique<Warp>());
                w.index = n;
                w.block = &block;
                w.local = block.local_storage == nullptr ? nullptr : block.local_storage + local_per_warp * n;
                w.root.registers = registers + per_warp * n;
                w.root.code = launch.code;
                for (std::uint32_t l = 0; l < lanes; l++) {
                    const std::uint32_t t = n * lanes + l;
                    w.tid[0][l] = t % launch.block.x;
                    w.tid[1][l] = t / launch.block.x % launch.block.y;
                    w.tid[2][l] = t / launch.block.x / launch.block.y;
                }
            }
        }
        block.linear = linear;
        block.id.x = static_cast<std::uint32_t>(linear % launch.grid.x);
        block.id.y = static_cast<std::uint32_t>(linear / launch.grid.x % launch.grid.y);
        block.id.z = static_cast<std::uint32_t>(linear / launch.grid.x / launch.grid.y);
        block.live_threads = launch.threads_per_block;
        if (watching()) {
            if (block.races == nullptr) block.races = new Races(launch);
            block.races->start();
        }
        block.slices = 0;
        for (Barrier& b : block.barriers) b = Barrier{};
        std::memset(block.shared, 0, launch.shared_bytes);
        for (std::uint32_t n = 0; n < block.warp_count; n++) {
            Warp& w = *block.warps[n];
            const std::uint32_t threads = launch.threads_per_block - n * lanes;
            const std::uint32_t mask = threads >= lanes ? all_lanes : (1u << threads) - 1;
            w.exited = ~mask;
            w.root.live = mask;
            w.root.dynamic = 0;
            w.groups.clear();
            w.clock = 0;
            Group& g = w.groups.emplace_back();
            g.pc = launch.code->instructions.data();
            g.frame = &w.root;
            g.mask = mask;
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

Turn run_block(Block& block) {
    LaunchState& launch = *block.launch;
    bool ran = false, further = false;
    for (std::uint32_t n = 0; n < block.warp_count; n++) {
        Warp& w = *block.warps[n];
        if (w.groups.empty()) continue;
        ran = run_warp(w) || ran;
        further = further || !w.spins || w.groups.empty();
        block.worker->executed += w.executed;
        w.executed = 0;
        if (launch.failed.load(std::memory_order_relaxed)) return Turn::Failed;
    }
    if (block.live_threads == 0) return Turn::Done;
    const bool released = check_barriers(block);
    block.slices = released || further ? 0 : block.slices + 1;
    if (released || ran) return Turn::Progress;
    // Nothing can run and nothing will: the threads wait for each other.
    Warp* waiting = nullptr;
    for (std::uint32_t n = 0; n < block.warp_count && waiting == nullptr; n++)
        if (!block.warps[n]->groups.empty()) waiting = block.warps[n].get();
    const Group& g = waiting->groups.front();
    waiting->frame = g.frame;
    fail(*waiting, g.pc, Fault::Trap, static_cast<unsigned>(__builtin_ctz(g.mask)),
         "the block waits for ever: not all of its threads come to this barrier or warp-wide instruction");
    return Turn::Failed;
}

}  // namespace hpe::soft::exec
