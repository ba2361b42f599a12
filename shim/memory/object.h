// SPDX-License-Identifier: MIT
// An object: device memory that the CPU shares, in whole pages. It is one allocation, or a region: a chunk of addresses
// that the driver cuts into several small ones, which share pages (allocations.h). Its blocks are what the protocols
// know of it (protocols/blocks.h); the rest is what the runtime keeps with them.
//
// Bytes; addresses are the device's. Objects are recycled, and their memory is never given back. Threads: what is not
// atomic is set before the object is opened. Errors: nullptr or false where memory is short.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/blocks.h"
#include "shim/base/flag.h"
#include "shim/memory/allocations.h"
#include "shim/memory/small_copies.h"

namespace hpe {

// What happened to an object, or to an allocation of a region, for the report. Counts and bytes; relaxed.
struct Traffic {
    std::atomic<std::uint32_t> id{0};  // of the allocation
    std::atomic<std::uint64_t> to_host_bytes{0}, to_host_transfers{0}, to_device_bytes{0}, to_device_transfers{0};
    std::atomic<std::uint64_t> read_faults{0}, write_faults{0}, evictions{0};
    // Of to_host_bytes, what was prefetched: and was used, or wasted.
    std::atomic<std::uint64_t> ahead_used_bytes{0}, ahead_wasted_bytes{0};
    void clear() noexcept;
    // A transfer.
    void moved_to_host(std::size_t bytes) noexcept {
        to_host_bytes.fetch_add(bytes, std::memory_order_relaxed);
        to_host_transfers.fetch_add(1, std::memory_order_relaxed);
    }
    void moved_to_device(std::size_t bytes) noexcept {
        to_device_bytes.fetch_add(bytes, std::memory_order_relaxed);
        to_device_transfers.fetch_add(1, std::memory_order_relaxed);
    }
};
// Of objects that nobody asked a report of.
inline constinit Traffic nobodys_traffic;

class Object;

// What one call of the program allocated.
struct Allocation {
    Object* object = nullptr;
    std::uintptr_t base = 0;
    std::size_t bytes = 0;  // as requested
    CUcontext context = nullptr;
    bool ends_object = true;  // its free does

    explicit operator bool() const noexcept { return object != nullptr; }
};

// In lines of the cache: the blocks, what an allocation and a free of memory that the CPU never touches use, the rest.
// The driver's calls leave little in the caches.
class alignas(64) Object : public Blocks {
public:
    // What the program asked for, where `size` is whole pages; 0 of a region.
    std::size_t requested_size = 0;
    // What of `size` is there on the device: all, but of a variable's last page.
    std::size_t device_size = 0;
    CUcontext context = nullptr;  // that owns the device memory
    // InFlight::work() at the allocation, if the device was idle; 0 otherwise. Until the counter moves, the device copy
    // holds no data.
    std::uint64_t birth = 0;
    SmallCopies small_copies;  // of messages
    std::uint32_t report_id = 0;
    // How many messages are under way whose bytes an MPI reads or writes here by itself (copies/lent.h).
    std::atomic<std::uint32_t> lent{0};
    // Which other devices may access the memory is a matter of its context's peer access, and not of its own.
    bool accessed_as_context = false;
    // The shadow is mapped at `base` now. Not touched(), after which blocks may be locked, whether mapped or not; nor
    // Block's mapped, which says that pages were made.
    Flag shadowed{false};

private:
    Flag region_{false};

public:
    Flag in_host_valid_list{false};  // the list of objects with host-valid blocks
    // Calls that go on after their lease has ended (lease::ToRead) may read the view. If the memory is exported
    // meanwhile, the view is kept for good: nobody says when they end.
    Flag view_is_read{false}, view_is_kept{false};
    // Of a region. Kept when the object is recycled: a thread may still look into it.
    alignas(64) Allocations* allocations = nullptr;
    std::byte* view = nullptr;  // the always writable mapping of the shadow; owned by the arena
    Object* next_host_valid = nullptr;
    std::atomic<std::uint32_t> host_valid_blocks{0};  // an upper bound; 0: a launch can skip the object
    Object* next_of_all = nullptr;                    // the list of all that were ever made
    Object* next_idle = nullptr;                      // the list of those that are none now
    Traffic* traffic = &nobodys_traffic;              // the report's; of a region, what no allocation's is
    // Of a region whose allocations are counted for themselves, by the unit where each begins. Never given back.
    std::atomic<Traffic*>* of_allocations = nullptr;

