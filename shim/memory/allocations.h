// SPDX-License-Identifier: MIT
// Which allocations lie in a chunk of device addresses that the driver cuts into several: where each begins, and how
// many bytes the program asked for. What lies between them is nobody's, and never copied. And which of its pages have
// memory, too, that others may write (coherence/uncached.h): such a page is not shared at all.
//
// Bytes; offsets from the chunk's beginning. Threads: any, also inside the fault path; add() and remove() by one at a
// time. Errors: none; memory of zero bytes is a chunk without allocations.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "protocols/blocks.h"

namespace hpe {

class Allocations {
public:
    // Of device addresses that the driver maps and unmaps as a whole: 2 MiB on all devices of today (docs/hardware.md).
    static constexpr std::size_t kChunk = std::size_t{2} << 20;
    // No two allocations begin in one (CUDA C++ Programming Guide, "Device Memory Accesses": at least so aligned).
    static constexpr std::size_t kUnit = 256;
    static constexpr std::size_t kUnits = kChunk / kUnit;

    struct One {
        std::size_t offset = 0, bytes = 0;  // no bytes: there is none
        std::size_t end() const noexcept { return offset + bytes; }
    };

    // `offset` is a multiple of kUnit.
    void add(std::size_t offset, std::size_t bytes) noexcept {
        const auto unit = offset / kUnit;
        bytes_[unit].store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
        count(1, bytes);
        begins_[unit / kBits].fetch_or(bit(unit), std::memory_order_seq_cst);
    }
    void remove(std::size_t offset) noexcept {
        const auto unit = offset / kUnit;
        begins_[unit / kBits].fetch_and(~bit(unit), std::memory_order_seq_cst);
        count(std::size_t{0} - 1, std::size_t{0} - bytes_of(unit));
    }
    std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
    // Of all of them.
    std::size_t bytes() const noexcept { return sum_.load(std::memory_order_relaxed); }
    // That begins there.
    One at(std::size_t offset) const noexcept {
        const auto unit = offset / kUnit;
        const bool begins =
            offset % kUnit == 0 && (begins_[unit / kBits].load(std::memory_order_seq_cst) & bit(unit)) != 0;
        return begins ? One{offset, bytes_of(unit)} : One{};
    }
    // That the byte belongs to, or the rest of whose last unit it lies in: nothing else can be there.
    One holding(std::size_t offset) const noexcept {
        const auto one = until(offset);
        return one.bytes != 0 && offset / kUnit <= (one.end() - 1) / kUnit ? one : One{};
    }
    // The last that begins at or before the offset.
    One until(std::size_t offset) const noexcept {
        const auto unit = offset / kUnit;
        auto word = unit / kBits;
        auto bits = begins_[word].load(std::memory_order_seq_cst) & (~std::uint64_t{0} >> (kBits - 1 - unit % kBits));
        while (bits == 0) {
            if (word == 0) return {};
            bits = begins_[--word].load(std::memory_order_seq_cst);
        }
        const auto begin = word * kBits + static_cast<std::size_t>(std::bit_width(bits)) - 1;
        return {begin * kUnit, bytes_of(begin)};
    }
    // The first that begins at or behind the offset.
    One from(std::size_t offset) const noexcept {
        auto unit = (offset + kUnit - 1) / kUnit;
        if (unit >= kUnits) return {};
        auto word = unit / kBits;
        auto bits = begins_[word].load(std::memory_order_seq_cst) & (~std::uint64_t{0} << unit % kBits);
        while (bits == 0) {
            if (++word == begins_.size()) return {};
            bits = begins_[word].load(std::memory_order_seq_cst);
        }
        unit = word * kBits + static_cast<std::size_t>(std::countr_zero(bits));
        return {unit * kUnit, bytes_of(unit)};
    }

    // Of whole pages, until mark_shared() or clear_uncached().
    void mark_uncached(std::size_t page) noexcept {
        uncached_[page / kPage / kBits].fetch_or(bit(page / kPage), std::memory_order_seq_cst);
        any_uncached_.store(true, std::memory_order_seq_cst);
    }
    void mark_shared(std::size_t page) noexcept {
        uncached_[page / kPage / kBits].fetch_and(~bit(page / kPage), std::memory_order_seq_cst);
    }
    bool uncached(std::size_t offset) const noexcept {
        return any_uncached() &&
               (uncached_[offset / kPage / kBits].load(std::memory_order_seq_cst) & bit(offset / kPage)) != 0;
    }
    bool any_uncached() const noexcept { return any_uncached_.load(std::memory_order_seq_cst); }
    void clear_uncached() noexcept {
        if (!any_uncached()) return;
        for (auto& word : uncached_) word.store(0, std::memory_order_relaxed);
        any_uncached_.store(false, std::memory_order_seq_cst);
    }
    // From the offset on, where it is in such a page; `end` if nothing before it is.
    std::size_t next_uncached(std::size_t offset, std::size_t end) const noexcept {
        return any_uncached() ? next(offset, end, true) : end;
    }
    std::size_t next_shared(std::size_t offset, std::size_t end) const noexcept { return next(offset, end, false); }

private:
    // Nobody else changes them: a locked instruction would take as long as all else.
    void count(std::size_t allocations, std::size_t bytes) noexcept {
        count_.store(count_.load(std::memory_order_relaxed) + allocations, std::memory_order_relaxed);
        sum_.store(sum_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    }
    std::size_t next(std::size_t offset, std::size_t end, bool in_uncached) const noexcept {
        while (offset < end && uncached(offset) != in_uncached) offset = offset / kPage * kPage + kPage;
        return std::min(offset, end);
    }
    static constexpr std::size_t kBits = 64;
    static std::uint64_t bit(std::size_t unit) noexcept { return std::uint64_t{1} << unit % kBits; }
    // Of the last allocation that began there: so never 0 where one begins.
    std::size_t bytes_of(std::size_t unit) const noexcept { return bytes_[unit].load(std::memory_order_relaxed); }

    std::array<std::atomic<std::uint64_t>, kUnits / kBits> begins_;
    std::array<std::atomic<std::uint32_t>, kUnits> bytes_;
    std::atomic<std::size_t> count_, sum_;
    std::array<std::atomic<std::uint64_t>, kChunk / kPage / kBits> uncached_;
    std::atomic<bool> any_uncached_;
};

}  // namespace hpe
