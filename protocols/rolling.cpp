// SPDX-License-Identifier: MIT
// Rolling-update: the queue of Dirty blocks.
#include "protocols/rolling.h"

#include <algorithm>

namespace hpe {

namespace {

// One store may straddle two blocks, and both must be Dirty at once or it never ends.
bool may_share_a_store(const BlockRef& a, const BlockRef& b) noexcept {
    return a.object == b.object && (a.block + 1 == b.block || b.block + 1 == a.block);
}

bool is_same(const BlockRef& a, const BlockRef& b) noexcept {
    return a.object == b.object && a.serial == b.serial && a.block == b.block;
}

}  // namespace

std::size_t Rolling::block_bytes(std::size_t object_bytes, std::size_t configured) const noexcept {
    return std::min(object_bytes, configured);
}

std::size_t Rolling::limit() const noexcept {
    if (fixed_ != 0) return std::min(fixed_, kRing - 1);
    const auto adaptive = kBlocksPerObject * objects_.load(std::memory_order_relaxed);
    return std::clamp<std::size_t>(adaptive, 1, kRing - 1);
}

void Rolling::dirtied(BlockRef block, Plan& plan) noexcept {
    lock();
    const auto allowed = limit();
    while (count_ >= allowed) {
        const BlockRef& oldest = ring_[head_];
        // Flushed by a copy meanwhile and now Dirty anew: this entry only goes.
        const bool own = is_same(oldest, block);
        if (!own && count_ == 1 && may_share_a_store(oldest, block)) break;
        if (!own && !plan.evict(oldest)) break;
        head_ = (head_ + 1) % kRing;
        --count_;
    }
    // Full only if the plan is, too: then the block is Dirty without an entry, and the next launch flushes it.
    if (count_ < kRing) {
        ring_[(head_ + count_) % kRing] = block;
        ++count_;
    }
    unlock();
}

void Rolling::released() noexcept {
    lock();
    count_ = 0;
    unlock();
}

// Held for a few instructions, with all signals blocked by the caller: it cannot be interrupted for long.
void Rolling::lock() noexcept {
    while (busy_.test_and_set(std::memory_order_acquire)) busy_.wait(true, std::memory_order_relaxed);
}

void Rolling::unlock() noexcept {
    // Seen by who goes to sleep before notify_one() looks for sleepers.
    busy_.clear(std::memory_order_seq_cst);
    busy_.notify_one();
}

}  // namespace hpe
