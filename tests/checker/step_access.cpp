// SPDX-License-Identifier: MIT
// Steps of CPU accesses: coherence_faults.cpp.
#include "tests/checker/step.h"

namespace checker {

using hpe::Action;
using hpe::Event;

// The access itself, which a page may refuse. Fair in the strong sense: from the page's opening to the access it takes
// less than from there to the next time that the page is closed.
void Step::access() {
    const auto needed = st_.what == Do::Read ? Pages::Readable : Pages::Open;
    const unsigned first = st_.what == Do::Straddle ? 0 : st_.block, last = st_.what == Do::Straddle ? 1 : st_.block;
    for (unsigned i = first; i <= last; ++i) {
        const unsigned byte = st_.what == Do::Straddle ? 1 - i : st_.byte;
        if (block(i).pages[byte] >= needed) continue;
        if (st_.what == Do::Straddle) t_.held = static_cast<Byte>(i);
        return find();
    }
    auto& mine = block(st_.block).view[st_.byte];
    if (st_.what == Do::Read) {
        if ((st_.expected[0] >> mine & 1) == 0) return wrong(Wrong::Data, "reads what it should not", st_.block);
        return finish("reads", st_.block, Fair::Access);
    }
    if (st_.what == Do::Straddle) {
        block(0).view[1] = block(1).view[0] = st_.value;
    } else {
        mine = st_.value;
    }
    finish("writes", st_.block, Fair::Access);
}

void Step::find() {
    const auto object = object_of(where());
    if ((s_.live & object) == 0) {
        if (!unordered()) return go(At::FindAgain, "traps, finds no object");
        if (s_.ending != 0 && !without(Mend::CallWaitsForEnd)) return;
        return wrong(Wrong::Memory, "finds no object, and the program is told of a fault");
    }
    if (unordered()) {
        map();
        return go(At::BorrowLock, "traps, finds the object, and will not wait", static_cast<int>(where()));
    }
    if (without(Mend::WaitBeforeGate)) {
        t_.back = At::WaitInGate;
        return go(At::FaultTry, "traps, finds the object");
    }
    snapshot("traps, finds the object, sees what the device has to do");
}

void Step::find_again() {
    if ((s_.ending == 0 && !flag(kEnds)) || without(Mend::LookAgainAfterEnding)) {
        return wrong(Wrong::Memory, "takes the fault for the program's own", static_cast<int>(where()));
    }
    t_.back = At::Look;
    go(At::FaultTry, "waits until the context's end is over");
}

void Step::look() {
    if ((s_.live & object_of(where())) == 0) return wrong(Wrong::Memory, "takes the fault for the program's own");
    leave_fault();
    again("finds the object again");
}

void Step::snapshot(const char* words, Fair fair) {
    clear(kMoved);
    t_.ahead = s_.queued;
    for (unsigned program = 0; program < kPrograms; ++program) {
        const auto& other = s_.threads[program];
        if (other.at != At::Count) continue;  // what it has pushed is not counted yet
        const auto& its = statement_of(scenario_, program, other.pc);
        if (!its.refused && t_.ahead[its.stream] != 0) --t_.ahead[its.stream];
    }
    go(At::Wait, words, static_cast<int>(where()), fair);
}

bool Step::came_that_far() const {
    for (const auto left : t_.ahead) {
        if (left != 0) return false;
    }
    return true;
}

void Step::entered() {
    if (!flag(kMoved)) return serve();
    if (without(Mend::WaitAgain)) {
        map();
        clear(kMoved | kTried);
        t_.borrows = 1;
        return go(At::BorrowLock, "borrows, since work has come", static_cast<int>(where()));
    }
    if (flag(kTried) && !without(Mend::BlockLaunchesAtLast)) {
        t_.ahead = s_.queued;
        return go(At::WaitInGate, "waits for the device, and keeps launches out", static_cast<int>(where()),
                  Fair::Entry);
    }
    set(kTried);
    leave_fault();
    snapshot("leaves the gate, since work has come", Fair::Entry);
}

void Step::wait_in_gate() {
    if (without(Mend::WaitBeforeGate)) {
        if (s_.queued == decltype(s_.queued){}) serve();
        return;
    }
    if (came_that_far()) return serve();
    // It has the patience for such work as comes without a pause, and gives up where the device waits for somebody.
    for (unsigned stream = 0; stream < kStreams; ++stream) {
        if (t_.ahead[stream] != 0 && goes_on(stream)) return;
    }
    leave_fault();
    snapshot("leaves the gate: the device has not come that far");
}

void Step::serve() {
    if (flag(kGone)) {
        if (without(Mend::AskAlive)) return wrong(Wrong::Memory, "uses an object that is gone");
        leave_fault();
        return again("sees that the object is gone");
    }
    const bool early = without(Mend::AskLentMapped) && !is_lent(where());
    if (!early) map();
    clear(kMoved | kTried);
    go(early ? At::MapLate : At::AskLent, "is inside as a fault", static_cast<int>(where()), Fair::Entry);
}

// Once the object is mapped, which a loan sees.
void Step::ask_lent() {
    if (!is_lent(where()) || without(Mend::BorrowLent)) return lock();
    t_.borrows = 1;
    borrow_lock();
}

void Step::map() {
    const auto object = object_of(where());
    for (unsigned i = 0; i < kBlocks; ++i) {
        if (is_of(object, i) && !mapped(i)) block(i).pages = {Pages::Closed, Pages::Closed};
    }
    join(s_.mapped, object);
}

// No host function has borrowed it: this thread has waited for all. Somebody may have while the object was lent.
void Step::lock() {
    if (!locks(where())) return;
    if (block(where()).loan == Loan::None) return decide("locks the block");
    t_.k = static_cast<Byte>(where());
    t_.back = At::Decide;
    go(At::LoanClose, "locks the block, which was borrowed", t_.k);
}

void Step::decide(const char* words) {
    const auto index = where();
    const auto [action, next] = on(block(index).state, event());
    const bool fetches =
        action == Action::Fetch && (borrows() || next != hpe::State::Dirty || (s_.fresh & object_of(index)) == 0);
    if (fetches) return settle(At::Bring, words, static_cast<int>(index));
    go(borrows() ? At::BorrowTwin : At::Open, words, static_cast<int>(index));
}

void Step::bring() {
    auto& mine = block(where());
    if (mine.prefetch == Prefetch::Asked) return;
    // Memory may have to be pinned, for which the driver waits for the device (Engine::Order).
    if (!borrows() && s_.queued != decltype(s_.queued){}) return;
    const bool arrived =
        mine.prefetch == Prefetch::Arrived && !borrows() && (mine.prefetch_old == 0 || without(Mend::PrefetchIsOld));
    if (!arrived) fetch(where());
    mine.prefetch = Prefetch::None;
    mine.prefetch_old = 0;
    if (!borrows()) return open(arrived ? "takes prefetched bytes, opens the block" : "fetches, opens the block");
    go(At::BorrowTwin, "fetches", static_cast<int>(where()));
}

void Step::open(const char* words) {
    const auto index = where();
    auto& mine = block(index);
    const auto before = mine.state;
    const auto next = on(before, event()).next;
    mine.state = next;
    mine.owner = 0;
    mine.listed = 1;
    const bool borrowing = t_.borrows != 0 || unordered();
    if (scenario_.apart && borrowing && !without(Mend::OpenOwnPart)) {
        if (mapped(index)) mine.pages[st_.byte] = pages_of(next);
    } else {
        protect(index, next);
    }
    const auto other = index ^ 1u;
    if (t_.borrows != 0) return served(words);
    if (unordered()) return again(words, static_cast<int>(index));
    if (scenario_.rolling && next == hpe::State::Dirty && before != hpe::State::Dirty) {
        const bool evicts =
            s_.oldest != 0 && s_.oldest != index + 1 && (!scenario_.one_object || without(Mend::StraddledStay));
        if (evicts && s_.oldest_gone != 0) set(kGone);
        if (s_.oldest == 0 || s_.oldest == index + 1 || evicts) {
            s_.oldest = static_cast<Byte>(index + 1);
            s_.oldest_gone = 0;
        }
        if (evicts) {
            t_.k = static_cast<Byte>(other);
            return go(At::EvictLock, words, static_cast<int>(index));
        }
    }
    if (scenario_.prefetch && st_.what == Do::Read && scenario_.one_object && s_.fresh == 0 &&
        block(other).prefetch == Prefetch::None && on(block(other).state, Event::CpuRead).action == Action::Fetch &&
        locks(other)) {
        t_.k = static_cast<Byte>(other);
        return settle(At::Ahead, words, static_cast<int>(index));
    }
    served(words);
}

void Step::served(const char* words) {
    leave_fault();
    again(words, static_cast<int>(where()));
}

void Step::evict_lock() {
    if (flag(kGone)) {
        if (without(Mend::EvictAsksAlive))
            return wrong(Wrong::Memory, "evicts a block of an object that is gone", t_.k);
        return served("finds that what it should evict is gone, after");
    }
    if (!locks(t_.k)) return;
    auto& victim = block(t_.k);
    if (on(victim.state, Event::Evict).action == Action::Flush && victim.loan == Loan::None && mapped(t_.k)) {
        return evict_close();
    }
    victim.owner = 0;
    served("finds nothing to evict, after");
}

void Step::evict_close() {
    if (without(Mend::EvictClosesFirst)) {
        if (!flush(t_.k, 3)) return;
        return go(At::EvictFlush, "locks what it evicts, flushes it", t_.k);
    }
    protect(t_.k, on(hpe::State::Dirty, Event::Evict).next);
    go(At::EvictFlush, "locks what it evicts, closes it", t_.k);
}

void Step::evict_flush() {
    auto& victim = block(t_.k);
    if (s_.failures != 0) {
        const World kept = s_;
        --s_.failures;
        protect(t_.k, victim.state);
        victim.owner = 0;
        served("cannot flush what it evicts, after");
        s_ = kept;
    }
    victim.state = on(victim.state, Event::Evict).next;
    if (without(Mend::EvictClosesFirst)) {
        protect(t_.k, victim.state);
    } else if (!flush(t_.k, 3)) {
        return;
    }
    victim.owner = 0;
    served("evicts, after");
}

void Step::borrow_lock() {
    const auto index = where();
    auto& mine = block(index);
    if (mine.owner != 0) return;
    if (flag(kGone)) {
        if (without(Mend::AskAlive)) {
            return wrong(Wrong::Memory, "uses a block of an object that is gone", static_cast<int>(index));
        }
        if (t_.borrows != 0) leave_fault();
        return again("sees under the block's lock that the object is gone");
    }
    locks(index);
    if (on(mine.state, event()).next == mine.state) return go(At::Open, "locks the block", static_cast<int>(index));
    if (!without(Mend::ListBeforeIdle)) mine.listed = 1;
    if (mine.loan != Loan::None) return decide("locks the block, which is borrowed");
    mine.loan = Loan::Plain;
    go(At::BorrowJudge, "borrows the block", static_cast<int>(index));
}

// device_waits_for_us()
void Step::borrow_judge() {
    bool idle = s_.taken == 0 && (!is_lent(where()) || without(Mend::LentIsWritten));
    for (unsigned stream = 0; stream < kStreams; ++stream) idle = idle && (s_.queued[stream] == 0 || runs_in(stream));
    if (idle) block(where()).loan = Loan::Idle;
    decide(idle ? "sees that the device waits for it" : "sees that the device is at work");
}

void Step::borrow_twin() {
    auto& mine = block(where());
    if (on(mine.state, event()).next == hpe::State::Dirty && mine.loan != Loan::Idle) {
        if (s_.flushing != 0 && !without(Mend::DrainBeforeTwin)) return;
        mine.twin = mine.view;
        mine.loan = Loan::Twin;
    }
    go(At::Open, "is ready to open the block", static_cast<int>(where()));
}

}  // namespace checker
