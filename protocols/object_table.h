// SPDX-License-Identifier: MIT
// Which object an address belongs to.
//
// Per chunk of 2 MiB of addresses: the object that holds the chunk's first byte, and those that begin behind it, by the
// page where each begins. So an object costs one entry, and one more for each further chunk that it reaches. The
// object of an address is the last one that begins at or before it. find() takes no lock and may run in a signal
// handler; insert() and erase() serialise among themselves, and insert() allocates. What is allocated is never freed:
// 128 KiB for 16 GiB of addresses, and 4 KiB for a chunk inside which objects begin.
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
    // The object that contains the address, or nullptr. Another thread may free it at any time: see Blocks.
    Blocks* find(std::uintptr_t address) const noexcept;

    // False when a page of it belongs to another object, or memory runs out; nothing is changed then.
    bool insert(Blocks* object);
    void erase(Blocks* object);  // what is not there stays so

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
    static constexpr std::uintptr_t kChunk = std::uintptr_t{2} << 20;
    static constexpr std::size_t kPages = kChunk / kPage;
    struct Starts {
        // Where one begins, of the chunk's pages; kPages: none, at or before a page, or behind it.
        std::size_t last(std::size_t until) const noexcept;
        std::size_t next(std::size_t behind) const noexcept;
        void set(std::size_t page, Blocks* object) noexcept;
        void clear(std::size_t page, const Blocks* object) noexcept;

        static constexpr std::size_t kBits = 64;
        std::array<std::atomic<std::uint64_t>, kPages / kBits> bits{};
        std::array<std::atomic<Blocks*>, kPages> object{};  // where the bit is set
    };
    struct Chunk {
        std::atomic<Blocks*> first{nullptr};
        std::atomic<Starts*> starts{nullptr};  // none in the first page
    };
    static constexpr std::size_t kGroup = 1u << 13, kGroups = 1u << 14;
    using Group = std::array<Chunk, kGroup>;

    const Chunk* chunk_of(std::uintptr_t address) const noexcept;
    std::uintptr_t next_boundary(std::uintptr_t address) const noexcept;
    // nullptr: no memory.
    Chunk* make_chunk(std::uintptr_t address);
    bool make_room(std::uintptr_t begin, std::uintptr_t end);

    std::array<std::atomic<Group*>, kGroups> groups_{};
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
