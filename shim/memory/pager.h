// SPDX-License-Identifier: MIT
// The mappings at device addresses. Every function gives up the reserve of mappings.h if the kernel has no more, and
// tries again; it returns false on failure with errno set, and says nothing. Threads: any, also inside the fault path
// (system calls only).
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/state.h"
#include "shim/memory/object.h"

namespace hpe::pager {

// Maps memory of the arena at `address`, in place of the driver's reservation: without access what is mapped so
// (Arena::closed), else writable as a whole, for shadows whose mprotect the kernel refuses.
bool map_shadow(std::uintptr_t address, std::size_t size, std::byte* memory) noexcept;

// Takes all access from a whole mapped shadow, whatever its blocks' states: never refused for lack of mappings. An
// access to a valid block then traps, and gives the block its protection back.
bool close_shadow(std::uintptr_t address, std::size_t size, std::byte* closed) noexcept;
bool close_shadow(const Object& object) noexcept;

// Puts back what the driver had there: an inaccessible reservation.
bool unmap_shadow(std::uintptr_t address, std::size_t size) noexcept;

// Gives a range of a shadow the protection that its state demands. Fails with ENOMEM at the limit on mappings.
bool protect(std::uintptr_t address, std::size_t size, State state) noexcept;
// The same of an object's range. Pages that no allocation has stay closed.
bool protect(const Object& object, std::size_t offset, std::size_t bytes, State state) noexcept;

}  // namespace hpe::pager
