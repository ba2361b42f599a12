// SPDX-License-Identifier: MIT
// Where small allocations of one context or pool lie: many in one 2 MiB page, as in NVIDIA's driver, whose manual does
// not say so.
//
// Addresses and sizes in bytes; the pages are their giver's. Threads: any. Errors: 0.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace hpe::soft {

// From this size on an allocation owns its reservation, as on hardware.
constexpr std::uint64_t large_allocation = 2ull << 20;

// 512-byte aligned pieces of 2 MiB reservations.
class SmallHeap {
public:
    struct Slab {
        std::uint64_t address, offset;
        std::map<std::uint64_t, std::uint64_t> free;  // address -> bytes
    };
    // 0: every slab is full; allocate in a new one.
    std::uint64_t allocate(std::uint64_t bytes, std::uint64_t& offset);
    // The beginning of a slab that is the heap's from now on. No other thread can take the room before, or give the
    // slab back because nothing of it is used yet.
    std::uint64_t allocate_in_new(std::uint64_t slab_address, std::uint64_t slab_offset, std::uint64_t bytes,
                                  std::uint64_t& offset);
    // Returns the slab if nothing of it is used any more: it is the caller's again.
    std::optional<Slab> release(std::uint64_t address, std::uint64_t bytes);
    void keep_empty(const Slab& slab);  // one that release() returned
    std::vector<Slab> take_slabs();

private:
    std::mutex mutex_;
    std::map<std::uint64_t, Slab> slabs_;
    std::vector<std::uint64_t> recent_;  // freed addresses, the last one at the end
};

}  // namespace hpe::soft
