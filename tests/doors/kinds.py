#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: kinds.py PROGRAM...

Device memory that is not cudaMalloc's is shared with the CPU like cudaMalloc's, with every protocol, and also where the
allocations fail once.
"""
import re
import sys

import compare
import soft

cases = [(program, case) for program in sys.argv[1:] for case in soft.run([program], preload=False)[1].decode().split()]
for number, (kinds, case) in enumerate(cases):
    # Each access to memory that others use is slow, which libhpe says.
    quiet = {"HPE_LOG": "error"} if case in ("retained", "exported_while_twice") else {}
    for protocol in ("rolling", *soft.in_turn(number, ("lazy", "batch"))):
        status, out, err = compare.check([kinds, case], HPE_PROTOCOL=protocol, **quiet)
        if status != 0 or re.search(rb"[1-9]\d* (and \d+ )?wrong", out):
            compare.problem(f"{case} without libhpe: {status} {out} {err}")
    compare.check([kinds, case], HPE_PROTOCOL="rolling", HPE_BLOCK_SIZE="4K", HPE_ROLLING_SIZE="1", **quiet)
    if case == "ends_of_context":
        compare.check([kinds, case], HPE_SOFT_FAIL="cuCtxDestroy:1:1")
compare.finish(50)
