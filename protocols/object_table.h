// SPDX-License-Identifier: MIT
// Which object an address belongs to.
//
// It knows where objects begin, and the object of an address is the last one that begins at or before it: in the same
// area of 128 MiB, or it is the one that holds the area's first byte. So an object costs one entry, and one more for
// each further area that it reaches. find() takes no lock and may run in a signal handler; insert() and erase()
// serialise among themselves, and insert() allocates. What is allocated is never freed: 1 KiB for an area, and 4 KiB
// for each chunk of 2 MiB inside which objects begin.
//
// Addresses are device addresses below 2^48, sizes bytes, both whole pages. Objects are borrowed, and stay valid memory
// for ever. Errors: insert() returns false, and has changed nothing that find() sees, when the range is taken or there
// is no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "protocols/blocks.h"

namespace hpe {

class BlocksTable {
public:
    // The open object that contains the address, or nullptr. Another thread may free it at any time: see Blocks.
    [[gnu::hot]] Blocks* find(std::uintptr_t address) const noexcept;
    // The same, if it begins there: faster.
    [[gnu::hot]] Blocks* beginning_at(std::uintptr_t address) const noexcept;

    // A closed object keeps its place until another one is inserted there: what is freed and made again at once need
    // not leave.
    // False when a page of it belongs to another open object, or memory runs out; no open object is touched then.
    bool insert(Blocks* object);
    void erase(Blocks* object);  // what is not there stays so
    // Whether the object has its place, be it open or closed. No object is in two tables.
    static bool has(const Blocks& object) noexcept { return object.in_table_.load(std::memory_order_acquire); }

    // Calls `visit` for every object that overlaps [begin, begin + bytes), in address order. No lock is held. The range
    // may reach beyond all memory, as sizes that a program computed wrongly do.
    template <class Visit>
    void overlapping(std::uintptr_t begin, std::size_t bytes, Visit&& visit) const {
        if (bytes == 0 || empty()) return;
        const std::uintptr_t end = begin < kReach && bytes < kReach - begin ? begin + bytes : kReach;
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
    // With closed ones that have kept their places.
    bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
    std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
    static constexpr std::uintptr_t kReach = std::uintptr_t{1} << 48;  // objects lie below it
    struct Chunk;
    struct Area;
    using Areas = std::array<std::atomic<Area*>, 1u << 11>;

    [[gnu::hot]] Area* area_of(std::uintptr_t address) const noexcept;
    Area* make_area(std::uintptr_t address);
    bool make_room(std::uintptr_t begin, std::uintptr_t end);
    bool leave(Blocks& object) noexcept;
    std::uintptr_t next_boundary(std::uintptr_t address) const noexcept;

    std::array<std::atomic<Areas*>, 1u << 10> areas_{};
    std::atomic<std::size_t> count_{0};
    std::mutex mutex_;
};

// The same for objects that are more than their blocks.
template <class Object>
class ObjectTable : private BlocksTable {
public:
    Object* find(std::uintptr_t address) const noexcept { return static_cast<Object*>(BlocksTable::find(address)); }
    Object* beginning_at(std::uintptr_t address) const noexcept {
        return static_cast<Object*>(BlocksTable::beginning_at(address));
    }
    bool insert(Object* object) { return BlocksTable::insert(object); }
    void erase(Object* object) { BlocksTable::erase(object); }
    template <class Visit>
    void overlapping(std::uintptr_t begin, std::size_t bytes, Visit&& visit) const {
        BlocksTable::overlapping(begin, bytes, [&](Blocks& blocks) { visit(static_cast<Object&>(blocks)); });
    }
    using BlocksTable::count;
    using BlocksTable::empty;
    using BlocksTable::has;
};

}  // namespace hpe
