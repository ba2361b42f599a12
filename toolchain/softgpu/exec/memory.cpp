// SPDX-License-Identifier: MIT
// Address translation for one lane at a time, and the cache of ranges that each worker keeps.
#include "toolchain/softgpu/exec/memory.h"

#include "toolchain/softgpu/exec/handlers.h"

namespace hpe::soft::exec {

bool find_global(Worker& worker, std::uint64_t address, std::uint64_t bytes, bool write, std::byte*& host) {
    const auto inside = [&](const Range& r) {
        return address >= r.begin && address < r.end && bytes <= r.end - address;
    };
    for (const Range& r : worker.ranges) {
        if (!inside(r)) continue;
        if (write && !r.writable) return false;
        host = r.host + (address - r.begin);
        return true;
    }
    Range found;
    if (!worker.memory->find(address, found) || !inside(found)) return false;
    worker.ranges[worker.next_range] = found;
    worker.next_range = (worker.next_range + 1) % Worker::cached;
    if (write && !found.writable) return false;
    host = found.host + (address - found.begin);
    return true;
}

std::byte* find_lane(Warp& w, std::uint32_t lane, std::uint64_t address, const Access& access) {
    const auto in = [&](std::uint64_t at, std::uint64_t size) { return at < size && access.bytes <= size - at; };
    const LaunchState& launch = *w.block->launch;
    constexpr std::uint64_t low = (std::uint64_t{1} << window_shift) - 1;
    Memory memory = access.memory;
    std::uint64_t at = address;
    if (memory == Memory::Generic || memory == Memory::Global) {
        switch (address & ~low) {
            case shared_window: memory = Memory::Shared; break;
            case local_window: memory = Memory::Local; break;
            case param_window: memory = Memory::Param; break;
            case workspace_window: {
                at &= low;
                if (!launch.cooperative || !in(at, sizeof launch.workspace)) return nullptr;
                return const_cast<std::byte*>(launch.workspace) + at;
            }
            default: memory = Memory::Global;
        }
        if (memory != Memory::Global) {
            if (access.memory == Memory::Global) return nullptr;
            at &= low;
        }
    }
    switch (memory) {
        case Memory::Shared:
            // A generic pointer that went through cvta is an offset; one that did not is still in its window.
            if ((at & ~low) == shared_window) at &= low;
            return in(at, launch.shared_bytes) ? w.block->shared + at : nullptr;
        case Memory::Local:
            if ((at & ~low) == local_window) at &= low;
            return access.bytes <= local_granule && in(at, local_end(w)) ? w.local + local_offset(at, lane) : nullptr;
        case Memory::Param:
            if ((at & ~low) == param_window) at &= low;
            if (access.write || !in(at, launch.parameters.size())) return nullptr;
            return const_cast<std::byte*>(launch.parameters.data()) + at;
        default: {
            std::byte* host = nullptr;
            return find_global(*w.block->worker, at, access.bytes, access.write, host) ? host : nullptr;
        }
    }
}

bool find_lanes(Warp& w, const Instr* i, const std::uint64_t* address, std::uint32_t mask, const Access& access,
                std::byte** host) {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
        if ((address[l] & (access.bytes - 1)) != 0) {
            fail_address(w, i, l, address[l], access.bytes, access.write, true);
            return false;
        }
        host[l] = find_lane(w, l, address[l], access);
        if (host[l] == nullptr) {
            fail_address(w, i, l, address[l], access.bytes, access.write, false);
            return false;
        }
    }
    return true;
}

// imm bytes from global to shared memory, of which src[2] come from there and the rest is zero.
const Instr* run_copy_async(Warp& w, const Instr* i, std::uint32_t mask) {
    const auto bytes = static_cast<std::uint32_t>(i->imm);
    std::uint64_t to[lanes] = {}, from[lanes] = {};
    std::byte* target[lanes];
    for (unsigned l = 0; l < lanes; l++) {
        to[l] = (i->flags & flag_address32) != 0 ? w.at<const std::uint32_t>(i->src[0])[l]
                                                 : w.at<const std::uint64_t>(i->src[0])[l];
        from[l] = w.at<const std::uint64_t>(i->src[1])[l];
    }
    if (!find_lanes(w, i, to, mask, {Memory::Shared, bytes, true}, target)) return nullptr;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
        const std::uint32_t asked = w.at<const std::uint32_t>(i->src[2])[l], valid = asked < bytes ? asked : bytes;
        std::memset(target[l], 0, bytes);
        if ((from[l] & (bytes - 1)) != 0) return fail_address(w, i, l, from[l], bytes, false, true);
        std::byte* origin = nullptr;
        if (valid == 0) continue;
        if (!find_global(*w.block->worker, from[l], valid, false, origin))
            return fail_address(w, i, l, from[l], valid, false, false);
        std::memcpy(target[l], origin, valid);
    }
    return i + 1;
}

}  // namespace hpe::soft::exec
