// SPDX-License-Identifier: MIT
// Reservations and the allocation table.
#include "toolchain/softgpu/driver/device/addresses.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/device/device.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace hpe::soft {
namespace {

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool map_none_at(std::uint64_t address, std::uint64_t bytes) {
    void* at = mmap(pointer(address), bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == MAP_FAILED) return false;
    if (at == pointer(address)) return true;
    munmap(at, bytes);  // a kernel older than MAP_FIXED_NOREPLACE took it for a hint
    return false;
}

}  // namespace

void Backing::free_in_stream(const Allocation&, Stream&) { fail(CUDA_ERROR_INVALID_VALUE); }
void Backing::free_now(const Allocation&) { fail(CUDA_ERROR_INVALID_VALUE); }

std::uint64_t Addresses::reserve(std::uint64_t bytes, std::uint64_t align, std::uint64_t hint) {
    const std::lock_guard lock(reserve_mutex_);
    const auto take = [&](std::uint64_t address) {
        if (!map_none_at(address, bytes)) return false;
        reservations_.emplace(address, bytes);
        return true;
    };
    if (hint && hint % align == 0 && take(hint)) return hint;
    // The driver reuses a freed address at once, so stale pointers meet new data here as they do there.
    for (std::size_t i = holes_.size(); i-- > 0;) {
        auto [address, size] = holes_[i];
        const std::uint64_t start = round_up(address, align);
        if (start + bytes > address + size) continue;
        holes_.erase(holes_.begin() + static_cast<std::ptrdiff_t>(i));
        if (!take(start)) continue;  // somebody else lives there now
        if (start + bytes < address + size) holes_.emplace_back(start + bytes, address + size - start - bytes);
        if (start > address) holes_.emplace_back(address, start - address);
        return start;
    }
    for (int tries = 0; tries < 64; ++tries) {
        const std::uint64_t start = round_up(cursor_, align);
        cursor_ = start + bytes;
        if (cursor_ > 0x7f0000000000) break;  // other mappings of the process live up there
        if (take(start)) return start;
    }
    void* anywhere = mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (anywhere == MAP_FAILED) return 0;
    const auto got = reinterpret_cast<std::uint64_t>(anywhere);
    const std::uint64_t start = round_up(got, align);
    if (start > got) munmap(anywhere, start - got);
    munmap(pointer(start + bytes), got + align - start);
    reservations_.emplace(start, bytes);
    return start;
}

void Addresses::unreserve(std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard lock(reserve_mutex_);
    munmap(pointer(address), bytes);
    reservations_.erase(address);
    constexpr std::size_t remembered = 4096;
    if (holes_.size() >= remembered) holes_.erase(holes_.begin());
    holes_.emplace_back(address, bytes);
}

bool Addresses::in_reservation(std::uint64_t address) const {
    const std::lock_guard lock(reserve_mutex_);
    auto at = reservations_.upper_bound(address);
    return at != reservations_.begin() && (--at, address < at->first + at->second);
}

bool Addresses::add(std::shared_ptr<Allocation> allocation) {
    const std::unique_lock lock(mutex_);
    const auto after = by_address_.lower_bound(allocation->address);
    if (after != by_address_.end() && after->first < allocation->end()) return false;
    if (after != by_address_.begin() && std::prev(after)->second->end() > allocation->address) return false;
    if (!allocation->id) allocation->id = new_id();
    by_address_.emplace(allocation->address, std::move(allocation));
    return true;
}

std::shared_ptr<Allocation> Addresses::remove(std::uint64_t address) {
    const std::unique_lock lock(mutex_);
    const auto at = by_address_.find(address);
    if (at == by_address_.end()) return nullptr;
    auto allocation = std::move(at->second);
    by_address_.erase(at);
    return allocation;
}

AllocationRef Addresses::find(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    auto at = by_address_.upper_bound(address);
    if (at == by_address_.begin() || (--at)->second->end() <= address) return nullptr;
    return at->second;
}

AllocationRef Addresses::next(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    const auto at = by_address_.lower_bound(address);
    return at == by_address_.end() ? nullptr : at->second;
}

}  // namespace hpe::soft
