// SPDX-License-Identifier: MIT
// The fault door: a CPU access to an object traps here. Async-signal-safe; runs with all signals blocked.
#include "shim/doors/fault.h"

#include <pthread.h>
#include <ucontext.h>

#include <atomic>
#include <cerrno>

#include "shim/base/guarded_copy.h"
#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/doors/single_step.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/trace.h"
#include "shim/observe/unread.h"
#include "shim/process/process.h"
#include "shim/process/signals.h"

#include "shim/base/in_fault_path.h"

#ifndef __x86_64__
#error "the fault door reads the x86-64 page fault error code"
#endif

namespace hpe {

namespace {

// Page fault error code of the CPU (Intel SDM volume 3, 4.7): what kind of access it was.
constexpr long long kWrite = 1 << 1, kInstruction = 1 << 4;

bool is_page_fault(const siginfo_t* info) noexcept {
    return info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR;
}

// Of other such memory uncached.h has said why it cannot be accessed.
void explain(std::uintptr_t address, bool mapped) noexcept {
    device_owned::Entry entry;
    if (device_owned::find(address, 1, entry) && (entry.context == nullptr || !mapped || entry.read_only)) {
        log::error("the CPU accessed {:#x} in the device allocation {:#x} of {} bytes, which stays on the device: {}",
                   address, entry.base, entry.size, entry.reason);
    }
}

// Nothing of the parent's device is the child's, as without libhpe.
void explain_in_child(std::uintptr_t address) noexcept {
    static constinit std::atomic_flag said = ATOMIC_FLAG_INIT;
    const auto allocation = coherence().allocation_of(address);
    if (allocation && !said.test_and_set()) {
        log::error(
            "a forked child accessed {:#x} in the device allocation {:#x} of {} bytes: its parent has the device",
            address, allocation.base, allocation.bytes);
    }
}

// The access may be repeated.
bool serve(const siginfo_t& info, ucontext_t& context, int& cancellation) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
    const auto& registers = context.uc_mcontext.gregs;
    const bool is_write = (registers[REG_ERR] & kWrite) != 0;
    if (single_step::under_way()) {
        if (single_step::begin(address, is_write, context, cancellation)) return true;
        // What the instruction needs beside may take long to bring.
        cancellation = single_step::end(context);
    }
    const auto changes = device_owned::changes.load(std::memory_order_acquire);
    trace::Fault traced(address, is_write);
    call_stacks::Event event;
    const auto served =
        coherence().serve_fault({address, is_write, static_cast<std::uintptr_t>(registers[REG_RIP])}, traced);
    event.ended_access(is_write ? "write fault" : "read fault", &context);
    traced.stack(event.ticket());
    if (served == Coherence::Served::Done) return true;
    // Where nothing is mapped the driver has reserved nothing.
    if (info.si_code != SEGV_ACCERR) return false;
    if (single_step::begin(address, is_write, context, cancellation)) return true;
    // Meanwhile the memory may have come to be shared, or the other way round: the access is judged anew.
    return coherence().may_hold(address) && device_owned::changes.load(std::memory_order_acquire) != changes;
}

}  // namespace

void on_fault(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    // In a forked child, too, until it has opened them.
    if (is_page_fault(info) && unread::may_open(address)) {
        errno = saved;
        return;
    }
    if (is_page_fault(info) && !process::active.load(std::memory_order_relaxed)) {
        explain_in_child(address);
    } else if (is_page_fault(info)) {
        const auto code = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
        if ((code & kInstruction) == 0) {
            // Memory is no cancellation point; a wait for the driver may be one.
            int cancellation = PTHREAD_CANCEL_ENABLE;
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
            this_thread.in_fault = true;
            const bool served = serve(*info, *static_cast<ucontext_t*>(context), cancellation);
            this_thread.in_fault = false;
            if (!single_step::under_way()) pthread_setcancelstate(cancellation, nullptr);
            if (served) {
                errno = saved;
                return;
            }
            explain(address, info->si_code == SEGV_ACCERR);
        }
    }
    errno = saved;
    if (is_page_fault(info) && unread::opened_meanwhile()) return;
    // A fault that is no access to a page.
    if (single_step::under_way()) {
        pthread_setcancelstate(single_step::end(*static_cast<ucontext_t*>(context)), nullptr);
    }
    if (leave_guarded_copy(*static_cast<ucontext_t*>(context))) return;
    signals::deliver(signal, info, context);
}

}  // namespace hpe
