// SPDX-License-Identifier: MIT
// The soft device's options, read from the environment once, by cuInit.
// Threads: constant once cuInit has read them.
#pragma once

#include <cstdint>

namespace hpe::soft {

struct Options {
    unsigned devices = 1;               // HPE_SOFT_DEVICES
    std::uint64_t memory = 4ull << 30;  // HPE_SOFT_MEMORY: bytes per device
    bool peer = true;                   // HPE_SOFT_PEER
    std::uint64_t link = 0;             // HPE_SOFT_LINK: bytes per second each way; 0: as fast as memcpy
    std::uint64_t pageable = 0;         // HPE_SOFT_PAGEABLE: the same for pageable copies; 0: as HPE_SOFT_LINK
    std::uint64_t latency = 0;          // HPE_SOFT_LATENCY: microseconds that every copy takes at least
    unsigned threads = 0;               // HPE_SOFT_THREADS: that run kernels; 0: one per usable core
};

// False: a value was not understood, and a line on stderr says which.
bool read_options(Options& out);

}  // namespace hpe::soft
