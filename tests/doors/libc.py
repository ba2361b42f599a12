#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: libc.py PROGRAM...

Calls of libc that read or write memory which kernels use: the same output as with a host buffer and without libhpe, with
each protocol and blocks of several sizes.
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
                compare.check([program, case], **options)
compare.finish(least=50 * len(programs))
