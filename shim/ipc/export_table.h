// SPDX-License-Identifier: MIT
// The table in which a process says what of its device memory others may read, and behind which of its own addresses it
// lies: by a handle of CUDA's, or as an image in host memory (host_images.h), or both. It is shared memory (memfd) that
// other processes of the same user find by its name in /proc, and that ends with the process.
//
// Only the owner writes entries; a reader counts what it has copied, and which of its copies its device has ended
// (copies_under_way.h). Bytes; addresses are the owner's. Threads and processes: any; an entry that was read counts
// only if its version did not change meanwhile. Errors: none.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hpe::ipc {

// Device memory as another process of the host opens it.
struct SharedMemory {
    CUipcMemHandle handle;  // of the allocation
    std::uint64_t id;       // of the allocation (CU_POINTER_ATTRIBUTE_BUFFER_ID)
    std::uint64_t offset;   // of the first byte in its allocation
};

// Where the bytes of a range are to be had.
struct Readable {
    SharedMemory memory{};
    std::uint32_t has_handle = 0;
    std::uint32_t on_host = 0;  // whether the same bytes lie in host memory there; else only the device has them
    // The image: the owner's address of the first byte (0: there is none), of the number (32 bits) that says how many
    // bytes are there, and the file that both lie in, by its descriptor in the owner.
    std::uint64_t image = 0, arrived = 0;
    std::uint64_t file = 0, inode = 0, file_bytes = 0, file_offset = 0;
};

static_assert(std::has_unique_object_representations_v<Readable>);  // no bits that nobody sets

struct ExportEntry {
    using Words = std::array<std::uint64_t, sizeof(Readable) / 8>;

    std::atomic<std::uint64_t> version;     // odd while the owner changes the entry
    std::atomic<std::uint64_t> begin, end;  // host addresses; equal: nothing
    // A Readable.
    std::array<std::atomic<std::uint64_t>, sizeof(Words) / 8> words;
    // Bytes that the reader copied from the device, or took from the image.
    std::atomic<std::uint64_t> fetched, taken;
};

// A device that copies out of the owner's memory.
struct alignas(64) ReadingDevice {
    std::atomic<std::int64_t> process;  // of which it is; 0: of none
    std::atomic<std::uint32_t> begun;   // copies, before MPI hears of them
    std::atomic<std::uint32_t> ended;   // of these, in order; the device itself writes it
};

struct ExportTable {
    static constexpr char kName[] = "libhpe-exports-4";  // with the version of this layout
    static constexpr std::size_t kEntries = 128, kEnded = 64, kPage = 4096;

    // On pages of their own, which readers pin.
    alignas(kPage) std::array<ReadingDevice, kPage / sizeof(ReadingDevice)> readers;
    alignas(kPage) std::array<ExportEntry, kEntries> entries;
    std::atomic<std::uint64_t> used;  // entries, from the first on, of which any was ever changed
    // Allocations that were exported and have been freed: their number, and the ids of the last ones.
    std::atomic<std::uint64_t> ended;
    std::array<std::atomic<std::uint64_t>, kEnded> ended_ids;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace hpe::ipc
