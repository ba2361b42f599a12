// SPDX-License-Identifier: MIT
// The blocks of an object, each with a state and a lock of its own: all of an object that a protocol knows. What the
// runtime keeps with them is the runtime's.
//
// Threads: every member function may be called from any thread and inside the fault path; none allocates. Objects are
// recycled but their memory is never given back: a thread that found an object in the table while another thread frees
// it reads stale memory, not freed memory. So lock a block first, then ask alive(serial). The blocks are given back:
// who looks at them where a free may come in between (outside the launch gate) does it in an ObjectUse.
//
// Errors: none; memory is given by the caller.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/plan.h"
#include "protocols/scatter.h"
#include "protocols/state.h"

namespace hpe {

inline constexpr std::size_t kPage = 4096;

// State and lock of a block in one word.
class Block {
public:
    // Waits for the lock; returns the state found.
    State lock() noexcept;
    void unlock(State next) noexcept;
    // The state stays.
    void unlock() noexcept;
    // Changes the state under the lock, which stays held.
    void become(State next) noexcept;
    // Without the lock: the answer may be old when it is used.
    struct Peek {
        State state;
        bool locked;
    };
    Peek peek() const noexcept {
        const auto word = word_.load(std::memory_order_acquire);
        return {static_cast<State>(word & kStateMask), (word & kLocked) != 0};
    }
    // A host function, or a thread inside a driver call, uses the block while device work is under way (loans.h). Set
    // and cleared under the lock.
    void mark_borrowed() noexcept { borrowed_.store(true, std::memory_order_relaxed); }
    void clear_borrowed() noexcept { borrowed_.store(false, std::memory_order_relaxed); }
    bool borrowed() const noexcept { return borrowed_.load(std::memory_order_relaxed); }
    // A prefetch was requested: the block's bytes are on their way to the view, or there already, while the block is
    // not valid on the host. Set under the lock. Whoever takes the request decides whether the bytes are used.
    void request_prefetch() noexcept { prefetch_requested_.store(true, std::memory_order_release); }
    bool prefetch_requested() const noexcept { return prefetch_requested_.load(std::memory_order_acquire); }
    bool take_prefetch_request() noexcept {
        return prefetch_requested() && prefetch_requested_.exchange(false, std::memory_order_acq_rel);
    }
    // It was evicted (flushed early) since the last release: if it is written again, the eviction came too early. Set
    // under the lock.
    void mark_evicted() noexcept { evicted_.store(true, std::memory_order_relaxed); }
    bool take_evicted() noexcept {
        return evicted_.load(std::memory_order_relaxed) && evicted_.exchange(false, std::memory_order_relaxed);
    }
    // All its pages were mapped since the object was opened. Under the lock.
    bool mapped() const noexcept { return mapped_; }
    void mark_mapped() noexcept { mapped_ = true; }
    // False if another thread holds the lock.
    bool try_lock() noexcept;
    // A default block again; nobody looks at it.
    void reset() noexcept;

private:
    static constexpr std::uint32_t kStateMask = 0xff, kLocked = 0x100, kAwaited = 0x200;
    std::atomic<std::uint32_t> word_{0};
    std::atomic<bool> borrowed_{false};
    std::atomic<bool> prefetch_requested_{false};
    std::atomic<bool> evicted_{false};
    bool mapped_ = false;
};
static_assert(sizeof(Block) == 8);  // an object may have thousands

class Blocks {
public:
    // Device addresses; size in whole pages. Bytes.
    std::uintptr_t base = 0;
    std::size_t size = 0;
    Scatter scatter;

    // Cuts the object into blocks, all DeviceOnly. `words` points to block_count(size, bytes) default Blocks, borrowed;
    // zero bytes are default Blocks. nullptr: it is one block, which the object has itself.
    void open(std::size_t block_bytes, Block* words) noexcept;
    // From here on alive() is false. The blocks may be freed once the caller holds the lock of none of them.
    void close() noexcept;
    // The CPU is about to use the object for the first time. False: it is closed.
    bool touch() noexcept;
    bool touched() const noexcept { return touched_.load(std::memory_order_acquire); }
    // close(), if no touch() came before: then no block was ever locked. Both may be called at the same time.
    [[gnu::hot]] bool close_untouched() noexcept;
    // Undoes close(): the blocks keep their states.
    [[gnu::hot]] void reopen() noexcept;
    // Hands the borrowed blocks back to their owner. Closed objects only, and not while they are used().
    Block* take_words() noexcept;
    // Of a recycled object: whether it still has the blocks of its last life, at least so many, which nobody touched.
    bool keeps_words(std::size_t count) const noexcept {
        return words_ != nullptr && words_ != &only_ && !touched() && blocks() >= count;
    }
    // Of a closed object: somebody is in an ObjectUse that began before.
    bool used() const noexcept { return users_.load(std::memory_order_seq_cst) != 0; }

