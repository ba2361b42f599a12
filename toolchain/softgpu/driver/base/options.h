// SPDX-License-Identifier: MIT
// The soft device's options (toolchain/softgpu/README.md), read from the environment once, by cuInit.
//
// Threads: constant once cuInit has read them. Errors: false, after a line on stderr.
#pragma once

#include <cstdint>

namespace hpe::soft {

// A compute capability, and the limits that differ between them. Source: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability". Bytes are of shared memory.
struct Capability {
    const char* name;
    int number;
    unsigned threads_per_multiprocessor, blocks_per_multiprocessor;
    unsigned shared_per_multiprocessor, shared_per_block_optin;
};
constexpr Capability capabilities[] = {
    {"7.5", 75, 1024, 16, 64 << 10, 64 << 10},     {"8.0", 80, 2048, 32, 164 << 10, 163 << 10},
    {"8.6", 86, 1536, 16, 100 << 10, 99 << 10},    {"8.7", 87, 1536, 16, 164 << 10, 163 << 10},
    {"8.9", 89, 1536, 24, 100 << 10, 99 << 10},    {"9.0", 90, 2048, 32, 228 << 10, 227 << 10},
    {"10.0", 100, 2048, 32, 228 << 10, 227 << 10},
};
inline constexpr const Capability& newest_capability = capabilities[6];

struct Options {
    unsigned devices = 1;               // HPE_SOFT_DEVICES
    std::uint64_t memory = 4ull << 30;  // HPE_SOFT_MEMORY: bytes per device
    bool peer = true;                   // HPE_SOFT_PEER: not 0
    bool peer_atomics = true;           // HPE_SOFT_PEER: 1, as over NVLink
    std::uint64_t link = 0;             // HPE_SOFT_LINK: bytes per second each way; 0: as fast as memcpy
    std::uint64_t pageable = 0;         // HPE_SOFT_PAGEABLE: the same for pageable copies; 0: as HPE_SOFT_LINK
    std::uint64_t latency = 0;          // HPE_SOFT_LATENCY: microseconds that every copy takes at least
    std::uint64_t device_latency = 0;   // HPE_SOFT_DEVICE_LATENCY: microseconds before copies between device memory
    std::uint64_t queue = 0;            // HPE_SOFT_QUEUE: operations that a stream holds; 0: any number
    unsigned threads = 0;               // HPE_SOFT_THREADS: that run kernels; 0: one per usable core
    bool races = false;                 // HPE_SOFT_CHECK=race: look for races in shared memory
    const Capability* capability = &newest_capability;  // HPE_SOFT_COMPUTE
};

// False: a value was not understood, and a line on stderr says which.
bool read_options(Options& out);

}  // namespace hpe::soft
