#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: contexts.py CONTEXTS HOOKS STREAM_CONTEXTS

Contexts, devices, sizes, queries and errors: as without libhpe.
"""
import json
import os
import signal
import sys
import tempfile

import compare
import soft

contexts, hooks, stream_contexts = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3]

ENDED = {"after_context_destroy", "after_reset", "after_free", "after_async_free", "behind_the_end"}  # by SIGSEGV

for case in soft.run([contexts], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        if case == "huge_size":
            if protocol == "rolling":  # the others would move the whole of it
                compare.check([contexts, case], HPE_PROTOCOL=protocol, HPE_SOFT_MEMORY="8G")
        elif case == "several_devices":
            for devices in (2, 4):
                compare.check([contexts, case], HPE_PROTOCOL=protocol, HPE_SOFT_DEVICES=devices)
        else:
            compare.check([contexts, case, hooks], ends=-signal.SIGSEGV if case in ENDED else 0, HPE_PROTOCOL=protocol)
for case in soft.run([stream_contexts], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        compare.check([stream_contexts, case], HPE_PROTOCOL=protocol)
    compare.check([stream_contexts, case], HPE_PROTOCOL="rolling", HPE_BLOCK_SIZE="4K", HPE_ROLLING_SIZE="1")
with tempfile.TemporaryDirectory() as scratch:
    soft.run([contexts, "plain", "retained_around_work"], HPE_REPORT=f"{scratch}/report.json")
    total = json.load(open(f"{scratch}/report.json"))["total"]
    if not 0 < total["write_faults"] < 20 or total["bytes_to_device"] != 0:
        compare.problem(f"a context that is retained around each piece of work: {total}")
compare.finish(100)
