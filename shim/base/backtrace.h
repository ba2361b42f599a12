// SPDX-License-Identifier: MIT
// Who called: stacks of the program's threads, taken where nothing may be allocated and no lock may be waited for.
//
// The thread looks whether its stack is one that is known: the same instruction with the same stack pointer, and the
// same return addresses where the known one had them (as memray and Bytehound do it). That is some 20 loads. Otherwise
// it copies its registers and up to kStackBytes of its stack into a free slot, and a thread of our own unwinds the
// copy (unwinder.h), has the owner number it, and remembers it as known. So each stack is unwound about once. Where no
// slot is free the stack is not taken; nothing waits.
//
// Memory beside the stack is not touched: the copy ends at the thread's own end of stack, and pages above it are first
// shown to the kernel (rt_sigprocmask with an invalid `how` only reads the set).
//
// Bytes. Threads: take() any, also in a signal handler; the others as they say. The owner's functions are called with
// a lock of ours held, by our thread or by the one that calls finish(). Errors: a stack that could not be taken.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/base/unwinder.h"

namespace hpe::backtrace {

using unwinder::Registers;

constexpr std::size_t kStackBytes = std::size_t{8} << 10;
constexpr std::size_t kPayloadWords = 24;

// What came with a stack, for its owner: counters that are added up.
using Payload = std::array<std::uint64_t, kPayloadWords>;

struct Place {
    std::uint32_t module;  // of modules.h; kNone: in none, and the offset is an address
    std::uint64_t offset;  // in its file; where the call is, not where it returns to
};

struct Owner {
    // Numbers a stack, the outermost caller last; `what` as it was given to take(). Never 0.
    std::uint32_t (*number)(const char* what, std::span<const Place> places, bool cut);
    // Adds the payload to a numbered stack; also called by take().
    void (*add)(std::uint32_t number, const Payload& payload);
    // The number for what finish() found not to be unwound.
    std::uint32_t none;
};

// Starts the thread that unwinds. Once in a process, outside the fault path.
bool start(const Owner& owner) noexcept;
// False: libunwind is missing (known once the thread has begun, or after finish()).
enum class State : int { NotStarted, Opening, Ready, Missing };
State state() noexcept;

// What happened here is `what` (text that lives for ever). Returns a ticket for the stack's number, or kNotTaken.
using Ticket = std::uint64_t;
constexpr Ticket kNotTaken = 0;
Ticket take(const Registers& registers, const char* what, const Payload& payload) noexcept;
// The number that the owner gave; 0: none yet. After finish() all have theirs.
std::uint32_t number_of(Ticket ticket) noexcept;

Registers registers_of(const ucontext_t& context) noexcept;

// The caller's registers, as far as unwinding needs them.
[[gnu::always_inline]] inline void look(Registers& out) noexcept {
    auto* const to = out.value.data();
    asm volatile(
        "leaq 0(%%rip), %%rax\n\t"
        "movq %%rax, 128(%0)\n\t"
        "movq %%rsp, 56(%0)\n\t"
        "movq %%rbp, 48(%0)\n\t"
        "movq %%rbx, 24(%0)\n\t"
        "movq %%r12, 96(%0)\n\t"
        "movq %%r13, 104(%0)\n\t"
        "movq %%r14, 112(%0)\n\t"
        "movq %%r15, 120(%0)"
        :
        : "r"(to)
        : "rax", "memory");
}

// Ends it: unwinds what is still in slots. Nothing is taken from here on. Outside the fault path.
void finish() noexcept;
// In a forked child there is no such thread, and nothing is taken.
void in_child() noexcept;

// Scope in which nothing is unwound. False: not soon, or never any more (finish()).
class Quiet {
public:
    Quiet() noexcept;
    ~Quiet();
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    explicit operator bool() const noexcept { return is_; }

private:
    const bool is_;
};

struct Counts {
    std::uint64_t known, unwound;
};
Counts counts() noexcept;

}  // namespace hpe::backtrace
