// SPDX-License-Identifier: MIT
// The dlsym and dlvsym doors. glibc finds out who calls by the return address (RTLD_NEXT, RTLD_DEFAULT), so what is not
// ours is handed on by a jump: the caller stays visible. What is ours is answered in cuda_resolve.cpp by a function
// that takes the caller as its last argument.
    .text

    .macro  DOOR name, answer, last, real
    .globl  \name
    .type   \name, @function
\name:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), \last         // the caller
    call    \answer
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    jne     1f
    jmp     *\real(%rip)
1:  cmpq    $1, %rax                // kNothing
    jne     2f
    xorl    %eax, %eax
2:  ret
    .cfi_endproc
    .size   \name, . - \name
    .endm

    DOOR    dlsym, hpe_dlsym_answer, %rdx, hpe_real_dlsym
    DOOR    dlvsym, hpe_dlvsym_answer, %rcx, hpe_real_dlvsym
    .section .note.GNU-stack,"",@progbits
