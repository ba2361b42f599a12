// SPDX-License-Identifier: MIT
// Steps of the launch gate: launch_gate.h and launch_gate.cpp.
#include "tests/checker/step.h"

namespace checker {

// Who sleeps in front of the gate looks again.
void Step::wake() {
    for (auto& thread : s_.threads) {
        if (thread.at == At::LaunchAsleep)
            thread.at = At::LaunchTry;
        else if (thread.at == At::FaultAsleep)
            thread.at = At::FaultTry;
        else
            continue;
        thread.flags |= kSlept;
    }
}

void Step::leave_fault() {
    leave(s_.counted, me_);
    leave(s_.faults, me_);
    if (s_.counted == 0 && (s_.launches_wait != 0 || s_.faults_wait != 0)) wake();
}

// The slot: nobody is woken.
void Step::leave_launch() {
    leave(s_.taken, me_);
    leave(s_.launches, me_);
}

void Step::launch_begin() {
    if (without(Mend::LookAfterTaking)) {
        return go(s_.counted == 0 && s_.faults_wait == 0 ? At::LaunchLook : At::LaunchTry, "looks for faults");
    }
    join(s_.taken, me_);
    go(At::LaunchLook, "takes a slot");
}

void Step::launch_look() {
    if (without(Mend::LookAfterTaking)) {
        join(s_.taken, me_);
        return inside("takes a slot");
    }
    if (s_.counted == 0 && s_.faults_wait == 0) return inside("is inside as a launch");
    leave(s_.taken, me_);
    go(At::LaunchTry, "sees a fault, gives the slot back");
}

// Whoever is woken together with others gets in at some time (strong fairness).
// enter(Launches), then a slot, then leave(Launches): as one step, since no fault enters in between.
void Step::launch_try() {
    const bool yields = !flag(kSlept) && s_.faults_wait != 0;
    if (s_.counted != 0 || yields) {
        s_.launches_wait = 1;
        return go(At::LaunchAsleep, "sleeps in front of the gate");
    }
    s_.launches_wait = 0;
    join(s_.taken, me_);
    clear(kSlept);
    if (s_.faults_wait != 0) wake();
    inside("is inside as a launch", Fair::Entry);
}

void Step::fault_try() {
    if (!flag(kSlept) && s_.launches_wait != 0 && !without(Mend::YieldInGate)) {
        s_.faults_wait = 1;
        return go(At::FaultAsleep, "sleeps in front of the gate, for launches that wait");
    }
    s_.faults_wait = 0;
    join(s_.counted, me_);
    clear(kSlept);
    go(At::FaultSlots, "is counted as a fault");
}

// Each attempt has twice the patience of the last. So it gives up again only where a launch stays inside, for whatever
// time, since a full stream or the device keeps it.
void Step::fault_slots() {
    if (s_.taken == 0) {
        join(s_.faults, me_);
        if (t_.back == At::Entered) return entered();
        return go(t_.back, "is inside as a fault", -1, Fair::Entry);
    }
    if (without(Mend::PatienceInGate) || (flag(kGaveUp) && !launch_is_kept())) return;
    set(kGaveUp);
    leave_fault();
    // An acquire() that cannot get in leaves the blocks to later faults.
    if (t_.back == At::AcquireIn) return finish("gives up, since a launch stays inside");
    go(At::FaultRest, "lets launches in, since one stays inside");
}

bool Step::launch_is_kept() const {
    for (unsigned program = 0; program < kThreads; ++program) {
        const auto& other = s_.threads[program];
        const auto& its = statement_of(scenario_, program, other.pc);
        if ((s_.taken >> program & 1) == 0) continue;
        if (other.at == At::FreeTrue && its.what == Do::EndContext) {
            if ((s_.queued[0] != 0 && !goes_on(0)) || (s_.queued[1] != 0 && !goes_on(1))) return true;
        } else if (other.at == At::Push || other.at == At::FullStream) {
            if (s_.queued[its.stream] == scenario_.queue && !goes_on(its.stream)) return true;
        }
    }
    return false;
}

// Whether the first work of a stream that has some ends without anybody's help.
bool Step::goes_on(unsigned stream) const {
    const auto& head = s_.queues[stream][0];
    if (head.what == kWaitItem) return true;
    const auto& its = statement_of(scenario_, head);
    return its.what != Do::Call && (its.flag == 0 || (s_.raised & its.flag) != 0);
}

}  // namespace checker
