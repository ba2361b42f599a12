// SPDX-License-Identifier: MIT
// Which object an address belongs to.
//
// A radix tree over the 48-bit address space: 2 MiB chunks; a chunk that several objects share is divided into eight
// parts, these again, and those into pages (no two objects share a page). So an object of whole chunks costs an entry
// for each, and one that begins and ends inside shared ones at most some forty more. find() takes no lock and may run
// in a signal handler; insert() and erase() serialise among themselves and allocate. Tree nodes are never freed.
//
// Addresses are device addresses, sizes bytes. Objects are borrowed, and stay valid memory for ever.
// Errors: insert() returns false, and has changed nothing that find() sees, when the range is taken or there is no
// memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "protocols/blocks.h"

namespace hpe {

class BlocksTable {
public:
    // The object that contains the address, or nullptr. Another thread may free it at any time: see Blocks.
    Blocks* find(std::uintptr_t address) const noexcept;

    // False when a page of it belongs to another object, or memory for the tree runs out; nothing is changed then.
    bool insert(Blocks* object);
    void erase(Blocks* object);

    // Calls `visit` for every object that overlaps [begin, begin + bytes), in address order. No lock is held.
    template <class Visit>
    void overlapping(std::uintptr_t begin, std::size_t bytes, Visit&& visit) const {
        if (bytes == 0 || empty()) return;
        const std::uintptr_t end = begin + bytes;
        for (std::uintptr_t at = begin; at < end;) {
            Blocks* object = find(at);
            if (object == nullptr) {
                at = next_boundary(at);
            } else {
                visit(*object);
                at = object->base + object->size;
                if (at <= begin) return;  // recycled under us: the program races with its own free
            }
        }
    }
    bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
    std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
    static constexpr unsigned kChunkBits = 21, kMiddleBits = 13, kTopBits = 14;
    // 0, the only object of the entry's addresses (a Blocks*), or the entries of its parts, with bit 0 set.
    using Entry = std::atomic<std::uintptr_t>;
    using Middle = std::array<Entry, 1u << kMiddleBits>;  // of chunks

    std::uintptr_t next_boundary(std::uintptr_t address) const noexcept;
    // Calls visit(entry, from, to) for each chunk and the part of [begin, end) in it, until it returns false. Makes the
    // tree's nodes; false as well where there is no memory for one.
    template <class Visit>
    bool each_chunk(std::uintptr_t begin, std::uintptr_t end, Visit&& visit);
    const Entry* chunk_entry(std::uintptr_t address) const noexcept;

    std::array<std::atomic<Middle*>, 1u << kTopBits> top_{};
    std::atomic<std::size_t> count_{0};
    std::mutex mutex_;
};

// The same for objects that are more than their blocks.
template <class Object>
class ObjectTable : private BlocksTable {
public:
    Object* find(std::uintptr_t address) const noexcept { return static_cast<Object*>(BlocksTable::find(address)); }
    bool insert(Object* object) { return BlocksTable::insert(object); }
    void erase(Object* object) { BlocksTable::erase(object); }
    template <class Visit>
    void overlapping(std::uintptr_t begin, std::size_t bytes, Visit&& visit) const {
        BlocksTable::overlapping(begin, bytes, [&](Blocks& blocks) { visit(static_cast<Object&>(blocks)); });
    }
    using BlocksTable::count;
    using BlocksTable::empty;
};

}  // namespace hpe
