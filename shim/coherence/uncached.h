// SPDX-License-Identifier: MIT
// CPU accesses to device memory of which no copy can be kept (device_owned.h): other processes, devices or libraries
// write it whenever they like, and tell this process so by a flag in shared memory, say. So each instruction that
// accesses it reads its page from the device as it is then, and what it changed is on the device before the next
// instruction, as with memory that is mapped uncached.
//
// What it buys: such an access would end the process. It costs two transfers and two signals an instruction, some 20
// us; the first such access of a process is told to copy larger parts.
//
// A thread opens pages, runs one instruction (doors/single_step.h) and closes them. One thread at a time; others wait
// for it, but do not trap where it has a page open: within the time of one instruction they see the page as that thread
// does, and what they write goes along. Before they give the device work, and when they have waited for it, they let
// that thread finish (let_step_end): so the order of a thread's own accesses and calls is kept.
//
// Bytes, device addresses. Threads: any, in the fault path. Errors: open() is false where the driver cannot give the
// bytes; bytes that it does not take make later CUDA calls fail (Coherence::sticky_error).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace hpe::uncached {

// How many bytes from there on are in such memory, or not, alike.
struct Stretch {
    std::size_t bytes = 0;
    bool uncached = false;
    CUcontext context = nullptr;  // in which it can be copied
};
Stretch stretch(std::uintptr_t begin, std::size_t bytes) noexcept;
// For calls that do not trap (lease.h), between such memory and memory that can be accessed. False: the device does not
// give, or take, the bytes.
bool read(std::byte* to, std::uintptr_t from, std::size_t bytes) noexcept;
bool write(std::uintptr_t to, const std::byte* from, std::size_t bytes) noexcept;
// Of a copy of such memory: the bytes that are other now than before.
bool write_changes(std::uintptr_t to, std::byte* now, const std::byte* before, std::size_t bytes) noexcept;

// Opens the page at the address, or opens it anew. The thread's first one waits for the device work that was enqueued
// before, as any access. False: it is no such memory, or cannot be read, or not be written; pages that are open stay
// so.
bool open(std::uintptr_t address, bool to_write) noexcept;
// The calling thread has pages open.
bool any_open() noexcept;
// Closes them, and sends what was changed.
void close() noexcept;

// Waits until no other thread has pages open. Any thread but one that has some, or that has a block locked.
void let_step_end() noexcept;

// In a forked child, which has no device: no page is open there.
void in_child() noexcept;

}  // namespace hpe::uncached
