// SPDX-License-Identifier: MIT
// States of a block, the events that change them, and what a transition asks the runtime to do.
// Source: ADSM/GMAC paper section 4.3 and figure 6 (the three states and the CPU's events); DeviceOnly and the events
// of copies are libhpe's own, for programs that still copy explicitly.
//
// Values only: nothing here has an owner, a thread or an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hpe {

enum class State : std::uint8_t {
    DeviceOnly,  // no host copy was ever made; costs nothing
    Invalid,     // the device copy is newer
    ReadOnly,    // both copies are equal
    Dirty,       // the host copy is newer
};
inline constexpr std::size_t kStates = 4;

enum class Event : std::uint8_t {
    CpuRead,      // a load by the CPU trapped
    CpuWrite,     // a store by the CPU trapped
    Release,      // the device is about to run something that may touch any block
    Acquire,      // the program waited for the device
    DeviceRead,   // the device is about to read this block (source of a copy)
    DeviceWrite,  // ... to write to it. Nothing is dropped that is wholly overwritten: the call may still fail
    Evict,        // the protocol chose the block for an early flush
};
inline constexpr std::size_t kEvents = 7;

// Fetch: device to host. Flush: host to device. The protection of the shadow follows from the next state.
enum class Action : std::uint8_t { Nothing, Fetch, Flush };

struct Transition {
    Action action;
    State next;
};

using TransitionTable = std::array<std::array<Transition, kEvents>, kStates>;

constexpr bool valid_on_host(State s) { return s == State::ReadOnly || s == State::Dirty; }

}  // namespace hpe
