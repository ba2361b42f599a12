// SPDX-License-Identifier: MIT
// Memory that malloc has mapped for one allocation alone: glibc's chunks of 128 KiB and more (mallopt(3),
// M_MMAP_THRESHOLD). Such memory is nobody's stack and holds nothing of malloc's but its header, and free unmaps it: so
// what is done to its pages ends with it, unseen.
//
// Source: glibc's malloc/malloc.c: a header of two words in front of the program's bytes, of which the first counts the
// bytes before it, and the second says how many follow, with IS_MMAPPED as the only flag. Other allocators have none.
//
// Bytes. Threads: any. Memory is only read by system calls: it may vanish meanwhile. Errors: nothing is found where
// memory cannot be read so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace hpe::malloc_chunk {

struct Chunk {
    std::uintptr_t begin = 0, header = 0;  // the mapping, and the header in it
};

// The chunk that the range lies in, if the mapping that holds the range is private, anonymous, readable and writable.
// Outside the fault path: it reads /proc/self/maps, and where the range is no chunk's beginning, nor in the chunk
// `known`, the headers that may be in the 64 MiB in front of it.
std::optional<Chunk> find(std::uintptr_t begin, std::size_t bytes, const Chunk& known) noexcept;

// Whether such a chunk is still there and holds the range. Async-signal-safe. True where it cannot be asked.
bool holds(const Chunk& chunk, std::uintptr_t begin, std::size_t bytes) noexcept;

// Whether headers can be read at all.
bool readable() noexcept;

}  // namespace hpe::malloc_chunk
