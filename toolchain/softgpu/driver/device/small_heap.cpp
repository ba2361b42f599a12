// SPDX-License-Identifier: MIT
// First fit, but what was freed last is given again first; neighbours are joined.
#include "toolchain/softgpu/driver/device/small_heap.h"

#include <cstddef>
#include <iterator>

#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {

std::uint64_t SmallHeap::allocate(std::uint64_t bytes, std::uint64_t& offset) {
    const std::lock_guard lock(mutex_);
    bytes = round_up(bytes, 512);
    const auto carve = [&](Slab& slab, std::map<std::uint64_t, std::uint64_t>::iterator range, std::uint64_t start) {
        const auto [begin, size] = *range;
        slab.free.erase(range);
        if (start > begin) slab.free.emplace(begin, start - begin);
        if (start + bytes < begin + size) slab.free.emplace(start + bytes, begin + size - start - bytes);
        offset = slab.offset + (start - slab.address);
        return start;
    };
    for (std::size_t i = recent_.size(); i-- > 0;) {
        const std::uint64_t wanted = recent_[i];
        auto slab = slabs_.upper_bound(wanted);
        if (slab == slabs_.begin()) continue;
        --slab;
        auto range = slab->second.free.upper_bound(wanted);
        if (range == slab->second.free.begin()) continue;
        --range;
        if (wanted + bytes > range->first + range->second || wanted < range->first) continue;
        recent_.erase(recent_.begin() + static_cast<std::ptrdiff_t>(i));
        return carve(slab->second, range, wanted);
    }
    for (auto& [address, slab] : slabs_)
        for (auto range = slab.free.begin(); range != slab.free.end(); ++range)
            if (range->second >= bytes) return carve(slab, range, range->first);
    return 0;
}

std::optional<SmallHeap::Slab> SmallHeap::release(std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes = round_up(bytes, 512);
    const auto slab = std::prev(slabs_.upper_bound(address));
    auto& free = slab->second.free;
    constexpr std::size_t remembered = 64;
    if (recent_.size() >= remembered) recent_.erase(recent_.begin());
    recent_.push_back(address);
    const auto next = free.lower_bound(address);
    if (next != free.end() && next->first == address + bytes) {
        bytes += next->second;
        free.erase(next);
    }
    const auto after = free.lower_bound(address);
    if (after != free.begin() && std::prev(after)->first + std::prev(after)->second == address) {
        std::prev(after)->second += bytes;
    } else {
        free.emplace(address, bytes);
    }
    if (free.begin()->second != page_2m) return std::nullopt;
    Slab empty = std::move(slab->second);
    slabs_.erase(slab);
    return empty;
}

std::uint64_t SmallHeap::allocate_in_new(std::uint64_t slab_address, std::uint64_t slab_offset, std::uint64_t bytes,
                                         std::uint64_t& offset) {
    const std::lock_guard lock(mutex_);
    bytes = round_up(bytes, 512);
    Slab& slab = slabs_[slab_address] = {slab_address, slab_offset, {}};
    if (bytes < page_2m) slab.free.emplace(slab_address + bytes, page_2m - bytes);
    offset = slab_offset;
    return slab_address;
}

void SmallHeap::keep_empty(const Slab& slab) {
    const std::lock_guard lock(mutex_);
    slabs_.emplace(slab.address, slab);
}

std::vector<SmallHeap::Slab> SmallHeap::take_slabs() {
    const std::lock_guard lock(mutex_);
    std::vector<Slab> taken;
    for (auto& [address, slab] : slabs_) taken.push_back(std::move(slab));
    slabs_.clear();
    recent_.clear();
    return taken;
}

}  // namespace hpe::soft
