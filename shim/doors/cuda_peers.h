// SPDX-License-Identifier: MIT
// Doors of peer access. Copies between two objects of cudaMalloc's on different devices go directly where they can
// (transfer/peers.h): every form of copy, but not inside graphs, nor in three-dimensional batches.
//
// Sizes in bytes. Threads, ownership and errors: door.h.
#pragma once

#include "shim/doors/door.h"
#include "shim/transfer/peers.h"

namespace hpe::doors {

// The program is about to copy so many bytes.
inline void expect_copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
    if (bytes < Peers::kWorthwhile || !peers.several_contexts()) [[likely]] {
        return;
    }
    const Object* target = coherence().object_of(to);
    const Object* source = coherence().object_of(from);
    if (target == nullptr || source == nullptr || target->context == source->context || !target->accessed_as_context ||
        !source->accessed_as_context) {
        return;
    }
    peers.before_copy({static_cast<CUcontext>(target->context), to}, {static_cast<CUcontext>(source->context), from});
}

template <class C>
CUresult enable_peer_access(const C& call, CUcontext peer, unsigned flags) {
    return peers.program_enables(peer, [&] { return call(peer, flags); });
}

template <class C>
CUresult disable_peer_access(const C& call, CUcontext peer) {
    return peers.program_disables(peer, [&] { return call(peer); });
}

}  // namespace hpe::doors
