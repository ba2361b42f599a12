// SPDX-License-Identifier: MIT
// Chunks in groups, and the pages of a chunk where objects begin.
#include "protocols/object_table.h"

#include <algorithm>
#include <bit>
#include <new>

namespace hpe {

std::size_t BlocksTable::Starts::last(std::size_t until) const noexcept {
    auto word = until / kBits;
    auto found = bits[word].load(std::memory_order_acquire) & (~std::uint64_t{0} >> (kBits - 1 - until % kBits));
    while (found == 0 && word != 0) found = bits[--word].load(std::memory_order_acquire);
    return found != 0 ? word * kBits + std::bit_width(found) - 1 : kPages;
}

std::size_t BlocksTable::Starts::next(std::size_t behind) const noexcept {
    const auto from = behind + 1;
    if (from == kPages) return kPages;
    auto word = from / kBits;
    auto found = bits[word].load(std::memory_order_acquire) & (~std::uint64_t{0} << from % kBits);
    while (found == 0 && ++word != bits.size()) found = bits[word].load(std::memory_order_acquire);
    return found != 0 ? word * kBits + static_cast<std::size_t>(std::countr_zero(found)) : kPages;
}

void BlocksTable::Starts::set(std::size_t page, Blocks* begins) noexcept {
    object[page].store(begins, std::memory_order_relaxed);
    bits[page / kBits].fetch_or(std::uint64_t{1} << page % kBits, std::memory_order_release);
}

void BlocksTable::Starts::clear(std::size_t page, const Blocks* begins) noexcept {
    if (object[page].load(std::memory_order_relaxed) != begins) return;
    bits[page / kBits].fetch_and(~(std::uint64_t{1} << page % kBits), std::memory_order_release);
}

const BlocksTable::Chunk* BlocksTable::chunk_of(std::uintptr_t address) const noexcept {
    const auto group = address / kChunk / kGroup;
    if (group >= kGroups) return nullptr;
    const Group* const chunks = groups_[group].load(std::memory_order_acquire);
    return chunks != nullptr ? &(*chunks)[address / kChunk % kGroup] : nullptr;
}

BlocksTable::Chunk* BlocksTable::make_chunk(std::uintptr_t address) {
    const auto group = address / kChunk / kGroup;
    if (group >= kGroups) return nullptr;
    Group* chunks = groups_[group].load(std::memory_order_relaxed);
    if (chunks == nullptr) {
        chunks = new (std::nothrow) Group{};
        if (chunks == nullptr) return nullptr;
        groups_[group].store(chunks, std::memory_order_release);
    }
    return &(*chunks)[address / kChunk % kGroup];
}

Blocks* BlocksTable::find(std::uintptr_t address) const noexcept {
    const Chunk* const chunk = chunk_of(address);
    if (chunk == nullptr) return nullptr;
    const Starts* const starts = chunk->starts.load(std::memory_order_acquire);
    const auto page = starts != nullptr ? starts->last(address % kChunk / kPage) : kPages;
    Blocks* const object = page != kPages ? starts->object[page].load(std::memory_order_relaxed)
                                          : chunk->first.load(std::memory_order_acquire);
    return object != nullptr && object->contains(address) ? object : nullptr;
}

// Of an address where no object was found.
std::uintptr_t BlocksTable::next_boundary(std::uintptr_t address) const noexcept {
    const auto begin = address / kChunk * kChunk;
    const Chunk* const chunk = chunk_of(address);
    const Starts* const starts = chunk != nullptr ? chunk->starts.load(std::memory_order_acquire) : nullptr;
    return begin + (starts != nullptr ? starts->next(address % kChunk / kPage) : kPages) * kPage;
}

// False: the range is taken, or there is no memory for its entries.
bool BlocksTable::make_room(std::uintptr_t begin, std::uintptr_t end) {
    for (auto at = begin; at < end; at = (at / kChunk + 1) * kChunk) {
        Chunk* const chunk = make_chunk(at);
        if (chunk == nullptr) return false;
        const Blocks* const first = chunk->first.load(std::memory_order_relaxed);
        if (first != nullptr && at < first->base + first->size) return false;
        Starts* starts = chunk->starts.load(std::memory_order_relaxed);
        if (starts == nullptr) {
            if (at % kChunk == 0) continue;
            starts = new (std::nothrow) Starts{};
            if (starts == nullptr) return false;
            chunk->starts.store(starts, std::memory_order_release);
            continue;
        }
        const auto page = at % kChunk / kPage;
        const auto before = starts->last(page), after = starts->next(page);
        const Blocks* const left = before != kPages ? starts->object[before].load(std::memory_order_relaxed) : nullptr;
        const auto right = at / kChunk * kChunk + after * kPage;  // the next chunk if there is none
        if ((left != nullptr && at < left->base + left->size) || (after != kPages && right < end)) return false;
    }
    return true;
}

bool BlocksTable::insert(Blocks* object) {
    const std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    if (!make_room(begin, end)) return false;
    for (auto at = begin; at < end; at = (at / kChunk + 1) * kChunk) {
        Chunk* const chunk = make_chunk(at);
        if (at % kChunk != 0) {
            chunk->starts.load(std::memory_order_relaxed)->set(at % kChunk / kPage, object);
        } else {
            chunk->first.store(object, std::memory_order_release);
        }
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void BlocksTable::erase(Blocks* object) {
    const std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    for (auto at = begin; at < end; at = (at / kChunk + 1) * kChunk) {
        Chunk* const chunk = make_chunk(at);
        if (at % kChunk != 0) {
            chunk->starts.load(std::memory_order_relaxed)->clear(at % kChunk / kPage, object);
        } else if (chunk->first.load(std::memory_order_relaxed) == object) {
            chunk->first.store(nullptr, std::memory_order_release);
        }
    }
    count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace hpe
