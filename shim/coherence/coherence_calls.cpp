// SPDX-License-Identifier: MIT
// Coherence: memory that a call reads or writes without a trap (lease.h). Class of this file: that of the fault path.

#include <algorithm>
#include <cstring>

#include "shim/base/guarded_copy.h"
#include "shim/base/helper.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/trace.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/read_ahead.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

// Whether a call has to wait for the device and end the block's loan, though the state would do: the loan brought the
// bytes of one allocation alone, and those of the others are old. An access would trap there.
bool waits_for_loan(Object& object, std::uint32_t index) noexcept {
    return object.block(index).borrowed() && object.is_region() && may_wait_for_device() &&
           object.lent.load(std::memory_order_acquire) == 0;  // else the call would only borrow the block again
}

// A range of one object, block by block, as long as that is not freed.
class Range {
public:
    Range(Object& object, std::uintptr_t begin, std::size_t bytes) noexcept
        : object_(object), begin_(begin), bytes_(bytes), at_(begin) {}

    // Goes on to the first block that is not as wanted: at(). True: there is none.
    template <class Wanted>
    bool pass(Wanted&& wanted) noexcept {
        const ObjectUse use(object_, begin_);
        if (serial_ == 0) {
            gone_ = !use || bytes_ > object_.base + object_.size - begin_;
            serial_ = use.serial();
            view_ = object_.view + (begin_ - object_.base);
        }
        gone_ = gone_ || !object_.alive(serial_);
        while (!gone_ && at_ < begin_ + bytes_) {
            const auto index = object_.block_at(at_);
            if (!wanted(object_.block(index).peek().state) || waits_for_loan(object_, index)) return false;
            at_ = end_of(index);
        }
        return !gone_;
    }
    // The block at at() will do.
    void skip() noexcept {
        const ObjectUse use(object_, begin_);
        if (object_.alive(serial_)) at_ = end_of(object_.block_at(at_));
    }
    // After pass(). Gone: there is no such object any more.
    bool gone() const noexcept { return gone_; }
    std::uintptr_t at() const noexcept { return at_; }
    std::byte* view() const noexcept { return view_; }

private:
    std::uintptr_t end_of(std::uint32_t index) const noexcept {
        return object_.base + object_.offset_of(index) + object_.bytes_of(index);
    }
    Object& object_;
    const std::uintptr_t begin_;
    const std::size_t bytes_;
    std::uintptr_t at_;
    std::byte* view_ = nullptr;
    std::uint32_t serial_ = 0;
    bool gone_ = false;
};

constexpr bool is_dirty(State state) noexcept { return state == State::Dirty; }

// As an access of the caller's that trapped, for the report, too.
bool serve_call(Coherence& coherence, std::uintptr_t at, bool is_write, const void* caller) noexcept {
    trace::Fault traced(at, is_write);
    call_stacks::Event event;
    const auto served = coherence.serve_fault({at, is_write, reinterpret_cast<std::uintptr_t>(caller), true}, traced);
    event.ended_access(is_write ? "write fault, in a call" : "read fault, in a call", nullptr);
    traced.stack(event.ticket());
    return served == Coherence::Served::Done;
}

}  // namespace

// A call that finds its blocks ready needs no system call.
const std::byte* Coherence::ready_to_read(Object& object, std::uintptr_t begin, std::size_t bytes,
                                          const void* caller) noexcept {
    Range range(object, begin, bytes);
    if (range.pass(valid_on_host)) return range.view();
    const AsInHandler scope;
    do {
        if (range.gone()) return nullptr;
        if (!serve_call(*this, range.at(), false, caller)) return nullptr;
    } while (!range.pass(valid_on_host));
    return range.view();
}

bool Coherence::ready_to_write(Object& object, std::uintptr_t begin, std::size_t bytes, const void* caller) noexcept {
    Range range(object, begin, bytes);
    if (range.pass(is_dirty)) return true;
    const AsInHandler scope;
    do {
        if (range.gone()) return false;
        if (!serve_call(*this, range.at(), true, caller)) return false;
        range.skip();  // the next one may push it out
    } while (!range.pass(is_dirty));
    return true;
}

namespace {

class FromMemory final : public Coherence::Source {
public:
    explicit FromMemory(const std::byte* from) noexcept : from_(from) {}
    bool fill(std::byte* to, std::size_t bytes) noexcept override {
        std::memcpy(to, from_, bytes);
        return true;
    }

private:
    const std::byte* const from_;
};

}  // namespace

