// SPDX-License-Identifier: MIT
// What each call stack of the program cost, for the report (HPE_REPORT=file.json): its accesses that trapped, and its
// CUDA calls. backtrace.h takes the stacks, call_tree.h keeps them.
//
// Units: those of costs.inc; ticks of ticks.h. Threads: any; an Event also in the fault path: no allocation, no lock.
// While no stacks are wanted an Event costs a load. Errors: where libunwind is missing that is said in one line, and
// there are no stacks; an event whose stack could not be taken is counted without one.
#pragma once

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/base/backtrace.h"
#include "shim/base/flag.h"
#include "shim/base/ticks.h"

namespace hpe::call_stacks {

enum Cost : std::size_t {
#define COST(name, key) name,
#include "shim/observe/costs.inc"
#undef COST
    kCosts
};
static_assert(kCosts <= backtrace::kPayloadWords);

HPE_HIDDEN extern constinit Flag enabled;
inline bool on() noexcept { return enabled.load(std::memory_order_relaxed); }

// An access or a call, from construction to destruction; counted if it ended.
class Event {
public:
    Event() noexcept : begin_(on() ? ticks::now() : 0), around_(current_) {
        if (begin_ != 0) current_ = this;
    }
    ~Event() { current_ = around_; }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void add(Cost cost, std::uint64_t much) noexcept { payload_[cost] += much; }
    // A call ended. Names live for ever.
    void ended(const char* name) noexcept {
        add(Cost::Count, 1);
        ended_access(name, nullptr);
    }
    // An access ended, which is counted where it is served: it may be repeated instead. `interrupted`: nullptr for one
    // that is made by a call of the program's, and did not trap.
    void ended_access(const char* name, const ucontext_t* interrupted) noexcept {
        if (begin_ != 0 && payload_[Cost::Count] != 0) take(name, interrupted);
    }
    std::uint64_t begin() const noexcept { return begin_; }
    // For text_of(), when it has ended.
    backtrace::Ticket ticket() const noexcept { return ticket_; }
    // What is to be done when it has its ticket, before the call returns to the program.
    using Then = void (*)(backtrace::Ticket ticket);
    void then(Then function) noexcept { then_ = function; }
    // Time that was the report's own.
    void leave_out(std::uint64_t ticks) noexcept {
        if (begin_ != 0) begin_ += ticks;
    }

    // The one that the calling thread works for, or nullptr.
    static Event* current() noexcept { return current_; }
    // Another thread works for it meanwhile.
    class Lent {
    public:
        explicit Lent(Event* event) noexcept : before_(current_) { current_ = event; }
        ~Lent() { current_ = before_; }
        Lent(const Lent&) = delete;
        Lent& operator=(const Lent&) = delete;

    private:
        Event* const before_;
    };

private:
    void take(const char* name, const ucontext_t* interrupted) noexcept;

    static inline thread_local constinit Event* current_ __attribute__((tls_model("initial-exec"))) = nullptr;
    std::uint64_t begin_;  // 0: not counted
    Event* const around_;
    backtrace::Payload payload_{};
    backtrace::Ticket ticket_ = backtrace::kNotTaken;
    Then then_ = nullptr;
};

inline void add(Cost cost, std::uint64_t much) noexcept {
    if (Event* event = Event::current()) event->add(cost, much);
}

// What is known later of an event that has ended. False: its stack has no number yet. Also in the fault path, and after
// finish().
bool add_to(backtrace::Ticket ticket, const backtrace::Payload& costs) noexcept;

// Waiting for device work, from construction to destruction.
class Waiting {
public:
    Waiting() noexcept : begin_(Event::current() != nullptr ? ticks::now() : 0) {}
    ~Waiting() {
        if (begin_ != 0) add(Cost::WaitTicks, ticks::now() - begin_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    const std::uint64_t begin_;
};

// The program hands results to a call that reads them, or memory that it waited for: its last wait was needed.
void wait_was_needed() noexcept;

// A report wants stacks. Before anything is counted.
void want() noexcept;
// The program uses CUDA: begins, if they are wanted.
void begin() noexcept;
// Ends it, before the others are asked. Outside the fault path.
void finish() noexcept;
// In a forked child: nothing is counted there if the parent had begun.
void in_child() noexcept;

// The innermost calls of a stack, for the timeline; "" if it is not known. After finish().
std::string text_of(backtrace::Ticket ticket);

// What took most time so far, as text; "" if nothing is known.
std::string hottest();

// As JSON, for the report: an object, or null where there are no stacks.
std::string as_json();

}  // namespace hpe::call_stacks
