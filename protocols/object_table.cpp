// SPDX-License-Identifier: MIT
// Two levels of bits that say where objects begin: the chunks of an area, the pages of a chunk.
#include "protocols/object_table.h"

#include <bit>
#include <new>

namespace hpe {

namespace {

using Word = std::uint64_t;
constexpr std::size_t kBits = 64;
constexpr std::uintptr_t kChunkBytes = std::uintptr_t{2} << 20;
constexpr std::uintptr_t kAreaBytes = kBits * kChunkBytes;
constexpr std::size_t kPages = kChunkBytes / kPage;
constexpr std::size_t kNone = ~std::size_t{0};

Word bit(std::size_t index) { return Word{1} << index % kBits; }
// The last bit at or before `until`, the first one at or behind `from`.
std::size_t last_bit(Word word, std::size_t until) {
    word &= ~Word{0} >> (kBits - 1 - until);
    return word != 0 ? static_cast<std::size_t>(std::bit_width(word)) - 1 : kNone;
}
std::size_t next_bit(Word word, std::size_t from) {
    word = from < kBits ? word & (~Word{0} << from) : 0;
    return word != 0 ? static_cast<std::size_t>(std::countr_zero(word)) : kNone;
}

// Those who write hold the mutex: a locked instruction, which takes as long as all else here, is not needed.
void set(std::atomic<Word>& word, Word bits) {
    word.store(word.load(std::memory_order_relaxed) | bits, std::memory_order_release);
}
void clear(std::atomic<Word>& word, Word bits) {
    word.store(word.load(std::memory_order_relaxed) & ~bits, std::memory_order_release);
}

}  // namespace

// Objects that begin inside of it.
struct BlocksTable::Chunk {
    std::array<std::atomic<Word>, kPages / kBits> begins{};
    std::array<std::atomic<Blocks*>, kPages> objects{};  // where the bit is set

    [[gnu::hot]] Blocks* last(std::size_t until) const noexcept {
        for (auto i = until / kBits + 1; i-- != 0;) {
            const auto word = begins[i].load(std::memory_order_acquire);
            const auto found = last_bit(word, i == until / kBits ? until % kBits : kBits - 1);
            if (found != kNone) return objects[i * kBits + found].load(std::memory_order_relaxed);
        }
        return nullptr;
    }
    std::size_t next(std::size_t from) const noexcept {
        for (auto i = from / kBits; i < begins.size(); ++i) {
            const auto word = begins[i].load(std::memory_order_acquire);
            const auto found = next_bit(word, i == from / kBits ? from % kBits : 0);
            if (found != kNone) return i * kBits + found;
        }
        return kNone;
    }
};

struct BlocksTable::Area {
    std::atomic<Blocks*> first{nullptr};                // that holds the first byte
    std::atomic<Word> begins{0}, inside{0};             // where a chunk begins, and inside of it
    std::array<std::atomic<Blocks*>, kBits> objects{};  // where the bit of `begins` is set
    std::array<std::atomic<Chunk*>, kBits> chunks{};    // where the bit of `inside` was ever set

