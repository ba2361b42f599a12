#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: libc.py PROGRAM [brief]

Calls of libc that read or write memory which kernels use: the same output as with a host buffer and without libhpe, with
each protocol and blocks of several sizes; brief: only as most programs run. Of a case named said_... libhpe says one
line.
"""
import os
import sys
import tempfile

import compare
import soft

OPTIONS = [{}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"}, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1},
           {"HPE_STAGING_THREADS": 2, "HPE_STAGING_BLOCK": "64K"}]
program = os.path.abspath(sys.argv[1])
options_of_runs = OPTIONS[:1] if "brief" in sys.argv[2:] else OPTIONS
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    cases = soft.run([program], preload=False)[1].decode().split()
    if soft.run([program, "copy", cases[0]], preload=False)[0] == 77:
        sys.exit(77)  # the system lacks what the program is about, and the test is skipped
    for case in cases:
        wanted = None
        for options in options_of_runs:
            forms = ("plain", "copy") if options == {} else ("plain",)  # a copy to a host buffer is not libhpe's to make
            wanted = compare.check([program, case], forms=forms, wanted=wanted, said_ok=case.startswith("said_"), **options)
        if case.startswith("said_"):
            said = soft.run([program, "plain", case])[2].decode()
            if said.count("hpe:") != 1 or "in object 0x" not in said:
                compare.problem(f"{program} {case}: no line, or more than one, names the object: {said}")
compare.finish(least=len(cases) * (1 + len(options_of_runs)))
