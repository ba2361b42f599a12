// SPDX-License-Identifier: MIT
// Call stacks out of a copy of a thread's registers and of the top of its stack, by libunwind's generic interface
// (libunwind-x86_64.so.8, as debuggers use it for other processes). It reads the copy and the files of modules.h, and
// nothing else of the process: no thread can pull anything away from under it.
//
// The library is opened on demand and kept to itself (RTLD_LOCAL): no symbol of it, and none of the _Unwind_ functions
// of the one that it stands on, meets the program's.
//
// Threads: open() any; walk() one at a time, outside the fault path. It calls sigprocmask, which is our door, for the
// calling thread. Errors: open() is false where the library is missing; walk() gives as many frames as are to be had.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hpe::unwinder {

// By DWARF's numbers but for the last: libunwind's order.
struct Registers {
    static constexpr std::size_t kBp = 6, kSp = 7, kIp = 16;
    std::array<std::uint64_t, 17> value{};
    std::uint64_t sp() const noexcept { return value[kSp]; }
    std::uint64_t ip() const noexcept { return value[kIp]; }
};

constexpr std::size_t kMostFrames = 64;

struct Frame {
    std::uintptr_t ip = 0;
    std::uintptr_t sp = 0;
    bool interrupted = false;  // ip is where it was interrupted, and not where a call returns to
};

struct Walk {
    std::array<Frame, kMostFrames> frames{};
    std::size_t count = 0;
    bool cut = false;  // it has callers that could not be found: more than were copied, or on another stack
};

bool open() noexcept;
bool is_open() noexcept;
// `stack` was copied from registers.sp() on.
void walk(const Registers& registers, std::span<const std::byte> stack, Walk& out) noexcept;
// Modules were unloaded.
void forget() noexcept;

}  // namespace hpe::unwinder
