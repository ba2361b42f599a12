// SPDX-License-Identifier: MIT
// Address ranges that the application has reserved for its own mappings of physical memory (CUDA Driver API, "Virtual
// Memory Management").
//
// Addresses and sizes in bytes. Threads: any. Errors: false.
#pragma once

#include <cstdint>

namespace hpe::soft {

struct VirtualRange {
    std::uint64_t address = 0, size = 0;
};

// The reserved range that holds this address. False: none does.
bool virtual_range_of(std::uint64_t address, VirtualRange& out);

}  // namespace hpe::soft
