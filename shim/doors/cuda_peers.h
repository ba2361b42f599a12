// SPDX-License-Identifier: MIT
// Doors of peer access, and how copies between devices go: directly (transfer/peers.h) or through bounce buffers
// (copies/peer_staging.h).
//
// Directly: every form of copy between two objects of cudaMalloc's, but not inside graphs, nor in three-dimensional
// batches. Through bounce buffers: the linear forms, but not in batches.
//
// Sizes in bytes. Threads, ownership and errors: door.h.
#pragma once

#include "shim/copies/peer_staging.h"
#include "shim/doors/door.h"
#include "shim/transfer/peers.h"

namespace hpe::doors {

// The program is about to copy so many bytes. Returns the two contexts if the copy may go through bounce buffers.
struct Ends {
    CUcontext to = nullptr, from = nullptr;
};
inline Ends expect_copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
    if (bytes < Peers::kWorthwhile || !peers.several_contexts()) [[likely]] {
        return {};
    }
    const Object* target = coherence().object_of(to);
    const Object* source = coherence().object_of(from);
    if (target == nullptr || source == nullptr || target->context == source->context || !target->accessed_as_context ||
        !source->accessed_as_context) {
        return {};
    }
    const Ends ends{static_cast<CUcontext>(target->context), static_cast<CUcontext>(source->context)};
    if (!peers.before_copy({ends.to, to}, {ends.from, from})) return {};
    // A copy that the driver would refuse must not be made in part.
    const auto holds = [&](const Object& object, std::uintptr_t at) {
        const auto offset = at - object.base;
        return offset <= object.requested_size && bytes <= object.requested_size - offset;
    };
    return holds(*target, to) && holds(*source, from) ? ends : Ends{};
}

// The same where the program names the contexts.
inline Ends expect_copy(std::uintptr_t to, CUcontext to_context, std::uintptr_t from, CUcontext from_context,
                        std::size_t bytes) {
    const Ends ends = expect_copy(to, from, bytes);
    return ends.to == to_context && ends.from == from_context ? ends : Ends{};
}

using Ordered = peer_staging::Ordered;

template <class C>
CUresult enable_peer_access(const C& call, CUcontext peer, unsigned flags) {
    return peers.program_enables(peer, [&] { return call(peer, flags); });
}

template <class C>
CUresult disable_peer_access(const C& call, CUcontext peer) {
    return peers.program_disables(peer, [&] { return call(peer); });
}

}  // namespace hpe::doors
