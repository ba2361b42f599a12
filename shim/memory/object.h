// SPDX-License-Identifier: MIT
// An object: one device allocation that the CPU shares. Its blocks are what the protocols know of it
// (protocols/blocks.h); the rest is what the runtime keeps with them.
//
// Bytes; addresses are the device's. Objects are recycled, and their memory is never given back. Threads: what is not
// atomic is set before the object is opened. Errors: ObjectPool::take() may throw std::bad_alloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/blocks.h"

namespace hpe {

// What happened to an object, for the report. Counts and bytes; relaxed.
struct Traffic {
    std::atomic<std::uint64_t> to_host_bytes{0}, to_host_transfers{0}, to_device_bytes{0}, to_device_transfers{0};
    std::atomic<std::uint64_t> read_faults{0}, write_faults{0}, evictions{0};
    // Of to_host_bytes, what was prefetched: and was used, or wasted.
    std::atomic<std::uint64_t> ahead_used_bytes{0}, ahead_wasted_bytes{0};
    void clear() noexcept;
};
// Of objects that nobody asked a report of.
inline constinit Traffic nobodys_traffic;

class Object : public Blocks {
public:
    // What the program asked for, where `size` is whole pages.
    std::size_t requested_size = 0;
    std::byte* view = nullptr;  // the always writable mapping of the shadow; owned by the arena
    void* context = nullptr;    // the CUcontext that owns the device memory
    // InFlight::work() at the allocation, if the device was idle; 0 otherwise. Until the counter moves, the device copy
    // holds no data.
    std::uint64_t birth = 0;
    std::uint32_t report_id = 0;
    // Which other devices may access the memory is a matter of its context's peer access, and not of its own.
    bool accessed_as_context = false;
    // How many messages are under way whose bytes an MPI reads or writes here by itself (copies/lent.h).
    std::atomic<std::uint32_t> lent{0};
    std::atomic<bool> shadowed{false};                // the shadow is mapped at `base`
    std::atomic<std::uint32_t> host_valid_blocks{0};  // an upper bound; 0: a launch can skip the object
    std::atomic<bool> in_host_valid_list{false};      // the list of objects with host-valid blocks
    Object* next_host_valid = nullptr;
    std::atomic<bool> in_ever_mapped_list{false};  // of objects that were ever mapped; never leaves it
    Object* next_ever_mapped = nullptr;
    Object *next_live = nullptr, *previous_live = nullptr;  // the list of all objects
    Traffic* traffic = &nobodys_traffic;                    // the report's

    // Blocks::open(), with no page mapped and no block valid on the host.
    void open(std::size_t block_bytes, Block* words) noexcept;
};

// Gives out objects and keeps their memory for ever.
class ObjectPool {
public:
    Object* take();
    void give_back(Object*) noexcept;
};

}  // namespace hpe
