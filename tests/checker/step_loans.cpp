// SPDX-License-Identifier: MIT
// Steps of loans, flushes and host functions: coherence_loans.cpp, settle_flushes(), callbacks.cpp.
#include "tests/checker/step.h"

namespace checker {

using hpe::State;

// Lent: the device work before it has ended; then the count, then whether the CPU uses the object.
void Step::lend_wait() {
    if (!came_that_far()) return;
    join(s_.lent, object_of(st_.to_block));
    leave(s_.fresh, object_of(st_.to_block));
    go(At::LendLook, "counts a loan to the MPI", st_.to_block);
}

void Step::lend_look() {
    if (mapped(st_.to_block) && !without(Mend::LendSeesUse)) {
        leave(s_.lent, object_of(st_.to_block));
        return finish("sees that the CPU uses the object", st_.to_block);
    }
    s_.message = static_cast<Byte>(1 + 16 * a_ + t_.pc);
    finish("leaves the object to the MPI", st_.to_block);
}

// ~Lent. What was not lent the device copies there.
void Step::received() {
    if (s_.message == 0) return launch_begin();
    if (s_.arrived == 0) return;
    for (unsigned stream = 0; stream < kStreams; ++stream) t_.ahead[stream] = s_.queued[stream];
    go(At::ReceivedWait, "hears that the message is there", st_.to_block);
}

void Step::received_wait() {
    if (!came_that_far()) return;
    if (mapped(st_.to_block) && !without(Mend::ReceivedIsNewest)) return launch_begin();
    go(At::ReceivedEnd, "sees that the CPU has not used the object", st_.to_block);
}

void Step::received_end() {
    leave(s_.lent, object_of(st_.to_block));
    s_.message = s_.arrived = 0;
    finish("ends the loan", st_.to_block);
}

// Engine::flush(), flush_changes(): the view is read when they land. False: the engine's stream takes no more.
bool Step::flush(unsigned index, Byte bytes) {
    leave(bytes, static_cast<Byte>(~block(index).allocated));
    if (bytes == 0) return true;
    if (s_.flushing == kMostFlushes) return false;
    s_.flushes[s_.flushing++] = {static_cast<Byte>(index), bytes, 0};
    return true;
}

bool Step::send_changes(unsigned index) {
    const auto& mine = block(index);
    if (mine.loan == Loan::Idle) return flush(index, 3);
    unsigned changed = 0;
    for (unsigned i = 0; i < 2; ++i) changed |= mine.view[i] != mine.twin[i] ? 1u << i : 0;
    if (without(Mend::FlushChanges)) changed = 3;
    return changed == 0 || flush(index, static_cast<Byte>(changed));
}

void Step::end_loan(unsigned index) {
    block(index).loan = Loan::None;
    block(index).twin = {};
}

// The caller has locked block k.
void Step::loan_close() {
    protect(t_.k, State::Invalid);
    if (block(t_.k).state == State::Dirty && !send_changes(t_.k)) return;
    go(At::LoanDrain, "closes, and flushes what changed", t_.k);
}

void Step::loan_drain() {
    if (block(t_.k).state == State::Dirty && s_.flushing != 0) return;
    end_loan(t_.k);
    block(t_.k).state = State::Invalid;
    block(t_.k).listed = 0;
    go(t_.back, "has ended the loan", t_.k);
}

void Step::loans() {
    if (t_.at == At::LoansNext) {
        block(t_.k).owner = 0;
        ++t_.k;
    }
    while (t_.k < kBlocks && block(t_.k).loan == Loan::None) ++t_.k;
    if (t_.k == kBlocks) {
        t_.k = 0;
        return t_.outer == At::Acquire ? acquire() : go(t_.outer, "sees that there are no loans");
    }
    if (t_.at == At::LoansNext) return go(At::Loans, "unlocks, and looks at the next loan");
    if (!locks(t_.k)) return;
    t_.back = At::LoansNext;
    go(At::LoanClose, "locks a borrowed block", t_.k);
}

// Goes on at `then` once no flush that only streams wait for is under way.
void Step::settle(At then, const char* words, int about) {
    if (s_.streams_wait == 0 || without(Mend::SettleBeforeFetch)) return go(then, words, about);
    t_.back = then;
    go(At::Settle, words, about);
}

void Step::settle_begin() {
    if (s_.streams_wait == 0) return go(t_.back, "sees that no flush is under way");
    if (!takes(s_.flushes_lock)) return;
    if (without(Mend::DrainBeforeSettled)) s_.streams_wait = 0;
    go(At::SettleDrain, "waits for flushes");
}

void Step::settle_drain() {
    if (s_.flushing != 0) return;
    s_.streams_wait = 0;
    s_.flushes_lock = 0;
    go(t_.back, "has waited for flushes");
}

// Whether it is this host function's turn, or it is running.
bool Step::runs_in(unsigned stream) const {
    const auto& head = s_.queues[stream][0];
    if (s_.queued[stream] == 0 || head.what == kWaitItem) return false;
    const auto& its = statement_of(scenario_, head);
    return its.what == Do::Call && kThreads + its.value == a_;
}

void Step::call_begins() {
    if (t_.pc == kOver || (!runs_in(0) && !runs_in(1))) return;
    t_.outer = At::Begin;
    go(without(Mend::CallbackBeginsFresh) ? At::Begin : At::Loans, "begins");
}

void Step::call_returns() {
    t_.outer = At::CallSettles;
    go(without(Mend::CallbackEndsLoans) ? At::CallSettles : At::Loans, "is over for the program");
}

void Step::call_settles() {
    if (!flag(kSent) || without(Mend::CallbackSettles)) return call_ends();
    settle(At::CallEnds, "looks for flushes of what it borrowed");
}

void Step::call_ends() {
    pop(s_, runs_in(0) ? 0 : 1);
    t_ = Thread{.pc = kOver, .at = At::CallBegins};
    go(At::CallBegins, "returns, and its stream goes on");
}

}  // namespace checker
