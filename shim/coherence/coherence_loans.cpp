// SPDX-License-Identifier: MIT
// Coherence: how loans end. Class of this file: that of the fault path.

#include "shim/base/errno_kept.h"
#include "shim/base/helper.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/loans.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/transfer/engine.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

// Of each context, since several may fail, and the end of one must not clear what another one's program has to see.
constinit SpinLock guard;
constinit ByContext<CUresult> sticky_errors HPE_GUARDED_BY(guard);
CUresult of_no_context HPE_GUARDED_BY(guard) = CUDA_SUCCESS;

}  // namespace

void Coherence::set_sticky_error(CUcontext context, CUresult result) noexcept {
    const SignalsBlocked blocked;
    Locked lock(guard);
    auto* const own = sticky_errors.of(context);
    (own != nullptr ? *own : of_no_context) = result;
    const auto before = sticky_error_.exchange(result, std::memory_order_acq_rel);
    lock.unlock();
    if (before != CUDA_SUCCESS) return;
    log::error("cannot flush what the CPU wrote: {}; later CUDA calls fail", error_name(result));
}

void Coherence::forget_sticky_error(CUcontext context) noexcept {
    const SignalsBlocked blocked;
    const Locked lock(guard);
    if (auto* const own = sticky_errors.known(context)) *own = CUDA_SUCCESS;
    auto left = of_no_context;
    for (const auto other : sticky_errors) left = left != CUDA_SUCCESS ? left : other;
    sticky_error_.store(left, std::memory_order_release);
}

// Whether all outstanding device work waits for the calling thread's host function. A launch that comes later releases
// the blocks that are valid on the host before its kernel runs.
bool Coherence::device_waits_for_us() const noexcept {
    return !launch_gate_.launches_inside() && in_flight.idle_except(this_thread.callback_stream);
}

// The block is locked, and not writable.
bool Coherence::keep_twin(Loan& loan) noexcept {
    if (loan.device_idle) return true;
    // A flush under way reads the view whenever it gets there, and may send bytes that are newer than the twin's.
    auto drained = CUDA_SUCCESS;
    helper::with_driver(true, helper::Kind::Transfer, [&] { drained = engine.drain(); });
    return (drained == CUDA_SUCCESS || lost_context(drained)) && loan.keep_twin(loan.object->bytes_of(loan.block));
}

CUresult Coherence::send_changes(const Loan& loan) noexcept {
    Object& object = *loan.object;
    const auto offset = object.offset_of(loan.block);
    return loan.device_idle ? engine.flush(object, offset, object.bytes_of(loan.block), Engine::Order::Unordered)
                            : engine.flush_changes(object, offset, loan.bytes, loan.twin);
}

CUresult Coherence::end_loan(Loan& loan) noexcept {
    Object& object = *loan.object;
    Block& block = object.block(loan.block);
    if (object.shadowed.load(std::memory_order_acquire) &&
        !pager::protect(object.base + object.offset_of(loan.block), object.bytes_of(loan.block), State::Invalid) &&
        !pager::close_shadow(object)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (block.peek().state == State::Dirty) {
        auto result = send_changes(loan);
        const auto drained = engine.drain();
        // drain() speaks of all contexts: the lost one need not be this object's. If it is, send_changes() fails.
        if (result == CUDA_SUCCESS && !lost_context(drained)) result = drained;
        if (result != CUDA_SUCCESS) return result;
    }
    loans::end(loan);
    block.become(State::Invalid);
    object.host_valid_blocks.fetch_sub(1, std::memory_order_release);
    return CUDA_SUCCESS;
}

void Coherence::end_loan_at(std::size_t place) noexcept {
    Loan* loan = loans::lock(place);
    if (loan == nullptr) return;
    Object& object = *loan->object;
    Block& block = object.block(loan->block);
    auto result = CUDA_SUCCESS;
    // This thread has locked the block, so the helper waits for no block.
    helper::with_driver(this_thread.in_callback != 0 || this_thread.inside != 0 || this_thread.in_fault,
                        helper::Kind::Transfer, [&] { result = end_loan(*loan); });
    // No call can return this error, so later calls will (sticky_error). The loan ends all the same: a later flush
    // would overwrite what the device writes from here on. A block that was only read stays borrowed.
    if (result != CUDA_SUCCESS && block.peek().state == State::Dirty) {
        set_sticky_error(object.context, result);
        loans::end(*loan);
    }
    block.unlock();
}

void Coherence::end_touched_inside() noexcept {
    if (this_thread.inside != 0) return;
    this_thread.touched_inside = false;
    end_loans();
}

void Coherence::end_loans() noexcept {
    if (!loans::any()) return;
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    for (std::size_t place = 0; place < loans::kMost; ++place) end_loan_at(place);
}

void Coherence::end_callback(std::uint64_t began) noexcept {
    end_loans();
    if (loans_sent() == began || !streams_wait_.load(std::memory_order_acquire)) return;
    const ErrnoKept kept;
    const SignalsBlocked blocked;
    auto result = CUDA_SUCCESS;
    helper::with_driver(true, helper::Kind::Transfer, [&] { result = settle_flushes(); });
    // It is not known of which context: no context's end clears it.
    if (result != CUDA_SUCCESS && !lost_context(result)) set_sticky_error(nullptr, result);
}

CUresult Coherence::end_loans_of(Object& object, BlockRange locked, bool unordered) noexcept {
    auto result = CUDA_SUCCESS;
    for (auto i = locked.first; i < locked.end && result == CUDA_SUCCESS; ++i) {
        if (!object.block(i).borrowed()) continue;
        helper::with_driver(unordered, helper::Kind::Transfer, [&] { result = end_loan(*loans::of(object, i)); });
    }
    return result;
}

// Ends the loans of an object that is freed, without flushing them.
void Coherence::drop_loans_of(Object& object) noexcept {
    if (!loans::any()) return;
    for (std::uint32_t i = 0; i < object.blocks(); ++i) {
        if (object.block(i).borrowed()) loans::end(*loans::of(object, i));
    }
}

}  // namespace hpe
