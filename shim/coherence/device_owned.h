// SPDX-License-Identifier: MIT
// Device memory that the library knows of and does not share: what a CPU access to it should be answered with.
// Addresses are device addresses, sizes bytes. Threads: any, add() and remove() outside the fault path. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hpe::device_owned {

// `reason` is a literal that ends the sentence "... is not shared with the CPU: ". Outside the fault path.
void add(std::uintptr_t base, std::size_t size, const char* reason);
void remove(std::uintptr_t base);

struct Entry {
    std::uintptr_t base = 0;
    std::size_t size = 0;
    const char* reason = nullptr;
};
// In the fault path: takes the lock only if it is free, false otherwise.
bool find(std::uintptr_t address, Entry& out) noexcept;

}  // namespace hpe::device_owned
