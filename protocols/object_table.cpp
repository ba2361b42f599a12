// SPDX-License-Identifier: MIT
// The radix tree behind BlocksTable.
#include "protocols/object_table.h"

#include <algorithm>
#include <new>

namespace hpe {

namespace {
constexpr std::uintptr_t kChunk = std::uintptr_t{1} << 21;
constexpr std::uintptr_t kLeafTag = 1;
}  // namespace

const std::atomic<std::uintptr_t>* BlocksTable::chunk_entry(std::uintptr_t address) const noexcept {
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
    const auto word = entry->load(std::memory_order_acquire);
    if (word == 0) return nullptr;
    Blocks* object = nullptr;
    if ((word & kLeafTag) != 0) {
        const auto* leaf = reinterpret_cast<const Leaf*>(word & ~kLeafTag);
        object = (*leaf)[(address / kPage) & ((1u << kLeafBits) - 1)].load(std::memory_order_acquire);
    } else {
        object = reinterpret_cast<Blocks*>(word);
    }
    return object != nullptr && object->contains(address) ? object : nullptr;
}

std::uintptr_t BlocksTable::next_boundary(std::uintptr_t address) const noexcept {
    const auto* entry = chunk_entry(address);
    const bool shared = entry != nullptr && entry->load(std::memory_order_acquire) != 0;
    const auto step = shared ? std::uintptr_t{kPage} : kChunk;
    return (address / step + 1) * step;
}

bool BlocksTable::insert(Blocks* object) {
    std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    // First make room and look for a neighbour in the way, then write: nothing is half done.
    const auto make_room = [](std::atomic<std::uintptr_t>& entry, std::uintptr_t from, std::uintptr_t to) {
        auto word = entry.load(std::memory_order_relaxed);
        if (word == 0) return true;
        if ((word & kLeafTag) == 0) {
            auto* resident = reinterpret_cast<Blocks*>(word);
            auto* leaf = new (std::nothrow) Leaf{};
            if (leaf == nullptr) return false;
            const auto chunk = from / kChunk * kChunk;
            for (std::size_t page = 0; page < leaf->size(); ++page) {
                if (resident->contains(chunk + page * kPage)) (*leaf)[page].store(resident, std::memory_order_relaxed);
            }
            word = reinterpret_cast<std::uintptr_t>(leaf) | kLeafTag;
            entry.store(word, std::memory_order_release);
        }
        const auto* leaf = reinterpret_cast<const Leaf*>(word & ~kLeafTag);
        for (auto page = from; page < to; page += kPage) {
            if ((*leaf)[page / kPage % leaf->size()].load(std::memory_order_relaxed) != nullptr) return false;
        }
        return true;
    };
    if (!each_chunk(begin, end, make_room)) return false;
    each_chunk(begin, end, [&](std::atomic<std::uintptr_t>& entry, std::uintptr_t from, std::uintptr_t to) {
        const auto word = entry.load(std::memory_order_relaxed);
        if (word == 0) {
            entry.store(reinterpret_cast<std::uintptr_t>(object), std::memory_order_release);
            return true;
        }
        auto* leaf = reinterpret_cast<Leaf*>(word & ~kLeafTag);
        for (auto page = from; page < to; page += kPage) {
            (*leaf)[page / kPage % leaf->size()].store(object, std::memory_order_release);
        }
        return true;
    });
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void BlocksTable::erase(Blocks* object) {
    std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    each_chunk(begin, end, [&](std::atomic<std::uintptr_t>& entry, std::uintptr_t from, std::uintptr_t to) {
        const auto word = entry.load(std::memory_order_relaxed);
        if ((word & kLeafTag) == 0) {
            if (word == reinterpret_cast<std::uintptr_t>(object)) entry.store(0, std::memory_order_release);
            return true;
        }
        auto* leaf = reinterpret_cast<Leaf*>(word & ~kLeafTag);
        for (auto page = from; page < to; page += kPage) {
            auto& slot = (*leaf)[page / kPage % leaf->size()];
            if (slot.load(std::memory_order_relaxed) == object) slot.store(nullptr, std::memory_order_release);
        }
        return true;
    });
    count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace hpe
