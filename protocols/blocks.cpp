// SPDX-License-Identifier: MIT
// Locks of blocks, and an object's life.
#include "protocols/blocks.h"

namespace hpe {

State Block::lock() noexcept {
    auto word = word_.load(std::memory_order_relaxed);
    for (;;) {
        if ((word & kLocked) == 0) {
            if (word_.compare_exchange_weak(word, word | kLocked, std::memory_order_acquire)) {
                return static_cast<State>(word & kStateMask);
            }
            continue;
        }
        // Say that somebody waits, so that unlock() wakes only when it must.
        if ((word & kAwaited) == 0 && !word_.compare_exchange_weak(word, word | kAwaited, std::memory_order_relaxed)) {
            continue;
        }
        word_.wait(word | kAwaited, std::memory_order_relaxed);
        word = word_.load(std::memory_order_relaxed);
    }
}

bool Block::try_lock() noexcept {
    auto word = word_.load(std::memory_order_relaxed);
    while ((word & kLocked) == 0) {
        if (word_.compare_exchange_weak(word, word | kLocked, std::memory_order_acquire)) return true;
    }
    return false;
}

void Block::reset() noexcept {
    word_.store(0, std::memory_order_relaxed);
    borrowed_.store(false, std::memory_order_relaxed);
    prefetch_requested_.store(false, std::memory_order_relaxed);
    evicted_.store(false, std::memory_order_relaxed);
    mapped_ = false;
}

void Block::unlock(State next) noexcept {
    const auto before = word_.exchange(static_cast<std::uint32_t>(next), std::memory_order_release);
    if ((before & kAwaited) != 0) word_.notify_all();
}

void Block::unlock() noexcept {
    const auto before = word_.fetch_and(kStateMask, std::memory_order_release);
    if ((before & kAwaited) != 0) word_.notify_all();
}

void Block::become(State next) noexcept {
    // Others may be setting kAwaited.
    auto word = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(word, (word & ~kStateMask) | static_cast<std::uint32_t>(next),
                                        std::memory_order_relaxed)) {
    }
}

void Blocks::open(std::size_t block_bytes, Block* words) noexcept {
    if (words == nullptr) only_.reset();
    words_ = words != nullptr ? words : &only_;
    block_bytes_ = block_bytes;
    static_assert(static_cast<int>(State::DeviceOnly) == 0);
    blocks_.store(static_cast<std::uint32_t>(block_count(size, block_bytes)), std::memory_order_relaxed);
    touched_.store(false, std::memory_order_relaxed);
    scatter.forget();
    serial_.store(serial_.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // nobody else changes it
}

void Blocks::close() noexcept { serial_.fetch_add(1, std::memory_order_seq_cst); }

void Blocks::reopen() noexcept { serial_.fetch_add(1, std::memory_order_release); }

// In the order of all such operations one of the two comes first, and the other sees it.
bool Blocks::touch() noexcept {
    if (!touched_.load(std::memory_order_relaxed)) touched_.store(true, std::memory_order_seq_cst);
    return serial_.load(std::memory_order_seq_cst) % 2 == 1;
}

bool Blocks::close_untouched() noexcept {
    auto open = serial_.load(std::memory_order_acquire);
    if (touched() || open % 2 == 0 || !serial_.compare_exchange_strong(open, open + 1, std::memory_order_seq_cst)) {
        return false;
    }
    if (!touched_.load(std::memory_order_seq_cst)) return true;
    reopen();
    return false;
}

Block* Blocks::take_words() noexcept {
    Block* words = words_;
    words_ = nullptr;
    return words != &only_ ? words : nullptr;
}

}  // namespace hpe
