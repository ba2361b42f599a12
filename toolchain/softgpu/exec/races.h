// SPDX-License-Identifier: MIT
// Races in the shared memory of one block, and barriers that its threads do not come to together (HPE_SOFT_CHECK=race).
//
// Every thread has a clock; what it knows of the others' clocks it learns at barriers, warp-wide instructions,
// mbarriers and through strong (atomic, volatile, acquire or release) accesses to the same place. Two accesses of
// different threads race when neither knows of the other and at least one is a write that is not strong. A barrier of
// all threads starts a new generation, before which everything is known to everyone. Where a program may rely on more
// order than PTX promises (a shuffle, an atomic without a fence) order is assumed, so that right programs are never
// reported. A write that changes nothing races with nothing.
//
// A block and its Races belong to one thread. Sizes and offsets in bytes. Source of the algorithm: Flanagan and
// Freund, "FastTrack: Efficient and Precise Dynamic Race Detection", 2009.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

class Races {
public:
    explicit Races(const LaunchState& launch);
    void start();  // another block, whose memory nobody has touched

    void read(const Warp& w, const Instr* i, unsigned lane, std::uint32_t at, std::uint32_t bytes);
    // value: what is written; nullptr: not known. Memory still holds what was there before.
    void write(const Warp& w, const Instr* i, unsigned lane, std::uint32_t at, std::uint32_t bytes, bool strong,
               const std::byte* value);
    // Through the place `key`: what others acquire is what this thread and those before it knew.
    void release(const Warp& w, unsigned lane, std::uint64_t key);
    void acquire(const Warp& w, unsigned lane, std::uint64_t key);

    // The threads that wait at barrier `id` are about to go on.
    void barrier(const Block& block, std::uint32_t id);
    void arrive(const Warp& w, std::uint32_t id, std::uint32_t mask);
    // Lanes of a warp at an instruction that they run together, each with those that its own mask names.
    void meet(const Warp& w, std::uint32_t mask, const std::uint32_t* members);

private:
    struct Stamp {
        const Instr* instr = nullptr;  // nullptr: no such access
        const Code* code = nullptr;
        std::uint32_t generation = 0, clock = 0;
        std::uint16_t thread = 0;
    };
    // Four bytes, or one where smaller pieces were accessed. Of several readers that do not know of each other a few
    // are kept, of different warps if possible.
    struct Cell {
        Stamp write, strong_write;
        std::array<Stamp, 4> reads;
    };
    struct Sync {
        std::uint32_t generation = 0;
        std::vector<std::uint32_t> known;
    };

    unsigned thread_of(const Warp& w, unsigned lane) const { return w.index * lanes + lane; }
    bool ordered(const Stamp& s, unsigned thread) const;
    Stamp stamp(const Warp& w, const Instr* i, unsigned thread) const;
    std::uint32_t* row(unsigned thread);  // what the thread knows
    Sync& sync(std::uint64_t key);
    void renew(Sync& s) const;
    void join(Sync& into, unsigned thread);
    void learn(unsigned thread, const Sync& from);
    template <class F>
    void cells(std::uint32_t at, std::uint32_t bytes, F f);
    void note_read(Cell& cell, const Stamp& s);
    void race(const Warp& w, std::uint32_t at, const Stamp& now, bool writes, const Stamp& before, bool wrote) const;
    void diverged(const Block& block, const Group& a, const Warp& wa, const Group& b, const Warp& wb) const;

    const LaunchState& launch_;
    const unsigned threads_;
    std::uint32_t generation_ = 0;
    std::vector<Cell> words_;
    std::unordered_map<std::uint32_t, std::array<Cell, 4>> split_;  // by word
    std::vector<std::uint32_t> clock_, known_, known_generation_;
    std::unordered_map<std::uint64_t, Sync> syncs_;
    std::array<Sync, named_barriers> arrived_;
};

}  // namespace hpe::soft::exec
