#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: libc.py PROGRAM...

Calls of libc that read or write memory which kernels use: the same output as with a host buffer and without libhpe, with
each protocol and blocks of several sizes. Of a case named said_... libhpe says one line.
"""
import os
import sys
import tempfile

import compare
import soft

OPTIONS = [{}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"}, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1},
           {"HPE_BLOCK_SIZE": "1M"}]
programs = [os.path.abspath(program) for program in sys.argv[1:]]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for program in programs:
        for case in soft.run([program], preload=False)[1].decode().split():
            for options in OPTIONS:
                compare.check([program, case], said_ok=case.startswith("said_"), **options)
            if case.startswith("said_"):
                said = soft.run([program, "plain", case])[2].decode()
                if said.count("hpe:") != 1 or "in object 0x" not in said:
                    compare.problem(f"{program} {case}: no line, or more than one, names the object: {said}")
compare.finish(least=50 * len(programs))
