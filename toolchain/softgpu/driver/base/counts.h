// SPDX-License-Identifier: MIT
// What HPE_SOFT_COUNT tells besides the calls; a real driver has nothing like it.
//
// Bytes, from the start of the process on. Threads: any. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace hpe::soft {

// Bytes copied between devices so far: directly, and through the host, as it must be without peer access both ways.
struct PeerBytes {
    std::atomic<std::uint64_t> direct{0}, through_host{0};
};
inline PeerBytes peer_bytes;

}  // namespace hpe::soft