    // Blocks::open(), with no page mapped and no block valid on the host.
    void open(std::size_t block_bytes, Block* words) noexcept;
    // Before that: a region without allocations, or none. False: there is no memory.
    bool become_region(bool region) noexcept;
    bool is_region() const noexcept { return region_.load(std::memory_order_acquire); }

    // The address lies in the object. A region has addresses that are no allocation's.
    Allocation allocation_of(std::uintptr_t address) const noexcept {
        auto* const object = const_cast<Object*>(this);
        if (!is_region()) return {object, base, requested_size, context};
        const auto one = holding(address);
        return one.bytes != 0 ? Allocation{object, base + one.offset, one.bytes, context} : Allocation{};
    }
    // Whether the CPU may access the address: its page has an allocation, and nothing that others write.
    bool holds(std::uintptr_t address) const noexcept {
        if (!is_region()) return true;
        const auto page = (address - base) / kPage * kPage;
        if (page >= Allocations::kChunk) return false;  // recycled meanwhile
        if (allocations->uncached(page)) return false;
        if (allocations->holding(page).bytes != 0) return true;
        const auto next = allocations->from(page);
        return next.bytes != 0 && next.offset < page + kPage;
    }
    // How many bytes it may access from there on, as far as `most`.
    std::size_t accessible_from(std::uintptr_t address, std::size_t most) const noexcept {
        const auto end = base + size;
        if (!is_region()) return std::min(end - address, most);
        auto at = address;
        while (at < end && at - address < most && holds(at)) at = at / kPage * kPage + kPage;
        return std::min(at - address, most);
    }
    // The address of a region's allocation, by which the page of an accessible address is accessible.
    std::uintptr_t allocation_in_page(std::uintptr_t address) const noexcept {
        const auto page = (address - base) / kPage * kPage;
        for (const auto at : {address - base, page}) {
            if (const auto one = allocations->holding(at); one.bytes != 0) return base + one.offset;
        }
        return base + allocations->from(page).offset;
    }
    // What lies in the block of the address' allocation; of all of it where that is the object.
    Allocations::One part_of_block(std::uint32_t index, std::uintptr_t address) const noexcept {
        const auto begin = offset_of(index), end = begin + bytes_of(index), at = address - base;
        if (!is_region()) return {begin, end - begin};
        auto one = allocations->holding(at);
        if (one.bytes == 0) one = {at / kPage * kPage, kPage};
        auto first = std::max(begin, one.offset / kPage * kPage);
        const auto last = allocations->next_uncached(at, std::min(end, one.end()));
        for (auto page = first; page < at; page += kPage) {
            if (allocations->uncached(page)) first = page + kPage;
        }
        return {first, last - first};
    }
    // How many bytes from the address on are its allocation's, for transfers: with the rest of the last page, if the
    // page is its own.
    std::size_t bytes_from(std::uintptr_t address) const noexcept {
        if (!is_region()) return base + size - address;
        const auto offset = address - base, end = holding(address).end();
        return end > offset ? allocations->next_uncached(offset, end) - offset : 0;
    }
    // Calls run(offset, bytes) for what is allocated of [offset, offset + bytes), and shared, as long as that returns
    // true.
    template <class Run>
    bool for_allocated(std::size_t offset, std::size_t bytes, Run&& run) const noexcept {
        if (!is_region()) return run(offset, std::min(bytes, device_size - offset));
        const auto end = offset + bytes;
        auto one = allocations->holding(offset);
        if (one.bytes == 0) one = allocations->from(offset);
        for (; one.bytes != 0 && one.offset < end; one = allocations->from(one.offset + 1)) {
            const auto first = std::max(one.offset, offset), last = std::min(one.end(), end);
            if (first < last && !for_shared(first, last, run)) return false;
        }
        return true;
    }
    // The same for the pages that have something of it.
    template <class Run>
    bool for_accessible(std::size_t offset, std::size_t bytes, Run&& run) const noexcept {
        if (!is_region()) return run(offset, bytes);
        std::size_t first = 0, last = 0;
        const bool all = for_allocated(offset, bytes, [&](std::size_t at, std::size_t part) {
            const auto begin = at / kPage * kPage, end = (at + part + kPage - 1) / kPage * kPage;
            if (last != 0 && begin <= last) {
                last = end;
                return true;
            }
            const bool goes_on = last == 0 || run(first, last - first);
            first = begin;
            last = end;
            return goes_on;
        });
        return all && (last == 0 || run(first, last - first));
    }
    // Where the report counts what happens there: of a region that is the allocation, or the next one, or the last one.
    Traffic& traffic_at(std::size_t offset) const noexcept {
        if (!is_region() || of_allocations == nullptr || offset >= Allocations::kChunk) return *traffic;
        auto one = allocations->holding(offset);
        if (one.bytes == 0) one = allocations->from(offset);
        if (one.bytes == 0) one = allocations->until(offset);
        Traffic* const found = of_allocations[one.offset / Allocations::kUnit].load(std::memory_order_acquire);
        return found != nullptr && one.bytes != 0 ? *found : *traffic;
    }
    std::uint32_t report_id_at(std::size_t offset) const noexcept {
        const auto id = traffic_at(offset).id.load(std::memory_order_relaxed);
        return id != 0 ? id : report_id;
    }
    // Calls count(traffic, bytes) for what is allocated of [offset, offset + bytes).
    template <class Count>
    void for_traffic(std::size_t offset, std::size_t bytes, Count&& count) const noexcept {
        if (!is_region() || of_allocations == nullptr) return count(*traffic, allocated_bytes(offset, bytes));
        for_allocated(offset, bytes, [&](std::size_t at, std::size_t part) {
            count(traffic_at(at), part);
            return true;
        });
    }
    std::size_t allocated_bytes(std::size_t offset, std::size_t bytes) const noexcept {
        if (is_region() && bytes >= Allocations::kChunk && !allocations->any_uncached()) return allocations->bytes();
        std::size_t sum = 0;
        for_allocated(offset, bytes, [&](std::size_t, std::size_t part) {
            sum += part;
            return true;
        });
        return sum;
    }

private:
    // The object may be recycled meanwhile, and hold other addresses.
    Allocations::One holding(std::uintptr_t address) const noexcept {
        const auto offset = address - base;
        return offset < Allocations::kChunk ? allocations->holding(offset) : Allocations::One{};
    }
    // Of an allocation's bytes.
    template <class Run>
    bool for_shared(std::size_t first, std::size_t last, Run&& run) const noexcept {
        if (!allocations->any_uncached()) [[likely]] {
            return run(first, last - first);
        }
        while ((first = allocations->next_shared(first, last)) < last) {
            const auto end = allocations->next_uncached(first, last);
            if (!run(first, end - first)) return false;
            first = end;
        }
        return true;
    }
};
static_assert(sizeof(Object) == 192);

// Gives out objects and keeps their memory for ever.
class ObjectPool {
public:
    static Object* take() noexcept;
    static void give_back(Object*) noexcept;

    // Calls run(object) for each that is open: for what goes through all of them. The caller makes sure that none of
    // those it uses ends meanwhile. Also inside the fault path.
    template <class Run>
    static void for_open(Run&& run) {
        for (auto* object = all.load(std::memory_order_acquire); object != nullptr; object = object->next_of_all) {
            if (object->is_open()) run(*object);
        }
    }

private:
    static std::atomic<Object*> all;
};

}  // namespace hpe
