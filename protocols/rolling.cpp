// SPDX-License-Identifier: MIT
// Rolling-update: block sizes and the queue of Dirty blocks.
#include "protocols/rolling.h"

#include <algorithm>
#include <bit>

namespace hpe {

namespace {

bool ends_where(const RunRef& a, const RunRef& b) noexcept {
    if (a.object == b.object) return a.first + a.count == b.first;
    return a.first + a.count == a.object->blocks() && b.first == 0 && a.object->base + a.object->size == b.object->base;
}

// A store that straddles two blocks ends only when both are Dirty at once. Objects may lie side by side.
bool may_share_a_store(const RunRef& oldest, const RunRef& run) noexcept {
    const ObjectUse use(*oldest.object, oldest.object->base);  // it may have been freed
    if (oldest.object != run.object && (!use || use.serial() != oldest.serial)) return false;
    return ends_where(oldest, run) || ends_where(run, oldest);
}

bool overlap(const RunRef& a, const RunRef& b) noexcept {
    return a.object == b.object && a.serial == b.serial && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace

std::size_t Rolling::block_bytes(std::size_t object_bytes, std::size_t configured) const noexcept {
    if (configured != 0) return std::min(object_bytes, configured);
    const auto smallest = std::bit_ceil(std::max(kSmallest, object_bytes / kMostBlocks));
    return std::min(object_bytes, std::min(smallest, kLargest));
}

// Only a part of a large object, so that little is left to flush at the launch, and that the CPU finds what was brought
// in its caches: arrays of 1 GiB are swept in four fifths of the time with 4 MiB at once instead of 16 (an H200's
// host).
std::size_t Rolling::reach_bytes(std::size_t object_bytes, std::size_t configured) const noexcept {
    constexpr std::size_t kParts = 256, kSmall = std::size_t{2} << 20;  // a huge page
    const auto block = block_bytes(object_bytes, configured);
    if (configured != 0) return block;
    const auto part = std::clamp(object_bytes / kParts, kSmall, kLargest);
    return std::max(std::min(part / block, Blocks::block_count(object_bytes, block)), std::size_t{1}) * block;
}

std::size_t Rolling::limit(std::size_t allocations) const noexcept {
    if (fixed_ != 0) return std::min(fixed_, kRing - 1);
    return std::clamp<std::size_t>(kRunsPerAllocation * allocations + more_, 1, kRing - 1);
}

void Rolling::dirtied(RunRef run, bool again, std::size_t allocations, Plan& plan) noexcept {
    if (again && fixed_ == 0) more_ = std::min(more_ + limit(allocations), kRing);
    const auto allowed = limit(allocations);
    while (count_ >= allowed) {
        const RunRef& oldest = ring_[head_];
        // The same blocks were flushed by a copy and are Dirty again: the old entry is dropped without a flush.
        const bool own = overlap(oldest, run);
        if (!own && count_ == 1 && may_share_a_store(oldest, run)) break;
        if (!own && !plan.evict(oldest)) break;
        head_ = (head_ + 1) % kRing;
        --count_;
    }
    // The ring is full only if the plan is. Then the blocks are Dirty without an entry, and the next launch flushes
    // them.
    if (count_ < kRing) {
        ring_[(head_ + count_) % kRing] = run;
        ++count_;
    }
}

void Rolling::overwritten(RunRef run, std::size_t allocations, Plan& plan) noexcept {
    const bool large = run.count * run.object->block_bytes() >= kLargeCall;
    if (!large || !plan.evict(run)) dirtied(run, false, allocations, plan);
}

void Rolling::released() noexcept {
    count_ = 0;
    more_ /= 2;
}

}  // namespace hpe
