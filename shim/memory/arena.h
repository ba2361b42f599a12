// SPDX-License-Identifier: MIT
// The memory behind all shadows: shared anonymous memory, mapped once writable (the view) and once closed, from which
// Pager duplicates the mapping at a device address. There is no file descriptor, so a program that closes every
// descriptor it does not know does no harm.
//
// Ranges are recycled with their pages: the first touch of a page costs more than anything that is done with it later
// (2 GB/s against 11, docs/hardware.md). At most a bound of idle pages is kept. What is used as a whole gets huge
// pages, which the kernel makes of small ones when it is asked to (madvise(2), MADV_COLLAPSE, Linux 6.1): one is made
// in a tenth of the time, and its protection changed in a five-hundredth.
//
// Threads: take() and give_back() from any thread, outside the fault path (they lock and allocate). The others also
// inside it.
//
// A range belongs to the caller from take() to give_back(). Errors: nullptr or false, never an exception of its own.
#pragma once

#include <cstddef>

namespace hpe {

class Arena {
public:
    // The unit of pinning, and a huge page; a range of this size or more starts on it, a smaller one does not cross it.
    // Bytes.
    static constexpr std::size_t kChunk = std::size_t{2} << 20;

    // A writable range whose content is undefined, or nullptr when the address space is exhausted. Size in whole pages.
    std::byte* take(std::size_t size);
    void give_back(std::byte* view, std::size_t size);

    // The same memory, mapped without access: what Pager duplicates.
    static std::byte* closed(std::byte* view) noexcept;

    // Whether the chunk that holds `view` is pinned. It is pinned when it is used for the second time, if the bound on
    // pinned memory allows; that waits for the device.
    enum class Pinning {
        Never,         // only asks
        IfUsedBefore,  // counts as no use, but pins what was used once
        Use,
    };
    static bool pinned(std::byte* view, Pinning pinning) noexcept;
    // The whole chunks in the range get a huge page each, as long as the kernel has some. Their content stays.
    static void use_huge_pages(std::byte* view, std::size_t size) noexcept;
    // Whether the chunk that holds `view` is one.
    static bool huge(const std::byte* view) noexcept;

    // Whether data went through the chunk that holds `view` before: the pages are there.
    static bool used(const std::byte* view) noexcept;
    // The driver forgot everything that was pinned in this context.
    static void forget_pins(void* context) noexcept;
};

}  // namespace hpe