bool Coherence::store(Object& object, std::uintptr_t begin, const std::byte* from, std::size_t bytes,
                      const void* caller) noexcept {
    // What is Dirty the CPU may write where it is, as the program does: a store that traps if a launch of another
    // thread has taken it meanwhile, and fails if the object is gone. That spares a message of a few bytes two system
    // calls and a wait.
    constexpr std::size_t kShort = 4096;
    if (bytes <= kShort && Range(object, begin, bytes).pass(is_dirty) &&
        hpe_guarded_copy(reinterpret_cast<void*>(begin), from, bytes)) {
        return true;
    }
    const auto end = begin + bytes;
    for (auto at = begin; at < end;) {
        const auto* const next = from + (at - begin);
        FromMemory source(next);
        auto done = overwrite(object, at, end - at, source);
        if (done == 0) done = write_in_block(object, at, next, end - at, caller);
        if (done == 0) return false;
        at += done;
    }
    return true;
}

// A part of a block, or one in use by others: like the program's own access, which traps if the block is not Dirty.
// Returns how much of the range lies in the block; 0: the device cannot give it.
std::size_t Coherence::write_in_block(Object& object, std::uintptr_t at, const std::byte* from, std::size_t bytes,
                                      const void* caller) noexcept {
    const AsInHandler scope;
    std::uint32_t serial = 0;
    const auto trap = [&] { return serve_call(*this, at, true, caller); };
    do {
        const ObjectUse use(object, at);
        if (!use || (serial != 0 && use.serial() != serial)) return 0;
        serial = use.serial();
        const auto index = object.block_at(at);
        Block& block = object.block(index);
        const auto before = block.lock();
        const bool writable = usable(object, serial, index) && before == State::Dirty && !waits_for_loan(object, index);
        const auto part = std::min(
            bytes, static_cast<std::size_t>(object.base + object.offset_of(index) + object.bytes_of(index) - at));
        if (writable) std::memcpy(object.view + (at - object.base), from, part);
        block.unlock(before);
        if (writable) return part;
        // Again after that: a launch of another thread may have taken it meanwhile.
    } while (trap());
    return 0;
}

std::size_t Coherence::overwrite(Object& object, std::uintptr_t begin, std::size_t bytes, Source& source) noexcept {
    if (!may_wait_for_device()) return 0;
    std::uint32_t serial = 0, first = 0;
    {
        const ObjectUse use(object, begin);
        if (!use) return 0;
        serial = use.serial();
        first = object.block_at(begin);
        if (object.base + object.offset_of(first) != begin || object.bytes_of(first) > bytes) return 0;
    }
    const AsInHandler scope;
    std::size_t done = 0;
    helper::with_driver(driver_needs_helper(object.context), helper::Kind::Fault, [&] {
        // What a launch's stream waits for may still be on its way out of the very view.
        if (wait_in_order() == CUDA_SUCCESS && object.alive(serial) && map_shadow(object, begin, false) &&
            settle_flushes() == CUDA_SUCCESS) {
            done = overwrite_blocks(object, serial, first, bytes, source);
        }
        launch_gate_.leave_fault();
    });
    return done;
}

// Inside the gate, as a fault, with all device work waited for.
std::size_t Coherence::overwrite_blocks(Object& object, std::uint32_t serial, std::uint32_t first, std::size_t bytes,
                                        Source& source) noexcept {
    // Launches of other threads wait meanwhile.
    constexpr std::size_t kAtOnce = std::size_t{16} << 20;
    const auto most = std::min(bytes, std::max(kAtOnce, object.bytes_of(first)));
    std::size_t size = 0;
    bool any_valid = false;
    auto end = first;
    for (; end < object.blocks() && object.bytes_of(end) <= most - size; ++end) {
        const auto block_bytes = object.bytes_of(end);
        Block& block = object.block(end);
        const auto before = block.lock();
        const bool ours =
            usable(object, serial, end) && object.bytes_of(end) == block_bytes && !block.borrowed() &&
            (!block.prefetch_requested() || read_ahead::settle(object, end, 1, read_ahead::kNothing) == CUDA_SUCCESS);
        if (!ours) {
            block.unlock(before);
            break;
        }
        size += block_bytes;
        any_valid = any_valid || valid_on_host(before);
    }
    if (end == first) return 0;
    // What was evicted may still be on its way out of the view.
    if (any_valid && engine.drain() != CUDA_SUCCESS) {
        object.unlock(first, end);
        return 0;
    }
    use_huge_pages(object, object.offset_of(first), size);
    const bool filled = source.fill(object.view + object.offset_of(first), size);
    Plan plan;
    for (auto i = first, fresh = first; i < end; ++i) {
        Block& block = object.block(i);
        const auto before = block.peek().state;
        // Of a valid block the host copy is the newest also where the source has left it in the middle.
        const bool changes = filled || valid_on_host(before);
        if (changes && !valid_on_host(before)) became_valid(object, 1);
        block.unlock(changes ? State::Dirty : before);
        if (!changes || before == State::Dirty) {
            fresh = i + 1;
        } else if (i + 1 == end || object.block(i + 1).peek().state == State::Dirty) {
            const Locked dirty(dirty_runs_);
            protocol_->overwritten({&object, serial, fresh, i + 1 - fresh}, allocations(), plan);
        }
    }
    for (const auto& victim : plan) evict(victim);
    return filled ? size : 0;
}

}  // namespace hpe
