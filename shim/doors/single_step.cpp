// SPDX-License-Identifier: MIT
// The trap flag, the signal mask, and the handler of what comes behind the instruction.
#include "shim/doors/single_step.h"

#include <pthread.h>
#include <csignal>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "protocols/blocks.h"
#include "shim/base/thread.h"
#include "shim/coherence/uncached.h"
#include "shim/process/signals.h"

#include "shim/base/in_fault_path.h"

namespace hpe::single_step {

namespace {

constexpr greg_t kTrapFlag = 1 << 8;

// Of the one thread that has pages open.
struct Step {
    greg_t instruction = 0;
    bool elsewhere = false;       // it runs in hpe_repeated
    greg_t withheld = 0;          // so many times it will be repeated later
    bool trapped_before = false;  // the program steps through itself
    std::uint64_t mask = 0;
    std::array<siginfo_t, 4> pending = {};  // signals that the program blocks, and that are blocked no more
    std::size_t pending_count = 0;
    int cancellation = PTHREAD_CANCEL_ENABLE;  // the program's
};
constinit Step step;

// The kernel keeps eight bytes of the mask, and what lies behind them is something else.
std::uint64_t mask_of(const ucontext_t& context) noexcept {
    std::uint64_t mask = 0;
    std::memcpy(&mask, &context.uc_sigmask, sizeof mask);
    return mask;
}
void set_mask(ucontext_t& context, std::uint64_t mask) noexcept {
    std::memcpy(&context.uc_sigmask, &mask, sizeof mask);
}
constexpr std::uint64_t bit(int signal) noexcept { return std::uint64_t{1} << (signal - 1); }

// `rep movs` and `rep stos` of one, two, four and eight bytes, each with a trap behind it. Where these go on to the end
// of a page they are run here: the trap flag would stop them after each repetition.
extern "C" [[gnu::visibility("hidden")]] const unsigned char hpe_repeated[];
asm(R"(
        .pushsection .text
        .p2align 5
        .globl  hpe_repeated
        .hidden hpe_repeated
        .type   hpe_repeated, @function
hpe_repeated:
        rep movsb; int3; .p2align 2
        rep movsw; int3; .p2align 2
        rep movsl; int3; .p2align 2
        rep movsq; int3; .p2align 2
        rep stosb; int3; .p2align 2
        rep stosw; int3; .p2align 2
        rep stosl; int3; .p2align 2
        rep stosq; int3; .p2align 2
        .size hpe_repeated, . - hpe_repeated
        .popsection
    )");
constexpr std::size_t kRepeated = 4;  // bytes of each

// The instruction at the address, as encoded by compilers; 0 bytes: another one.
struct Repeated {
    std::size_t bytes = 0;  // of an element
    bool stores = false;
};
Repeated decode(const unsigned char* code) noexcept {
    bool repeats = false, half = false;
    for (; *code == 0xf3 || *code == 0x66; ++code) (*code == 0xf3 ? repeats : half) = true;
    const bool wide = *code == 0x48;
    if (wide) ++code;
    const std::size_t bytes = wide ? 8 : half ? 2 : 4;
    if (!repeats) return {};
    switch (*code) {
        case 0xa4: return {1, false};
        case 0xa5: return {bytes, false};
        case 0xaa: return {1, true};
        case 0xab: return {bytes, true};
        default: return {};
    }
}

// Has as many repetitions run as end in open pages.
bool run_elsewhere(greg_t* registers) noexcept {
    constexpr greg_t kDirectionFlag = 1 << 10;
    const auto [bytes, stores] = decode(reinterpret_cast<const unsigned char*>(registers[REG_RIP]));
    if (bytes == 0 || (registers[REG_EFL] & kDirectionFlag) != 0) return false;
    auto count = static_cast<std::size_t>(registers[REG_RCX]);
    for (const auto at : {REG_RDI, REG_RSI}) {
        if (at == REG_RSI && stores) continue;
        count = std::min(count, (kPage - static_cast<std::uintptr_t>(registers[at]) % kPage) / bytes);
    }
    if (count < 2) return false;
    step.withheld = registers[REG_RCX] - static_cast<greg_t>(count);
    registers[REG_RCX] = static_cast<greg_t>(count);
    const auto which = static_cast<std::size_t>(std::countr_zero(bytes)) + (stores ? 4 : 0);
    registers[REG_RIP] = reinterpret_cast<greg_t>(hpe_repeated + which * kRepeated);
    return true;
}

// Whether the instruction has a prefix that may repeat it: the trap flag stops it after each time.
bool repeats(const unsigned char* code) noexcept {
    constexpr unsigned char kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
    for (; std::find(std::begin(kPrefixes), std::end(kPrefixes), *code) != std::end(kPrefixes); ++code) {
        if (*code == 0xf2 || *code == 0xf3) return true;
    }
    return false;
}

// One of each is pending at a time (signal(7)).
void keep_pending(const siginfo_t& info) noexcept {
    auto* const end = step.pending.data() + step.pending_count;
    const bool is_there =
        std::any_of(step.pending.data(), end, [&](auto& one) { return one.si_signo == info.si_signo; });
    if (!is_there && step.pending_count < step.pending.size()) step.pending[step.pending_count++] = info;
}

// Also of what other threads, or nobody who steps, are sent.
void on_signal(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    auto& interrupted = *static_cast<ucontext_t*>(context);
    const bool sent = info->si_code <= 0, stepping = under_way();
    const auto at = interrupted.uc_mcontext.gregs[REG_RIP];
    const bool trapped = stepping && signal == SIGTRAP && !sent;
    const bool of_program = !trapped || step.trapped_before;
    if (!of_program && !step.elsewhere && at == step.instruction &&
        repeats(reinterpret_cast<const unsigned char*>(at))) {
        return;
    }
    if (stepping && sent && (step.mask & bit(signal)) != 0) return keep_pending(*info);
    const int cancellation = stepping ? end(interrupted) : 0;
    errno = saved;
    if (stepping) pthread_setcancelstate(cancellation, nullptr);
    if (of_program) signals::deliver(signal, info, context);
}

}  // namespace

bool under_way() noexcept { return uncached::any_open(); }

bool begin(std::uintptr_t address, bool is_write, ucontext_t& context, int cancellation) noexcept {
    const bool more = under_way();
    if (!uncached::open(address, is_write)) return false;
    if (more) return true;
    auto& registers = context.uc_mcontext.gregs;
    step.instruction = registers[REG_RIP];
    step.trapped_before = (registers[REG_EFL] & kTrapFlag) != 0;
    step.elsewhere = !step.trapped_before && run_elsewhere(registers);
    if (!step.elsewhere) registers[REG_EFL] |= kTrapFlag;
    step.mask = mask_of(context);
    step.cancellation = cancellation;
    // Whether SIGSTKFLT is blocked says whether the program blocks SIGSEGV (signals.h).
    auto mask = ~std::uint64_t{0};
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSTKFLT}) mask &= ~bit(fault);
    set_mask(context, mask | (step.mask & bit(SIGSTKFLT)));
    signals::catch_too(on_signal);
    return true;
}

int end(ucontext_t& context) noexcept {
    auto& registers = context.uc_mcontext.gregs;
    if (step.elsewhere) {
        registers[REG_RIP] = step.instruction;
        registers[REG_RCX] += step.withheld;
    } else if (!step.trapped_before) {
        registers[REG_EFL] &= ~kTrapFlag;
    }
    set_mask(context, step.mask);
    for (std::size_t i = 0; i < step.pending_count; ++i) {
        signals::queue_again(step.pending[i].si_signo, &step.pending[i]);
    }
    step.pending_count = 0;
    const int cancellation = step.cancellation;  // the turn is another thread's then
    const bool before = this_thread.in_fault;
    this_thread.in_fault = true;
    uncached::close();
    this_thread.in_fault = before;
    return cancellation;
}

}  // namespace hpe::single_step