    // The last object that begins at or before the page, or holds the first one.
    [[gnu::hot]] Blocks* last(std::size_t page) const noexcept {
        const auto chunk = page / kPages;
        const Chunk* const parts = chunks[chunk].load(std::memory_order_acquire);
        if (parts != nullptr) {
            if (Blocks* const found = parts->last(page % kPages)) return found;
        }
        const auto whole = begins.load(std::memory_order_acquire), in_parts = inside.load(std::memory_order_acquire);
        const auto found = last_bit(whole, chunk), before = chunk != 0 ? last_bit(in_parts, chunk - 1) : kNone;
        if (before != kNone && (found == kNone || before >= found)) {
            return chunks[before].load(std::memory_order_acquire)->last(kPages - 1);
        }
        return found != kNone ? objects[found].load(std::memory_order_relaxed) : first.load(std::memory_order_acquire);
    }
    // The object that begins at the page, or holds the first one.
    [[gnu::hot]] Blocks* at(std::size_t page) const noexcept {
        const auto chunk = page / kPages, in_chunk = page % kPages;
        if (page == 0) return first.load(std::memory_order_acquire);
        if (in_chunk == 0) {
            const bool begins_there = (begins.load(std::memory_order_acquire) & bit(chunk)) != 0;
            return begins_there ? objects[chunk].load(std::memory_order_relaxed) : nullptr;
        }
        const Chunk* const parts = chunks[chunk].load(std::memory_order_acquire);
        const bool begins_there =
            parts != nullptr && (parts->begins[in_chunk / kBits].load(std::memory_order_acquire) & bit(in_chunk)) != 0;
        return begins_there ? parts->objects[in_chunk].load(std::memory_order_relaxed) : nullptr;
    }
    // Where the next object begins at the page or behind it; kNone: not in this area.
    std::size_t next(std::size_t page) const noexcept {
        for (auto chunk = page / kPages; chunk < kBits; page = ++chunk * kPages) {
            const auto whole = begins.load(std::memory_order_acquire),
                       in_parts = inside.load(std::memory_order_acquire);
            chunk = next_bit(whole | in_parts, chunk);
            if (chunk == kNone) return kNone;
            if (chunk != page / kPages) page = chunk * kPages;
            if (page % kPages == 0 && (whole & bit(chunk)) != 0) return page;
            const Chunk* const parts = chunks[chunk].load(std::memory_order_acquire);
            const auto found = parts != nullptr ? parts->next(page % kPages) : kNone;
            if (found != kNone) return chunk * kPages + found;
        }
        return kNone;
    }

