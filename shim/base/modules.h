// SPDX-License-Identifier: MIT
// The program and its libraries, as a call stack needs them: which one an address lies in, and the bytes of its file
// that say how to unwind. Bytes come from the file and never from the loaded copy, which another thread may unload at
// that moment; what another thread loads or unloads is seen at the next refresh().
//
// A module that was unloaded keeps its number, so that stacks taken before stay right.
//
// Threads: refresh() and the others by one thread at a time, outside the fault path and outside malloc's callers.
// refresh() takes the loader's lock for a moment and copies what it needs under it; the others take no lock of libc's.
// Errors: a module whose file is gone, or is another build than the one in memory, has no bytes; one
// that came and went between two looks is not known. kMost modules.
#pragma once

#include <link.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hpe::modules {

constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::size_t kMost = 4096;

struct Segment {
    std::uintptr_t begin = 0, end = 0;  // in memory; what the file holds of it
    std::uint64_t offset = 0;           // in the file
    bool writable = false;              // the file may say other than memory
};

struct Module {
    std::uintptr_t bias = 0;  // an address in memory less this is one in the file
    std::uintptr_t begin = 0, end = 0;
    std::uintptr_t unwind_table = 0;  // PT_GNU_EH_FRAME in memory; 0: none
    std::array<Segment, 6> segments{};
    std::array<unsigned char, 32> build_id{};
    std::size_t build_id_bytes = 0;
    std::uintptr_t build_id_at = 0;
    char path[512] = {};
    bool loaded = false;     // at the last refresh
    bool in_memory = false;  // the kernel's own (vDSO), which stays
    bool looked_at = false;  // its file was, and...
    bool same_file = false;  // ...is the one that was loaded
};

// Looks what is loaded now. False: addresses of a module that was unloaded are another's now.
bool refresh() noexcept;
// The loaded module that the address lies in, or kNone.
std::uint32_t find(std::uintptr_t address) noexcept;
const Module& at(std::uint32_t number) noexcept;
// All, by number.
std::span<const Module> all() noexcept;

// The eight bytes at an aligned address of the module; 0 for what is written after it was loaded, such as the pointer
// to the function that handles exceptions, which unwinding reads but does not use. False: they are not to be had.
bool read(std::uint32_t number, std::uintptr_t address, std::uint64_t& word) noexcept;

std::string build_id_text(const Module& module);

}  // namespace hpe::modules
