// SPDX-License-Identifier: MIT
// The dlsym door. glibc finds out who calls by the return address (RTLD_NEXT, RTLD_DEFAULT), so what is not ours is handed
// on by a jump: the caller stays visible. What is ours is answered by hpe_dlsym_answer in cuda_resolve.cpp.
    .text
    .globl  dlsym
    .type   dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), %rdx          // the caller
    call    hpe_dlsym_answer
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    jne     1f
    jmp     *hpe_real_dlsym(%rip)
1:  cmpq    $1, %rax                // kNothing
    jne     2f
    xorl    %eax, %eax
2:  ret
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack,"",@progbits
