// SPDX-License-Identifier: MIT
// Device memory that the library knows of and keeps no host copy of, since others may write it at any time, or because
// its pages are not its own: why that is, for the user, and what a CPU access needs that is served all the same
// (uncached.h).
//
// Addresses are device addresses, sizes bytes. Threads: any; find() and overlapping() also inside the fault path, the
// others outside it. Errors: std::bad_alloc, from what adds.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shim/base/flag.h"

namespace hpe::device_owned {

struct Entry {
    std::uintptr_t base = 0;
    std::size_t size = 0;
    const char* reason = nullptr;
    CUcontext context = nullptr;  // in which it can be copied; nullptr: that is not known
    bool of_graph = false;        // there after each run of a graph that allocates it, until it is freed
    bool read_only = false;       // not even its device may write it
    std::size_t requested = 0;    // by the program, where the driver was asked for whole pages
};

// In the current context, or in the given one. `reason` is a literal: why the memory stays on the device.
void add(std::uintptr_t base, std::size_t size, const char* reason);
void add(std::uintptr_t base, std::size_t size, const char* reason, CUcontext context, std::size_t requested = 0);
// The same of memory that the driver has opened here, whose size it knows.
void add_opened(std::uintptr_t base, const char* reason);
// The same of memory that a graph will allocate. Its addresses stay the graph's; the driver says when it is there.
void add_of_graph(std::uintptr_t base, std::size_t size);
void remove(std::uintptr_t base);
// The driver is about to free what begins there (no allocation of a graph, which stays the graph's), or to end the
// context: no access begins any more, and what was under way has ended. put_back() if the driver refuses.
std::vector<Entry> take(std::uintptr_t base);
std::vector<Entry> take(CUcontext context);
void put_back(std::span<const Entry> entries);
// Whether the driver has memory there.
bool is_there(std::uintptr_t base) noexcept;
// All that lie in the range.
void remove_within(std::uintptr_t begin, std::size_t bytes);
void make_read_only(std::uintptr_t begin, std::size_t bytes);
// Allocations of graphs that others have taken the place of: their graph has gone.
HPE_HIDDEN extern constinit Flag any_of_graph;  // ever
void remove_those_of_graphs(std::uintptr_t begin, std::size_t bytes);
inline void remove_of_graphs(std::uintptr_t begin, std::size_t bytes) {
    if (any_of_graph.load(std::memory_order_acquire) != 0) remove_those_of_graphs(begin, bytes);
}

// How often some came or went: who has found an address neither here nor among the objects may look again.
inline constinit std::atomic<std::uint64_t> changes{0};
// Whether there is any.
inline constinit std::atomic<std::size_t> count{0};
inline bool any() noexcept { return count.load(std::memory_order_acquire) != 0; }
// Those that have bytes of the range, in order and as far as there is room for them. Returns how many.
std::size_t overlapping(std::uintptr_t begin, std::size_t bytes, std::span<Entry> out) noexcept;
// The first of them.
inline bool find(std::uintptr_t begin, std::size_t bytes, Entry& out) noexcept {
    return overlapping(begin, bytes, {&out, 1}) != 0;
}

}  // namespace hpe::device_owned
