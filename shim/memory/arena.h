// SPDX-License-Identifier: MIT
// The memory behind all shadows: shared anonymous memory, mapped once writable (the view) and once closed, from which
// Pager duplicates the mapping at a device address. There is no file descriptor, so a program that closes every
// descriptor it does not know does no harm.
//
// Ranges are recycled with their pages: the first touch of a page costs more than any later use (2 GB/s against 11,
// docs/hardware.md). The number of idle pages is bounded. Ranges that are used as a whole get huge pages, which the
// kernel makes of small ones when asked to (madvise(2), MADV_COLLAPSE, Linux 6.1): a huge page is made in a tenth of
// the time that its small pages take, and its protection is changed in a five-hundredth.
//
// Threads: take() and give_back() from any thread, outside the fault path (they lock and allocate). The others also
// inside it.
//
// A range belongs to the caller from take() to give_back(). Errors: nullptr or false.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hpe {

class Arena {
public:
    // The unit of pinning, and a huge page; a range of this size or more starts on it, a smaller one does not cross it.
    // Bytes.
    static constexpr std::size_t kChunk = std::size_t{2} << 20;

    // A writable range whose content is undefined, or nullptr when the address space is exhausted. Address and size in
    // whole pages. A range for a part of a 2 MiB chunk of device addresses has the same place in a chunk that it shares
    // with what else is taken for that one: what lies side by side on the device lies so in the arena.
    std::byte* take(std::uintptr_t address, std::size_t size) noexcept;
    // What was taken for that address. `touched`: some of its pages may exist.
    void give_back(std::byte* view, std::uintptr_t address, std::size_t size, bool touched) noexcept;

    // The same memory, mapped without access: what Pager duplicates.
    static std::byte* closed(std::byte* view) noexcept;

    // Bytes of the range were moved, or are about to be.
    static void note_use(std::byte* view, std::size_t bytes) noexcept;
    // Whether the chunk that holds `view` is pinned. `may_pin`: it is pinned now if enough was moved before for that to
    // pay (one transfer of 64 KiB, or as much in smaller ones) and the bound on pinned memory allows; that waits for
    // the device.
    static bool pinned(std::byte* view, bool may_pin) noexcept;
    // Each chunk that lies wholly in the range gets a huge page, as long as the kernel has some. The content stays.
    static void use_huge_pages(std::byte* view, std::size_t size) noexcept;
    // Whether the chunk that holds `view` is a huge page.
    static bool huge(const std::byte* view) noexcept;

    // Whether bytes of the chunk that holds `view` were moved before, so that it has pages.
    static bool used(const std::byte* view) noexcept;
    // Calls run(view, bytes) for each part of the memory that lies in one chunk, as long as that returns true.
    template <class Run>
    static bool for_chunks(std::byte* view, std::size_t bytes, Run&& run) noexcept {
        while (bytes != 0) {
            const auto part = std::min(bytes, kChunk - reinterpret_cast<std::uintptr_t>(view) % kChunk);
            if (!run(view, part)) return false;
            view += part;
            bytes -= part;
        }
        return true;
    }
    // The context ended: nothing is pinned any more that was pinned in it.
    static void forget_pins(void* context) noexcept;
};

}  // namespace hpe
