// SPDX-License-Identifier: MIT
// What moved, per object and in total, written at exit (HPE_REPORT). Outside the fault path; any thread.
// Counts and bytes. Objects are borrowed for the call. Errors: a report that cannot be written is said in one line;
// std::bad_alloc where that is not excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shim/base/flag.h"
#include "shim/memory/object.h"

namespace hpe::report {

// Where somebody asked for it (configure(), number_allocations()), allocations are numbered in order and count for
// themselves: objects, but for regions, and the allocations of regions.
HPE_HIDDEN extern constinit Flag wanted;  // by the report, the timeline or the line of progress
inline bool numbered() noexcept { return wanted.load(std::memory_order_relaxed) != 0; }
void number(Object& object);               // for object_added
void list(const Object& object) noexcept;  // for object_removed
inline void object_added(Object& object) {
    if (numbered()) number(object);
}
inline void object_removed(const Object& object) noexcept {
    if (numbered()) list(object);
}
void allocation_added(Object& region, std::size_t offset);
void allocation_removed(const Object& region, Allocations::One allocation) noexcept;
// Those that live, of the numbered ones.
std::uint32_t objects() noexcept;
// A copy of the program's own went through staging. Bytes.
void copy_staged(std::size_t bytes) noexcept;

// "" : none; "-": text on stderr; otherwise a path, JSON if it ends in .json, its %p and %r replaced (output.h).
void configure(const std::string& destination, std::string protocol);
// Also without a report: the timeline names them, the line of progress says how many there are.
void number_allocations() noexcept;
bool is_json(const std::string& destination) noexcept;
// Writes the report, once. Objects that still live are counted as they stand.
void write() noexcept;

}  // namespace hpe::report
