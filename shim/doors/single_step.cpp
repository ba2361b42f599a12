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
    std::array<struct sigaction, 3> actions = {};  // the program's, of kSignals
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

// What else may come of an instruction that accesses memory is the program's, once the pages are closed.
constexpr int kSignals[] = {SIGTRAP, SIGFPE, SIGBUS};

void on_signal(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    auto& interrupted = *static_cast<ucontext_t*>(context);
    const auto at = static_cast<std::size_t>(std::find(std::begin(kSignals), std::end(kSignals), signal) - kSignals);
    const auto action = step.actions[at];
    const bool trapped = signal == SIGTRAP && under_way();
    const bool goes_on = trapped && !step.elsewhere && interrupted.uc_mcontext.gregs[REG_RIP] == step.instruction;
    if (under_way() && !goes_on) end(interrupted);
    errno = saved;
    if (!trapped) signals::run(action, signal, info, context);
}

}  // namespace

bool under_way() noexcept { return uncached::any_open(); }

bool begin(std::uintptr_t address, ucontext_t& context) noexcept {
    const bool more = under_way();
    if (!uncached::open(address)) return false;
    if (more) return true;
    auto& registers = context.uc_mcontext.gregs;
    step.instruction = registers[REG_RIP];
    step.trapped_before = (registers[REG_EFL] & kTrapFlag) != 0;
    step.elsewhere = !step.trapped_before && run_elsewhere(registers);
    if (!step.elsewhere) registers[REG_EFL] |= kTrapFlag;
    step.mask = mask_of(context);
    // Whether SIGSTKFLT is blocked says whether the program blocks SIGSEGV (signals.h).
    auto mask = ~std::uint64_t{0};
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSTKFLT}) mask &= ~bit(fault);
    set_mask(context, mask | (step.mask & bit(SIGSTKFLT)));
    for (std::size_t i = 0; i < std::size(kSignals); ++i) signals::replace(kSignals[i], on_signal, step.actions[i]);
    return true;
}

void end(ucontext_t& context) noexcept {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) signals::put_back(kSignals[i], step.actions[i]);
    auto& registers = context.uc_mcontext.gregs;
    if (step.elsewhere) {
        registers[REG_RIP] = step.instruction;
        registers[REG_RCX] += step.withheld;
    } else if (!step.trapped_before) {
        registers[REG_EFL] &= ~kTrapFlag;
    }
    set_mask(context, step.mask);
    int cancellation = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    const bool before = this_thread.in_fault;
    this_thread.in_fault = true;
    uncached::close();
    this_thread.in_fault = before;
    pthread_setcancelstate(cancellation, nullptr);
}

}  // namespace hpe::single_step
