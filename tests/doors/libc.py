#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: libc.py PROGRAM [brief]

Calls of libc that read or write memory which kernels use: the same output as with a host buffer and without libhpe, with
each protocol and blocks of several sizes; brief: only as most programs run, and where the tests are not thorough without
the copying form and the cases about the states of blocks. Of a case named said_... libhpe says one line.
"""
import os
import signal
import sys
import tempfile

import compare
import soft

OPTIONS = [{}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"}, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1},
           {"HPE_STAGING_THREADS": 2, "HPE_STAGING_BLOCK": "64K"}]
program = os.path.abspath(sys.argv[1])
brief = "brief" in sys.argv[2:]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    cases = soft.run([program], preload=False)[1].decode().split()
    if soft.run([program, "copy", cases[0]], preload=False)[0] == 77:
        sys.exit(77)  # the system lacks what the program is about, and the test is skipped
    if brief and not soft.THOROUGH:  # these show what libhpe does behind any name
        cases = [case for case in cases if case not in ("long_calls_anywhere", "mapping_calls", "blocks_in_every_state", "overlapping")]
    for number, case in enumerate(cases):
        wanted = None
        for options in OPTIONS[:1] if brief else [{}, *soft.in_turn(number, OPTIONS[1:])]:
            # A copy to a host buffer is not libhpe's to make.
            forms = ("plain", "copy") if options == {} and (soft.THOROUGH or not brief) else ("plain",)
            wanted = compare.check([program, case], forms=forms, wanted=wanted, said_ok=case.startswith("said_"),
                                   ends=-signal.SIGSEGV if case == "from_memory_that_is_missing" else 0, **options)
        if case.startswith("said_"):
            said = soft.run([program, "plain", case])[2].decode()
            if said.count("hpe:") != 1 or "in object 0x" not in said:
                compare.problem(f"{program} {case}: no line, or more than one, names the object: {said}")
            if case == "said_by_number" and " of 10000 bytes" not in said:
                compare.problem(f"{program} {case}: names another size than the allocation's: {said}")
compare.finish(least=len(cases) * (1 if brief else 3))
