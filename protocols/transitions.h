// SPDX-License-Identifier: MIT
// The transition tables, as data: the one place where it is written what happens to a block in any state on any event.
// tests/unit/protocol_test.cpp walks every pair.
//
// Sources: ADSM/GMAC paper section 4.3 and figure 6, (a) for batch-update, (b) for lazy- and rolling-update. Constants:
// any thread; what must hold in every table is checked when this is compiled.
#pragma once

#include "protocols/state.h"

namespace hpe {

namespace detail {
inline constexpr Transition stay(State s) { return {Action::Nothing, s}; }
inline constexpr Transition go(State s) { return {Action::Nothing, s}; }
inline constexpr Transition fetch(State s) { return {Action::Fetch, s}; }
inline constexpr Transition flush(State s) { return {Action::Flush, s}; }
}  // namespace detail

// Lazy-update and rolling-update: figure 6(b). They differ in block size and in who evicts, not in the states.
inline constexpr TransitionTable kWriteInvalidate = [] {
    using namespace detail;
    using enum State;
    // Order of events: CpuRead, CpuWrite, Release, Acquire, DeviceRead, DeviceWrite, Evict
    return TransitionTable{{
        /* DeviceOnly */ {fetch(ReadOnly), fetch(Dirty), stay(DeviceOnly), stay(DeviceOnly), stay(DeviceOnly),
                          stay(DeviceOnly), stay(DeviceOnly)},
        /* Invalid    */
        {fetch(ReadOnly), fetch(Dirty), stay(Invalid), stay(Invalid), stay(Invalid), stay(Invalid), stay(Invalid)},
        /* ReadOnly   */
        {stay(ReadOnly), go(Dirty), go(Invalid), stay(ReadOnly), stay(ReadOnly), go(Invalid), stay(ReadOnly)},
        /* Dirty      */
        {stay(Dirty), stay(Dirty), flush(Invalid), stay(Dirty), flush(ReadOnly), flush(Invalid), flush(ReadOnly)},
    }};
}();

// Batch-update: figure 6(a), no detection of accesses. A touched object is Dirty whenever the CPU may access it and is
// sent whole at every release, modified or not. Unlike in the paper, accesses trap between release and acquire, so that
// a program that reads early gets the kernel's result instead of an old value; and after the object was the source of a
// copy.
inline constexpr TransitionTable kBatch = [] {
    using namespace detail;
    using enum State;
    return TransitionTable{{
        /* DeviceOnly */ {fetch(Dirty), fetch(Dirty), stay(DeviceOnly), stay(DeviceOnly), stay(DeviceOnly),
                          stay(DeviceOnly), stay(DeviceOnly)},
        /* Invalid    */
        {fetch(Dirty), fetch(Dirty), stay(Invalid), fetch(Dirty), stay(Invalid), stay(Invalid), stay(Invalid)},
        /* ReadOnly   */
        {stay(ReadOnly), go(Dirty), go(Invalid), stay(ReadOnly), stay(ReadOnly), go(Invalid), stay(ReadOnly)},
        /* Dirty      */
        {stay(Dirty), stay(Dirty), flush(Invalid), stay(Dirty), flush(ReadOnly), flush(Invalid), stay(Dirty)},
    }};
}();

// What must hold in any table, whatever the protocol: checked at compile time.
constexpr bool keeps_data(const TransitionTable& table) {
    for (std::size_t s = 0; s < kStates; ++s) {
        for (std::size_t e = 0; e < kEvents; ++e) {
            const auto state = static_cast<State>(s);
            const auto event = static_cast<Event>(e);
            const auto [action, next] = table[s][e];
            // The only newer copy may vanish only after a flush.
            if (state == State::Dirty && next != State::Dirty && action != Action::Flush) return false;
            // The host may look only at what was fetched or was valid already.
            if (!valid_on_host(state) && valid_on_host(next) && action != Action::Fetch) return false;
            if (action == Action::Fetch && valid_on_host(state)) return false;
            if (action == Action::Flush && state != State::Dirty) return false;
            // While the device computes or writes no host copy may stay valid.
            const bool device_acts = event == Event::Release || event == Event::DeviceWrite;
            if (device_acts && valid_on_host(next)) return false;
            if (event == Event::DeviceRead && state == State::Dirty && action != Action::Flush) return false;
            // A copy may go on reading after its call returned. So a later store has to trap and wait: the flush of
            // that store could overtake the copy.
            if (event == Event::DeviceRead && next == State::Dirty) return false;
            // A trapped access must be able to go on.
            if (event == Event::CpuRead && !valid_on_host(next)) return false;
            if (event == Event::CpuWrite && next != State::Dirty) return false;
        }
    }
    return true;
}
static_assert(keeps_data(kWriteInvalidate));
static_assert(keeps_data(kBatch));

// Marks beside the state (Block), none of which changes what the tables say:
// - Borrowed stands only with a host copy. What a CPU access of another thread, or the program's wait, finds is what is
//   left when the loan has ended: Invalid. Release, DeviceRead and DeviceWrite are the table's, only that a flush sends
//   the bytes that were changed; the loan ends with the host copy. Evict does not concern a borrowed block.
// - PrefetchRequested stands only without one. An access that fetches takes the request, whatever becomes of the bytes;
//   no other event looks at it, since the tables make a host copy by a fetch alone.
// - Evicted and Mapped (no bit here) speak of the past: a wrong one costs time.
enum class Mark : std::uint8_t { Borrowed, PrefetchRequested };

// Of a block that nobody has locked. The checker (tests/checker) holds the library's steps to it.
constexpr bool may_stand(Mark mark, State state) {
    return mark == Mark::Borrowed ? valid_on_host(state) : !valid_on_host(state);
}

// Whether the tables bear that out: `state` with the mark, and an event that leaves the mark where it is.
constexpr bool keeps_marks(const TransitionTable& table) {
    for (std::size_t s = 0; s < kStates; ++s) {
        for (std::size_t e = 0; e < kEvents; ++e) {
            const auto [action, next] = table[s][e];
            const auto event = static_cast<Event>(e);
            // The request is taken with the fetch.
            if (may_stand(Mark::PrefetchRequested, static_cast<State>(s)) && action != Action::Fetch &&
                !may_stand(Mark::PrefetchRequested, next)) {
                return false;
            }
            // An early flush of a borrowed block is left out, and its host copy stays: so it may never be needed to
            // take the copy away.
            if (event == Event::Evict && valid_on_host(static_cast<State>(s)) && !valid_on_host(next)) return false;
            // A program's wait ends the loan first, and the block is Invalid: then nothing may have to be flushed.
            if (event == Event::Acquire && action == Action::Flush) return false;
        }
    }
    return true;
}
static_assert(keeps_marks(kWriteInvalidate));
static_assert(keeps_marks(kBatch));

}  // namespace hpe
