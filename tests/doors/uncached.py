#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: uncached.py UNCACHED CALLS KINDS ORDER SIGNALS

CPU accesses to device memory that others write, too, see what the device has at each moment, after one line that says
what they cost; the program's signals, masks and faults are those without libhpe.
"""
import re
import sys

import compare
import soft

# Lines that say so; each process says it once, and calls of libc are made as a whole.
SAID = {"processes": 2, "whole_words": 2, "calls": 0, "write_under_way": 0, "given_back": 0, "graph_gone": 0, "files_meanwhile": 0,
        "other_device": 0, "only_other_writes": 0, "free_refused_meanwhile": 0}
MAY_BE_SAID = ("exported_meanwhile",)  # where the host function is not over by then
TWO_DEVICES = ("other_device", "other_context", "only_other_writes")

cases = [(program, case) for program in sys.argv[1:] for case in soft.run([program], preload=False)[1].decode().split()]
for number, (uncached, case) in enumerate(cases):
    # Where only such memory is used the protocol makes no difference.
    others = () if uncached in sys.argv[4:] else soft.in_turn(number, ("lazy", "batch"))
    wanted = compare.check([uncached, case], forms=["copy"], said_ok=True)
    if wanted[0] != 0 or re.search(rb"[1-9]\d* wrong", wanted[1]):
        compare.problem(f"{case} without libhpe: {wanted}")
    for protocol in others:
        compare.check([uncached, case], said_ok=True, wanted=wanted, HPE_PROTOCOL=protocol)
    status, out, err = soft.run([uncached, "plain", case])
    if (status, out) != wanted[:2]:
        compare.problem(f"{case}: {status} {out} {err[-600:]}, without libhpe {wanted[:2]}")
    lines = err.splitlines()
    if case == "read_only":
        lines = [line for line in lines if b"which stays on the device" not in line]  # of each store, why it faults
    said = [line for line in lines if b"one instruction at a time" in line]
    as_expected = len(said) == SAID.get(case, 1) or (case in MAY_BE_SAID and len(said) <= 1)
    if len(lines) != len(said) or not as_expected:
        compare.problem(f"{case}: {lines}")
    if case == "export_refused":
        status, out, err = soft.run([uncached, "plain", case], HPE_SOFT_FAIL="cuMemcpyHtoDAsync:*:2")
        if status != 0 or not out.startswith(b"1 refused, 0 wrong\n"):
            compare.problem(f"{case}: {status} {out} {err}")
    if case in TWO_DEVICES:
        compare.check([uncached, case], said_ok=True, HPE_SOFT_DEVICES=2)
compare.finish(80)