    static std::size_t block_count(std::size_t size, std::size_t block_bytes) noexcept {
        return (size + block_bytes - 1) / block_bytes;
    }
    bool contains(std::uintptr_t address) const noexcept { return address - base < size; }
    bool alive(std::uint32_t serial) const noexcept { return serial_.load(std::memory_order_acquire) == serial; }
    bool is_open() const noexcept { return serial() % 2 == 1; }
    std::uint32_t serial() const noexcept { return serial_.load(std::memory_order_acquire); }

    std::uint32_t blocks() const noexcept { return blocks_.load(std::memory_order_acquire); }
    std::uint32_t block_at(std::uintptr_t address) const noexcept {
        const auto index = (address - base) / block_bytes_;
        return coarse() ? 0 : static_cast<std::uint32_t>(index);
    }
    Block& block(std::uint32_t index) noexcept { return words_[index]; }
    // Those of [first, end): in ascending order, as every thread that waits for several of an object.
    void lock(std::uint32_t first, std::uint32_t end) noexcept {
        for (auto i = first; i < end; ++i) words_[i].lock();
    }
    void unlock(std::uint32_t first, std::uint32_t end) noexcept {
        for (auto i = first; i < end; ++i) words_[i].unlock();
    }
    std::size_t offset_of(std::uint32_t index) const noexcept { return std::size_t{index} * block_bytes_; }
    std::size_t bytes_of(std::uint32_t index) const noexcept {
        if (coarse()) return size;
        const auto offset = offset_of(index);
        return size - offset < block_bytes_ ? size - offset : block_bytes_;
    }
    std::size_t block_bytes() const noexcept { return coarse() ? size : block_bytes_; }

    // At the limit on mappings: the whole object is one block from here on. The caller has locked every block.
    void coarsen() noexcept { blocks_.store(1, std::memory_order_release); }
    bool coarse() const noexcept { return blocks_.load(std::memory_order_acquire) == 1; }

private:
    friend class ObjectUse;
    friend class BlocksTable;
    Block only_;
    Block* words_ = nullptr;
    std::size_t block_bytes_ = kPage;
    std::atomic<std::uint32_t> blocks_{0};
    std::atomic<std::uint32_t> serial_{0};  // odd: open
    std::atomic<std::uint32_t> users_{0};   // ObjectUses, also some that come too late
    std::atomic<bool> touched_{false};
    std::atomic<bool> in_table_{false};  // changed under the table's lock
};

// Scope in which an object's members and blocks stay what they are: freed meanwhile, it is not recycled. Nobody waits
// for its end, so that a jump out of a signal handler past it costs the memory of a freed object and no more.
class ObjectUse {
public:
    ObjectUse(Blocks& object, std::uintptr_t address) noexcept : object_(object) {
        // Either close() comes first and is seen here, or used() sees this.
        object.users_.fetch_add(1, std::memory_order_seq_cst);
        serial_ = object.serial_.load(std::memory_order_seq_cst);
        ours_ = serial_ % 2 == 1 && object.contains(address);
    }
    ~ObjectUse() { object_.users_.fetch_sub(1, std::memory_order_release); }
    ObjectUse(const ObjectUse&) = delete;
    ObjectUse& operator=(const ObjectUse&) = delete;
    // False: the object holds the address no more.
    explicit operator bool() const noexcept { return ours_; }
    // Of the object's life that is used.
    std::uint32_t serial() const noexcept { return serial_; }

private:
    Blocks& object_;
    std::uint32_t serial_ = 0;
    bool ours_ = false;
};

}  // namespace hpe
