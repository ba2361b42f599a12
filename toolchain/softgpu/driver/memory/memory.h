// SPDX-License-Identifier: MIT
// Making and ending allocations of device memory (CUDA Driver API, "Memory Management", cuMemAlloc), and finding the
// bytes behind any address.
//
// Addresses and sizes in bytes. Allocations are the address table's. Threads: any. Errors: 0, nullptr, or an Error
// where that is said.
#pragma once

#include <cstddef>
#include <cstdint>

#include "toolchain/softgpu/driver/device/addresses.h"

namespace hpe::soft {

class Context;

// Device memory of a context's device; 0 when full.
std::uint64_t allocate_device(Context& context, std::uint64_t bytes, bool module_variable = false);
// Ends an allocation that has been taken out of the table; no synchronisation.
void end_allocation(Allocation& allocation);
// All of a context's memory, when the context ends.
void free_everything(Context& context);

// How the host stands to the memory at an address.
enum class Place { Pageable, Pinned, Managed, OnDevice };

// Checks that [address, address + bytes) lies in one piece of memory and says what it is. Throws INVALID_VALUE.
Place place_of(std::uint64_t address, std::uint64_t bytes);

// Whether work outside of graphs may use that range of a place on the device: the device, or some device if it is
// nullptr, may access pools' and mapped memory there, and what graphs allocate is allocated. Throws INVALID_VALUE.
void check_access(std::uint64_t address, std::uint64_t bytes, bool for_writing, const Device* device);

// The bytes at `address` and how many follow in the same piece, at most `bytes`. nullptr: no longer valid memory.
std::byte* bytes_at(std::uint64_t address, std::uint64_t bytes, std::uint64_t& contiguous, bool for_writing);

// Has the application asked that synchronous operations on this memory always wait (SYNC_MEMOPS)?
bool waits_always(const Context& context, std::uint64_t address);

}  // namespace hpe::soft
