// SPDX-License-Identifier: MIT
// The fast ways from 32 addresses to host bytes. Internal linkage: see lanes.h.
// Threads: a warp is run by one at a time.
#pragma once

#include "toolchain/softgpu/exec/lanes.h"
#include "toolchain/softgpu/exec/memory.h"

namespace hpe::soft::exec {
namespace {

struct Resolved {
    std::byte* first = nullptr;  // not null: lane l's bytes are at first + l * bytes, for all 32 lanes
    bool shared = false;         // only this block can see the bytes
    std::byte* host[lanes];
};

[[gnu::always_inline]] inline void addresses(const Warp& w, const Instr* i, std::uint64_t* to) {
    const std::uint64_t offset = i->imm + ((i->flags & flag_frame) != 0 ? w.frame->local_base : 0);
    if ((i->flags & flag_address32) != 0) {
        const auto* base = w.at<const std::uint32_t>(i->src[0]);
        HPE_LANES_APART
        for (unsigned l = 0; l < lanes; l++) to[l] = base[l] + static_cast<std::uint32_t>(offset);
        HPE_LANES_APART
        for (unsigned l = 0; l < lanes; l++) to[l] &= 0xffffffffu;
    } else {
        const auto* base = w.at<const std::uint64_t>(i->src[0]);
        HPE_LANES_APART
        for (unsigned l = 0; l < lanes; l++) to[l] = base[l] + offset;
    }
}

// False: the launch failed and Warp::stop is set.
inline bool resolve(Warp& w, const Instr* i, std::uint32_t mask, std::uint32_t bytes, bool write, Resolved& out) {
    alignas(64) std::uint64_t at[lanes];
    addresses(w, i, at);
    Memory memory = i->memory;
    const unsigned any = static_cast<unsigned>(__builtin_ctz(mask));
    // Inactive lanes take the address of an active one, so that they change neither bounds nor alignment.
    if (mask != all_lanes)
        for (unsigned l = 0; l < lanes; l++) at[l] = ((mask >> l) & 1) != 0 ? at[l] : at[any];
    std::uint64_t low = at[0], high = at[0], bits = 0, differs = 0;
    for (unsigned l = 0; l < lanes; l++) {
        low = at[l] < low ? at[l] : low;
        high = at[l] > high ? at[l] : high;
        bits |= at[l];
        differs |= at[l] - at[0] - std::uint64_t{l} * bytes;
    }
    if (memory == Memory::Generic && (low >> window_shift) == (high >> window_shift)) {
        const std::uint64_t window = low & ~((std::uint64_t{1} << window_shift) - 1);
        if (window == 0) memory = Memory::Global;
        if (window == shared_window) {
            memory = Memory::Shared;
            low -= window, high -= window;
            for (unsigned l = 0; l < lanes; l++) at[l] -= window;
        }
    }
    if ((bits & (bytes - 1)) == 0) {
        std::byte* host = nullptr;
        if (memory == Memory::Global) {
            if (find_global(*w.block->worker, low, high - low + bytes, write, host)) {
                if (differs == 0 && mask == all_lanes) {
                    out.first = host;
                    return true;
                }
                for (unsigned l = 0; l < lanes; l++) out.host[l] = host + (at[l] - low);
                return true;
            }
        } else if (memory == Memory::Shared) {
            const std::uint64_t size = w.block->launch->shared_bytes;
            if (high < size && bytes <= size - high) {
                out.shared = true;
                host = w.block->shared;
                if (differs == 0 && mask == all_lanes) {
                    out.first = host + at[0];
                    return true;
                }
                for (unsigned l = 0; l < lanes; l++) out.host[l] = host + at[l];
                return true;
            }
        } else if (memory == Memory::Local) {
            const std::uint64_t size = local_end(w);
            if (bytes <= local_granule && high < size && bytes <= size - high) {
                for (unsigned l = 0; l < lanes; l++) out.host[l] = w.local + local_offset(at[l], l);
                return true;
            }
        }
    }
    if (memory == Memory::Param && !write && (bits & (bytes - 1)) == 0) {
        const auto& parameters = w.block->launch->parameters;
        if (high < parameters.size() && bytes <= parameters.size() - high) {
            for (unsigned l = 0; l < lanes; l++) out.host[l] = const_cast<std::byte*>(parameters.data()) + at[l];
            return true;
        }
    }
    alignas(64) std::uint64_t original[lanes];
    addresses(w, i, original);
    const Access access{i->memory, bytes, write};
    return find_lanes(w, i, original, mask, access, out.host);
}

}  // namespace
}  // namespace hpe::soft::exec
