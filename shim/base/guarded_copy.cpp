// SPDX-License-Identifier: MIT
#include "shim/base/guarded_copy.h"

#ifndef __x86_64__
#error "the copy is an instruction of x86-64"
#endif

namespace hpe {

extern "C" [[gnu::visibility("hidden")]] const char hpe_guarded_copy_access[], hpe_guarded_copy_failed[];

// The one instruction both reads and writes; where it traps its registers say what is left.
extern "C" [[gnu::naked]] bool hpe_guarded_copy(void*, const void*, std::size_t) noexcept {
    asm(R"(
        .globl  hpe_guarded_copy_access, hpe_guarded_copy_failed
        .hidden hpe_guarded_copy_access, hpe_guarded_copy_failed
        movq    %rdx, %rcx
hpe_guarded_copy_access:
        rep movsb
        movl    $1, %eax
        ret
hpe_guarded_copy_failed:
        xorl    %eax, %eax
        ret
    )");
}

bool leave_guarded_copy(ucontext_t& context) noexcept {
    auto& program_counter = context.uc_mcontext.gregs[REG_RIP];
    if (program_counter != reinterpret_cast<greg_t>(hpe_guarded_copy_access)) return false;
    program_counter = reinterpret_cast<greg_t>(hpe_guarded_copy_failed);
    return true;
}

}  // namespace hpe
