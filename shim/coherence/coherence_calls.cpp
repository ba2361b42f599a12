// SPDX-License-Identifier: MIT
// Coherence: memory that a call reads or writes without a trap (lease.h). Class of this file: that of the fault path,
// but for the last bytes of a store, which trap as the program's own.
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "shim/base/errno_kept.h"
#include "shim/base/helper.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/transfer/read_ahead.h"

namespace hpe {

namespace {

// The state in which the fault door serves a fault: no handler of the program runs, and waiting for the driver is no
// cancellation point.
class AsInHandler {
public:
    AsInHandler() noexcept {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
        this_thread.in_fault = true;
    }
    ~AsInHandler() {
        this_thread.in_fault = before_;
        pthread_setcancelstate(cancellation_, nullptr);
    }
    AsInHandler(const AsInHandler&) = delete;
    AsInHandler& operator=(const AsInHandler&) = delete;

private:
    const ErrnoKept kept_;
    const SignalsBlocked blocked_;
    const bool before_ = this_thread.in_fault;
    int cancellation_ = PTHREAD_CANCEL_ENABLE;
};

// As serve_fault() finds out: who may not wait for the device may not give it work.
bool may_wait() noexcept { return this_thread.in_callback == 0 && this_thread.inside == 0 && !this_thread.in_room; }

}  // namespace

bool Coherence::ready_to_read(Object& object, std::uintptr_t begin, std::size_t bytes, const void* caller) noexcept {
    const AsInHandler scope;
    const auto serial = object.serial();
    for (auto at = begin; at < begin + bytes;) {
        const auto index = object.block_at(at);
        if (!valid_on_host(object.block(index).peek().state)) {
            const bool served = serve_fault({at, false, reinterpret_cast<std::uintptr_t>(caller)}) == Served::Done;
            if (!served || !object.alive(serial)) return false;
            continue;
        }
        at = object.base + object.offset_of(index) + object.bytes_of(index);
    }
    return true;
}

bool Coherence::store(Object& object, std::uintptr_t begin, const std::byte* from, std::size_t bytes,
                      const void* caller) noexcept {
    const auto serial = object.serial();
    const auto end = begin + bytes;
    for (auto at = begin; at < end;) {
        const auto* const source = from + (at - begin);
        const auto done = may_wait() ? overwrite(object, serial, at, source, end - at) : 0;
        if (done != 0) {
            at += done;
            continue;
        }
        // A part of a block, or one in use by others: as the program would write it.
        const auto index = object.block_at(at);
        const auto part = std::min(end, object.base + object.offset_of(index) + object.bytes_of(index)) - at;
        {
            const AsInHandler scope;
            if (serve_fault({at, true, reinterpret_cast<std::uintptr_t>(caller)}) != Served::Done) return false;
        }
        std::memcpy(reinterpret_cast<void*>(at), source, part);
        at += part;
    }
    return true;
}

// The whole blocks that the range begins with: their old bytes are not asked for. Returns bytes, 0 where there are
// none.
std::size_t Coherence::overwrite(Object& object, std::uint32_t serial, std::uintptr_t begin, const std::byte* from,
                                 std::size_t bytes) noexcept {
    const auto first = object.block_at(begin);
    if (object.base + object.offset_of(first) != begin || object.bytes_of(first) > bytes) return 0;
    const AsInHandler scope;
    std::size_t done = 0;
    helper::with_driver(on_alternate_stack(), helper::Kind::Fault, [&] {
        // What a launch's stream waits for may still be on its way out of the very view.
        if (wait_in_order() == CUDA_SUCCESS && object.alive(serial) && map_shadow(object, false) &&
            settle_flushes() == CUDA_SUCCESS) {
            use_huge_pages(object, object.offset_of(first), bytes);
            done = overwrite_blocks(object, serial, first, from, bytes);
        }
        room_.leave_fault();
    });
    return done;
}

std::size_t Coherence::overwrite_blocks(Object& object, std::uint32_t serial, std::uint32_t first,
                                        const std::byte* from, std::size_t bytes) noexcept {
    std::size_t done = 0;
    std::uint32_t newly_dirty = 0;
    // Stretches of blocks that became Dirty, one after the other.
    const auto tell = [&](std::uint32_t end) {
        if (newly_dirty == 0) return;
        Plan plan;
        protocol_->dirtied({&object, serial, end - newly_dirty, newly_dirty}, false, plan);
        for (const auto& victim : plan) evict(victim);
        newly_dirty = 0;
    };
    auto index = first;
    for (; index < object.blocks() && object.bytes_of(index) <= bytes - done; ++index) {
        const auto size = object.bytes_of(index);
        Block& block = object.block(index);
        const auto before = block.lock();
        const bool ours =
            usable(object, serial, index) && object.bytes_of(index) == size && !block.lent() &&
            (!block.expected() || read_ahead::settle(object, index, 1, read_ahead::kNothing) == CUDA_SUCCESS);
        if (!ours) {
            block.unlock(before);
            break;
        }
        std::memcpy(object.view + object.offset_of(index), from + done, size);
        if (!valid_on_host(before)) became_valid(object, 1);
        block.unlock(State::Dirty);
        done += size;
        if (before == State::Dirty) {
            tell(index);
        } else {
            ++newly_dirty;
        }
    }
    tell(index);
    return done;
}

}  // namespace hpe
