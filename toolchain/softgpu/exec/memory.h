// SPDX-License-Identifier: MIT
// From the addresses of 32 lanes to bytes of this process, with every check on the way: state spaces, generic addresses
// and their windows, alignment, bounds of allocations. An access that hardware would trap on ends the launch.
// Source: PTX ISA, "State Spaces", "Generic Addressing"; CUDA Driver API, CUDA_ERROR_ILLEGAL_ADDRESS.
//
// Threads: a warp, and a worker's cache of ranges, are used by one at a time. Errors: nullptr, and Warp::stop says why.
#pragma once

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

struct Access {
    Memory memory;
    std::uint32_t bytes;  // of one lane, a power of two: also the alignment
    bool write;
};

// True: bytes [address, address + bytes) are one device allocation; `host` is where they are.
bool find_global(Worker& worker, std::uint64_t address, std::uint64_t bytes, bool write, std::byte*& host);

// Any kind of memory for one lane; nullptr: out of range.
std::byte* find_lane(Warp& w, std::uint32_t lane, std::uint64_t address, const Access& access);

// Local memory keeps the 32 threads of a warp side by side in granules, so that equal offsets are near each other.
constexpr std::uint32_t local_granule = 16;
[[gnu::always_inline]] inline std::size_t local_offset(std::uint64_t at, std::uint32_t lane) {
    return static_cast<std::size_t>((at / local_granule * lanes + lane) * local_granule + at % local_granule);
}

// Where the local memory ends that the function at hand and its callers have; what calls may take yet is nobody's.
[[gnu::always_inline]] inline std::uint64_t local_end(const Warp& w) {
    return std::uint64_t{w.frame->local_base} + w.frame->code->local_bytes + w.frame->dynamic;
}

// Fills host[] for the lanes of the mask, one by one: the slow way that finds the guilty lane. False: the launch
// failed.
bool find_lanes(Warp& w, const Instr* i, const std::uint64_t* address, std::uint32_t mask, const Access& access,
                std::byte** host);

}  // namespace hpe::soft::exec
