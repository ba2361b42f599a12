# SPDX-License-Identifier: MIT
"""Comparing what a program does with libhpe and without. Shared by the tests of this folder.

A program of programs/ is run as `program FORM CASE...`. The reference is its copying form without libhpe; under libhpe the
copying and the plain form must end with the same status or signal and the same stdout.
"""
import sys

import soft

problems = []
runs = 0


def problem(text):
    problems.append(text)


def check(command, forms=("copy", "plain"), stderr=False, said_ok=False, wanted=None, ends=0, **variables):
    """Runs [program, case...] in every form; returns the reference's (status, stdout, stderr), which `wanted` may give.
    It must end with that status, of a signal minus its number; with None somehow."""
    global runs
    program, *case = command
    wanted = wanted or soft.run([program, "copy", *case], preload=False, **variables)
    if wanted[0] == "timeout" or wanted[0] != ends is not None:
        problem(f"{soft.shown([program, 'copy', *case], variables)} without libhpe: status {wanted[0]}, not {ends}")
    for form in forms:
        runs += 1
        got = soft.run([program, form, *case], **variables)
        differs = got != wanted if stderr else got[:2] != wanted[:2]
        unasked = not stderr and not said_ok and b"hpe:" in got[2]
        if differs or unasked:
            problem(f"{soft.shown([program, form, *case], variables)}\n"
                    f"  status {got[0]}, without libhpe {wanted[0]}\n  stdout:\n{shown_difference(wanted[1], got[1])}\n"
                    f"  stderr {got[2][-600:].decode(errors='replace')}\n"
                    f"  without libhpe {wanted[2][-600:].decode(errors='replace')}")
    return wanted


def shown_difference(wanted, got):
    import difflib
    lines = difflib.unified_diff(wanted.decode(errors="replace").splitlines(), got.decode(errors="replace").splitlines(),
                                 "without libhpe", "with libhpe", lineterm="", n=2)
    return "\n".join("    " + line for line in lines) or "    the same"


def finish(least):
    """Exits; fewer runs than `least` mean that the test has lost its cases."""
    if runs < least:
        problem(f"only {runs} runs, expected {least} or more")
    print("\n".join(problems[:20]) or f"{runs} runs")
    sys.exit(1 if problems else 0)
