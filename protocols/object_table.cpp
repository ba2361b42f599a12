// SPDX-License-Identifier: MIT
// The radix tree behind BlocksTable.
#include "protocols/object_table.h"

#include <algorithm>
#include <new>

namespace hpe {

namespace {

using Entry = std::atomic<std::uintptr_t>;

// The addresses of an entry: of a chunk, a part of it, a part of that, a page.
constexpr unsigned kBits[] = {21, 18, 15, 12};
constexpr unsigned kPages = 3;
constexpr std::uintptr_t kChunk = std::uintptr_t{1} << kBits[0];
static_assert(kPage == std::size_t{1} << kBits[kPages]);
constexpr std::uintptr_t span(unsigned level) { return std::uintptr_t{1} << kBits[level]; }
constexpr std::size_t parts_of_one_above(unsigned level) { return std::size_t{1} << (kBits[level - 1] - kBits[level]); }

constexpr std::uintptr_t kPartsTag = 1;
constexpr bool is_divided(std::uintptr_t word) { return (word & kPartsTag) != 0; }
Entry* parts(std::uintptr_t word) { return reinterpret_cast<Entry*>(word & ~kPartsTag); }
// Of the entries of `level`.
Entry& part(Entry* all, unsigned level, std::uintptr_t address) {
    return all[(address >> kBits[level]) % parts_of_one_above(level)];
}

// Calls visit(entry, from, to) for the entries of `level` that hold [begin, end), until it returns false.
template <class Visit>
bool each_part(Entry* all, unsigned level, std::uintptr_t begin, std::uintptr_t end, Visit&& visit) {
    for (auto at = begin; at < end;) {
        const auto next = std::min(end, (at / span(level) + 1) * span(level));
        if (!visit(part(all, level, at), at, next)) return false;
        at = next;
    }
    return true;
}

// The entry, of an address in `level`, gets parts that say what it said. False: no memory.
bool divide(Entry& entry, unsigned level, std::uintptr_t address, const Blocks& resident) {
    const auto begin = address / span(level) * span(level);
    auto* const all = new (std::nothrow) Entry[parts_of_one_above(level + 1)]{};
    if (all == nullptr) return false;
    each_part(all, level + 1, std::max(begin, resident.base),
              std::min(begin + span(level), resident.base + resident.size),
              [&](Entry& one, std::uintptr_t, std::uintptr_t) {
                  one.store(reinterpret_cast<std::uintptr_t>(&resident), std::memory_order_relaxed);
                  return true;
              });
    entry.store(reinterpret_cast<std::uintptr_t>(all) | kPartsTag, std::memory_order_release);
    return true;
}

// Divides what objects outside [from, to) share with it. False: it is taken, or there is no memory.
bool make_room(Entry& entry, unsigned level, std::uintptr_t from, std::uintptr_t to) {
    const auto word = entry.load(std::memory_order_relaxed);
    if (word == 0) return true;
    if (!is_divided(word)) {
        const auto& resident = *reinterpret_cast<const Blocks*>(word);
        const bool taken = resident.base < to && from < resident.base + resident.size;
        if (taken || level == kPages || !divide(entry, level, from, resident)) return false;
        return make_room(entry, level, from, to);
    }
    return each_part(parts(word), level + 1, from, to, [&](Entry& one, std::uintptr_t begin, std::uintptr_t end) {
        return make_room(one, level + 1, begin, end);
    });
}

// Where there is room.
void enter(Entry& entry, unsigned level, std::uintptr_t from, std::uintptr_t to, Blocks* object) {
    const auto word = entry.load(std::memory_order_relaxed);
    if (!is_divided(word)) return entry.store(reinterpret_cast<std::uintptr_t>(object), std::memory_order_release);
    each_part(parts(word), level + 1, from, to, [&](Entry& one, std::uintptr_t begin, std::uintptr_t end) {
        enter(one, level + 1, begin, end, object);
        return true;
    });
}

void leave(Entry& entry, unsigned level, std::uintptr_t from, std::uintptr_t to, const Blocks* object) {
    const auto word = entry.load(std::memory_order_relaxed);
    if (!is_divided(word)) {
        if (word == reinterpret_cast<std::uintptr_t>(object)) entry.store(0, std::memory_order_release);
        return;
    }
    each_part(parts(word), level + 1, from, to, [&](Entry& one, std::uintptr_t begin, std::uintptr_t end) {
        leave(one, level + 1, begin, end, object);
        return true;
    });
}

}  // namespace

const BlocksTable::Entry* BlocksTable::chunk_entry(std::uintptr_t address) const noexcept {
    const auto top = address >> (kChunkBits + kMiddleBits);
    if (top >= top_.size()) return nullptr;
    const Middle* middle = top_[top].load(std::memory_order_acquire);
    if (middle == nullptr) return nullptr;
    return &(*middle)[(address >> kChunkBits) & ((1u << kMiddleBits) - 1)];
}

template <class Visit>
bool BlocksTable::each_chunk(std::uintptr_t begin, std::uintptr_t end, Visit&& visit) {
    for (auto at = begin; at < end;) {
        const auto top = at >> (kChunkBits + kMiddleBits);
        if (top >= top_.size()) return false;
        Middle* middle = top_[top].load(std::memory_order_acquire);
        if (middle == nullptr) {
            middle = new (std::nothrow) Middle{};
            if (middle == nullptr) return false;
            top_[top].store(middle, std::memory_order_release);
        }
        for (auto i = at / kChunk % middle->size(); i < middle->size() && at < end; ++i) {
            const auto next = std::min(end, (at / kChunk + 1) * kChunk);
            if (!visit((*middle)[i], at, next)) return false;
            at = next;
        }
    }
    return true;
}

Blocks* BlocksTable::find(std::uintptr_t address) const noexcept {
    const auto* entry = chunk_entry(address);
    if (entry == nullptr) return nullptr;
    auto word = entry->load(std::memory_order_acquire);
    for (unsigned level = 1; is_divided(word); ++level) {
        word = part(parts(word), level, address).load(std::memory_order_acquire);
    }
    auto* const object = reinterpret_cast<Blocks*>(word);
    return object != nullptr && object->contains(address) ? object : nullptr;
}

// Where no object was found: of the entry that is empty, or of the page.
std::uintptr_t BlocksTable::next_boundary(std::uintptr_t address) const noexcept {
    const auto* entry = chunk_entry(address);
    auto word = entry != nullptr ? entry->load(std::memory_order_acquire) : 0;
    unsigned level = 0;
    while (is_divided(word)) word = part(parts(word), ++level, address).load(std::memory_order_acquire);
    const auto step = span(word == 0 ? level : kPages);
    return (address / step + 1) * step;
}

bool BlocksTable::insert(Blocks* object) {
    std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    // First make room and look for a neighbour in the way, then write: nothing is half done.
    const bool room = each_chunk(
        begin, end, [](Entry& entry, std::uintptr_t from, std::uintptr_t to) { return make_room(entry, 0, from, to); });
    if (!room) return false;
    each_chunk(begin, end, [&](Entry& entry, std::uintptr_t from, std::uintptr_t to) {
        enter(entry, 0, from, to, object);
        return true;
    });
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void BlocksTable::erase(Blocks* object) {
    std::scoped_lock lock(mutex_);
    each_chunk(object->base, object->base + object->size, [&](Entry& entry, std::uintptr_t from, std::uintptr_t to) {
        leave(entry, 0, from, to, object);
        return true;
    });
    count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace hpe