    // Memory to enter an object that begins there.
    bool make_room(std::size_t page) {
        auto& chunk = chunks[page / kPages];
        if (page % kPages == 0 || chunk.load(std::memory_order_relaxed) != nullptr) return true;
        auto* const made = new (std::nothrow) Chunk{};
        chunk.store(made, std::memory_order_release);
        return made != nullptr;
    }
    void enter(std::size_t page, Blocks* object) noexcept {
        const auto chunk = page / kPages, in_chunk = page % kPages;
        if (page == 0) {
            first.store(object, std::memory_order_release);
        } else if (in_chunk == 0) {
            objects[chunk].store(object, std::memory_order_relaxed);
            set(begins, bit(chunk));
        } else {
            Chunk& parts = *chunks[chunk].load(std::memory_order_relaxed);
            parts.objects[in_chunk].store(object, std::memory_order_relaxed);
            set(parts.begins[in_chunk / kBits], bit(in_chunk));
            set(inside, bit(chunk));
        }
    }
    void leave(std::size_t page) noexcept {
        const auto chunk = page / kPages, in_chunk = page % kPages;
        if (page == 0) {
            first.store(nullptr, std::memory_order_release);
        } else if (in_chunk == 0) {
            clear(begins, bit(chunk));
        } else {
            Chunk& parts = *chunks[chunk].load(std::memory_order_relaxed);
            clear(parts.begins[in_chunk / kBits], bit(in_chunk));
            if (parts.next(0) == kNone) clear(inside, bit(chunk));
        }
    }
};

namespace {

std::uintptr_t area_begin(std::uintptr_t address) { return address / kAreaBytes * kAreaBytes; }
std::size_t page_in_area(std::uintptr_t address) { return address % kAreaBytes / kPage; }

}  // namespace

BlocksTable::Area* BlocksTable::area_of(std::uintptr_t address) const noexcept {
    const auto index = address / kAreaBytes, group = index / std::tuple_size_v<Areas>;
    if (group >= areas_.size()) return nullptr;
    const Areas* const areas = areas_[group].load(std::memory_order_acquire);
    return areas != nullptr ? (*areas)[index % areas->size()].load(std::memory_order_acquire) : nullptr;
}

// nullptr: no memory, or no address of a device.
BlocksTable::Area* BlocksTable::make_area(std::uintptr_t address) {
    const auto index = address / kAreaBytes, group = index / std::tuple_size_v<Areas>;
    if (group >= areas_.size()) return nullptr;
    Areas* areas = areas_[group].load(std::memory_order_relaxed);
    if (areas == nullptr) {
        areas = new (std::nothrow) Areas{};
        if (areas == nullptr) return nullptr;
        areas_[group].store(areas, std::memory_order_release);
    }
    auto& area = (*areas)[index % areas->size()];
    if (area.load(std::memory_order_relaxed) == nullptr) {
        area.store(new (std::nothrow) Area{}, std::memory_order_release);
    }
    return area.load(std::memory_order_relaxed);
}

Blocks* BlocksTable::find(std::uintptr_t address) const noexcept {
    const Area* const area = area_of(address);
    Blocks* const object = area != nullptr ? area->last(page_in_area(address)) : nullptr;
    return object != nullptr && object->contains(address) && object->is_open() ? object : nullptr;
}

Blocks* BlocksTable::beginning_at(std::uintptr_t address) const noexcept {
    const Area* const area = area_of(address);
    Blocks* const object = area != nullptr ? area->at(page_in_area(address)) : nullptr;
    return object != nullptr && object->base == address && object->is_open() ? object : nullptr;
}

// Where an object may begin next, of an address below kReach where none was found.
std::uintptr_t BlocksTable::next_boundary(std::uintptr_t address) const noexcept {
    constexpr auto kGroupBytes = kAreaBytes * std::tuple_size_v<Areas>;
    static_assert(kGroupBytes * std::tuple_size_v<decltype(areas_)> == kReach);
    const auto group = address / kGroupBytes;
    if (areas_[group].load(std::memory_order_acquire) == nullptr) return (group + 1) * kGroupBytes;
    const Area* const area = area_of(address);
    const auto page = page_in_area(address) + 1;
    const auto next = area != nullptr && page < kBits * kPages ? area->next(page) : kNone;
    return area_begin(address) + (next != kNone ? next * kPage : kAreaBytes);
}

// Closed objects make way. False: an open one is there, or there is no memory for the entries.
bool BlocksTable::make_room(std::uintptr_t begin, std::uintptr_t end) {
    for (auto at = begin; at < end; at = area_begin(at) + kAreaBytes) {
        Area* const area = make_area(at);
        if (area == nullptr) return false;
        const auto page = page_in_area(at);
        for (;;) {
            Blocks* there = area->last(page);
            if (there == nullptr || at >= there->base + there->size) {
                const auto next = area->next(page);
                if (next == kNone || area_begin(at) + next * kPage >= end) break;
                there = area->at(next);
            }
            if (there->is_open() || !leave(*there)) return false;
        }
        if (!area->make_room(page)) return false;
    }
    return true;
}

bool BlocksTable::insert(Blocks* object) {
    const std::scoped_lock lock(mutex_);
    const auto begin = object->base, end = object->base + object->size;
    if (!make_room(begin, end)) return false;
    for (auto at = begin; at < end; at = area_begin(at) + kAreaBytes) area_of(at)->enter(page_in_area(at), object);
    object->in_table_.store(true, std::memory_order_release);
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
}

void BlocksTable::erase(Blocks* object) {
    const std::scoped_lock lock(mutex_);
    leave(*object);
}

// False: it was not there.
bool BlocksTable::leave(Blocks& object) noexcept {
    if (!has(object)) return false;
    object.in_table_.store(false, std::memory_order_release);
    const auto end = object.base + object.size;
    for (auto at = object.base; at < end; at = area_begin(at) + kAreaBytes) area_of(at)->leave(page_in_area(at));
    count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    return true;
}

}  // namespace hpe
