// SPDX-License-Identifier: MIT
// Steps of calls of the driver: launches, copies, waits, frees, ends of contexts. door.h, coherence_doors.cpp,
// coherence.cpp.
#include "tests/checker/step.h"

namespace checker {

using hpe::Action;
using hpe::Event;
using hpe::State;

void Step::inside(const char* words, Fair fair) {
    join(s_.launches, me_);
    if (s_.faults != 0) return wrong(Wrong::Gate, "is inside beside a fault");
    t_.k = 0;
    if (st_.what == Do::Free) return go(At::FreeBegin, words, -1, fair);
    if (st_.what == Do::FreePart) return part_begin();
    if (st_.what == Do::EndContext) {
        s_.ending = 1;
        return go(without(Mend::EndFlushes) ? At::FreeBegin : At::Apply, words, -1, fair);
    }
    bool needs_release = s_.streams_wait != 0 && !without(Mend::EveryStreamWaits);
    for (const auto& each : s_.blocks) needs_release = needs_release || each.listed != 0;
    go(needs_release && st_.what != Do::Call ? At::Apply : At::Push, words, -1, fair);
}

// Whether the call is about the block, which may be valid on the host or become so.
bool Step::concerned(unsigned index) const {
    const auto& mine = s_.blocks[index];
    if (mine.listed == 0 || (s_.live & object_of(index)) == 0) return false;
    if (mine.owner == 0 && !hpe::valid_on_host(mine.state)) return false;
    if (st_.what != Do::Copy && st_.what != Do::Received) return true;
    return index == st_.block || (st_.writes && index == st_.to_block);
}

hpe::Transition Step::transition(unsigned index) {
    auto event = Event::Release;
    if (st_.what == Do::Copy || st_.what == Do::Received)
        event = st_.writes && index == st_.to_block ? Event::DeviceWrite : Event::DeviceRead;
    return on(block(index).state, event);
}

void Step::apply_lock() {
    while (t_.k < kBlocks && !concerned(t_.k)) ++t_.k;
    if (t_.k == kBlocks) {
        t_.k = 0;
        return apply_close();
    }
    if (!locks(t_.k)) return;
    t_.held = static_cast<Byte>(t_.held | 1u << t_.k);
    ++t_.k;
    go(At::ApplyLock, "locks", t_.k - 1);
}

void Step::apply_close() {
    while (t_.k < kBlocks && ((t_.held >> t_.k & 1) == 0 || transition(t_.k).action != Action::Flush)) ++t_.k;
    if (t_.k == kBlocks) return apply_rest();
    if (!without(Mend::CloseBeforeFlush)) protect(t_.k, of_pages(t_.k, transition(t_.k).next));
    if (s_.failures != 0) {
        const World kept = s_;
        --s_.failures;
        set(kFailed);
        go(At::ApplyAwait, "cannot flush", t_.k);
        s_ = kept;
    }
    const bool borrowed = block(t_.k).loan != Loan::None;
    if (!(borrowed ? send_changes(t_.k) : flush(t_.k, 3))) return;
    for (unsigned call = kThreads; borrowed && call < kPrograms; ++call) {
        auto& other = s_.threads[call];
        if (other.at != At::CallBegins) other.flags |= kSent;
    }
    ++t_.k;
    go(At::ApplyClose, "closes, flushes", t_.k - 1);
}

void Step::apply_rest() {
    for (unsigned i = 0; i < kBlocks; ++i) {
        const bool rest = (t_.held >> i & 1) != 0 && transition(i).next != block(i).state;
        if (rest && (transition(i).action != Action::Flush || without(Mend::CloseBeforeFlush))) {
            protect(i, of_pages(i, transition(i).next));
        }
    }
    t_.k = 0;
    if (without(Mend::CloseBeforeFlush)) return go(At::ApplyAwait, "closes");
    apply_await();
}

void Step::apply_await() {
    if (s_.flushes_lock != 0) return;
    const bool here = flag(kFailed) || st_.what == Do::EndContext;
    if (here && s_.flushing != 0) return;
    s_.streams_wait = s_.flushing != 0;
    const bool early = without(Mend::WaitUnlocked) && !here;
    if (early) return go(At::MakeWait, "leaves the flushes to its stream");
    apply_unlock();
}

void Step::apply_unlock() {
    const bool failed = flag(kFailed);
    for (unsigned i = 0; i < kBlocks; ++i) {
        if ((t_.held >> i & 1) == 0) continue;
        auto& mine = block(i);
        const auto next = failed && !without(Mend::RollBack) ? mine.state : transition(i).next;
        if (failed) protect(i, of_pages(i, next));
        if (mine.loan != Loan::None && next != State::Dirty) {
            end_loan(i);
            if (hpe::valid_on_host(next) && !without(Mend::CopyKeepsLoan)) mine.loan = Loan::Plain;
        }
        mine.state = next;
        if (!hpe::valid_on_host(next)) mine.listed = 0;
        mine.owner = 0;
    }
    t_.held = 0;
    if (!failed && st_.what != Do::Copy) s_.oldest = s_.oldest_gone = 0;
    if (st_.what == Do::EndContext) {
        s_.apply_mutex = 0;
        t_.k = 0;
        return go(At::FreeBegin, "has waited for flushes, unlocks");
    }
    if (failed) {
        s_.apply_mutex = 0;
        leave_launch();
        return finish("rolls back, and the call returns the error");
    }
    if (without(Mend::WaitUnlocked)) {
        s_.apply_mutex = 0;
        return go(At::Push, "unlocks");
    }
    if (!without(Mend::WaitWithoutMutex)) s_.apply_mutex = 0;
    go(At::MakeWait, "closes what is left, unlocks");
}

// Engine::make_wait(): a full stream keeps the call, even if the flushes have ended meanwhile.
void Step::make_wait() {
    if (s_.flushing == 0) {
        if (s_.flushes_lock != 0) return;
        s_.streams_wait = 0;
        return has_made_wait("has no flush to wait for");
    }
    if (without(Mend::StreamWaits)) return has_made_wait("does not wait for flushes");
    if (s_.queued[st_.stream] == scenario_.queue) return go(At::FullStream, "is kept by its full stream");
    full_stream("makes its stream wait for flushes");
}

void Step::full_stream(const char* words) {
    auto& length = s_.queued[st_.stream];
    if (length == scenario_.queue) return;
    s_.queues[st_.stream][length++] = {kWaitItem, s_.flushing};
    has_made_wait(words);
}

void Step::has_made_wait(const char* words) {
    if (without(Mend::WaitUnlocked)) return go(At::ApplyUnlock, words);
    if (without(Mend::WaitWithoutMutex)) s_.apply_mutex = 0;
    go(At::Push, words);
}

void Step::push() {
    if (st_.refused) return go(At::Count, "is refused by the driver");
    if (st_.what == Do::Received && s_.message != 0) {
        // In a stream of libhpe's own, which waits for flushes alone.
        return s_.queued[st_.stream] == 0 ? go(At::Count, "has made its bytes the newest") : void();
    }
    auto& length = s_.queued[st_.stream];
    if (length == scenario_.queue) return;
    s_.queues[st_.stream][length++] = {static_cast<Byte>(16 * a_ + t_.pc), 0};
    if (without(Mend::CountInGate)) leave_launch();
    go(At::Count, "enqueues");
}

// Counts the work, and leaves the gate.
void Step::count() {
    // OwnWork::run() waits for its stream.
    if (st_.what == Do::Received && s_.queued[st_.stream] != 0) return;
    for (auto& each : s_.threads) {
        const bool compares = each.at == At::Wait || each.at == At::Entered || each.at == At::FaultTry ||
                              each.at == At::FaultAsleep || each.at == At::FaultSlots || each.at == At::FaultRest ||
                              each.at == At::AcquireIn;
        if (compares) each.flags |= kMoved;
    }
    for (auto& each : s_.blocks) {
        if (each.prefetch != Prefetch::None) each.prefetch_old = 1;
    }
    s_.fresh = 0;
    if (st_.what == Do::Received && s_.message != 0) {
        leave(s_.lent, object_of(st_.to_block));
        s_.message = s_.arrived = 0;
    }
    leave_launch();
    finish("counts the work, and leaves the gate");
}

// Waits for transfers that use the object.
void Step::free_drain() {
    const auto object = object_of(st_.block);
    if (s_.flushing != 0 && !without(Mend::FreeDrains)) return;
    for (unsigned i = 0; i < kBlocks; ++i) {
        if (!is_of(object, i) || without(Mend::FreeDropsPrefetch)) continue;
        if (block(i).prefetch == Prefetch::Asked) return;
        block(i).prefetch = Prefetch::None;
        block(i).prefetch_old = 0;
    }
    if (takes(s_.apply_mutex)) go(At::FreeLock, "holds the mutex of calls, has waited for transfers");
}

void Step::free_lock() {
    while (t_.k < kBlocks && !is_of(object_of(st_.block), t_.k)) ++t_.k;
    if (t_.k == kBlocks) {
        t_.k = 0;
        return free_loans();
    }
    if (!locks(t_.k)) return;
    ++t_.k;
    go(At::FreeLock, "locks", t_.k - 1);
}

void Step::free_loans() {
    const auto object = object_of(st_.block);
    while (t_.k < kBlocks && (!is_of(object, t_.k) || block(t_.k).loan == Loan::None)) ++t_.k;
    if (t_.k == kBlocks || without(Mend::FreeEndsLoans)) return free_close();
    t_.back = At::FreeLoans;
    go(At::LoanClose, "finds a loan", t_.k);
}

void Step::free_close() {
    const auto object = object_of(st_.block);
    leave(s_.live, object);
    leave(s_.mapped, object);
    for (unsigned i = 0; i < kBlocks; ++i) {
        if (!is_of(object, i)) continue;
        const auto kept = block(i);
        block(i) = BlockModel{
            .prefetch = kept.prefetch, .prefetch_old = kept.prefetch_old, .view = kept.view, .device = kept.device};
        if (s_.oldest == i + 1) s_.oldest_gone = 1;
    }
    for (unsigned program = 0; program < kPrograms; ++program) {
        auto& other = s_.threads[program];
        const auto& its = statement_of(scenario_, program, other.pc);
        const bool accesses = its.what == Do::Read || its.what == Do::Write;
        const bool found = other.at >= At::Wait && other.at != At::CallBegins && other.back != At::Look;
        if (accesses && found && is_of(object, its.block)) other.flags |= kGone;
    }
    s_.apply_mutex = 0;
    go(At::FreeTrue, "unmaps and closes the object");
}

// The true call, and what follows.
void Step::free_true() {
    const auto object = object_of(st_.block);
    const bool ends = st_.what == Do::EndContext, stays = ends && scenario_.context_stays;
    if (ends && !stays && s_.queued != decltype(s_.queued){}) return;
    for (unsigned i = 0; i < kBlocks; ++i) {
        if (!is_of(object, i)) continue;
        block(i).view = {kHostGarbage, kHostGarbage};
        if (stays) continue;
        block(i).device = {kDeviceGarbage, kDeviceGarbage};
        if (block(i).prefetch == Prefetch::Asked) block(i).prefetch_old = 2;
        for (unsigned flush = 0; flush < s_.flushing; ++flush) {
            if (s_.flushes[flush].block == i) s_.flushes[flush].gone = 3;
        }
    }
    if (stays) {
        join(s_.live, object);
    } else {
        leave(s_.owned, object);
    }
    if (ends) {
        s_.ending = 0;
        for (auto& each : s_.threads) {
            if (each.at == At::FindAgain) each.flags |= kEnds;
        }
    }
    leave_launch();
    finish(stays ? "gets the context's objects back" : "frees the memory");
}

// Coherence::leave_region()
void Step::part_begin() {
    if (!without(Mend::PartLeavesFirst)) {
        leave(block(st_.block).allocated, static_cast<Byte>(1u << st_.byte));
        return go(At::PartLock, "is inside, takes the allocation out of the table", st_.block);
    }
    part_lock();
}

void Step::part_lock() {
    if (s_.apply_mutex != 0 || block(st_.block).owner != 0) return;
    if (!without(Mend::PartClosesGap) && mapped(st_.block)) block(st_.block).pages[st_.byte] = Pages::Closed;
    go(At::PartDrain, "has locked the block, and closes the gap", st_.block);
}

void Step::part_drain() {
    if (s_.flushing != 0 && !without(Mend::PartDrains)) return;
    go(At::PartTrue, "has waited for flushes");
}

void Step::part_true() {
    leave(block(st_.block).allocated, static_cast<Byte>(1u << st_.byte));
    block(st_.block).device[st_.byte] = kDeviceGarbage;
    for (unsigned flush = 0; flush < s_.flushing; ++flush) {
        auto& its = s_.flushes[flush];
        if (its.block == st_.block) join(its.gone, static_cast<Byte>(1u << st_.byte));
    }
    leave_launch();
    finish("frees the memory", st_.block);
}

void Step::sync_wait() {
    if (!came_that_far()) return;
    t_.outer = At::Acquire;
    if (without(Mend::WaitEndsLoans)) return acquire();
    loans();
}

void Step::acquire() {
    const bool idle = s_.queued == decltype(s_.queued){};
    if (on(State::Invalid, Event::Acquire).action == Action::Nothing || (!idle && !without(Mend::AcquireAsksIdle))) {
        return finish("is back from the wait");
    }
    t_.back = At::AcquireIn;
    go(At::FaultTry, "wants to bring what the device wrote");
}

void Step::acquire_in() {
    if (flag(kMoved) && !without(Mend::AcquireAsksIdle)) {
        leave_fault();
        return finish("is back from the wait, since work has come");
    }
    if (!takes(s_.apply_mutex)) return;
    t_.k = 0;
    settle(At::AcquireBlocks, "holds the mutex of calls");
}

void Step::acquire_blocks() {
    if (t_.k == kBlocks) {
        s_.apply_mutex = 0;
        leave_fault();
        return finish("is back from the wait");
    }
    auto& mine = block(t_.k);
    if (mine.owner != 0) return;
    const auto [action, next] = on(mine.state, Event::Acquire);
    if (action == Action::Fetch && mapped(t_.k) && (!is_lent(t_.k) || without(Mend::AcquireSkipsLent))) {
        fetch(t_.k);
        mine.state = next;
        mine.listed = 1;
        protect(t_.k, next);
    }
    ++t_.k;
    go(At::AcquireBlocks, "brings", t_.k - 1);
}

}  // namespace checker
