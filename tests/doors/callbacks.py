#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: callbacks.py CALLBACKS

Host functions that use objects while other threads use the device and the same blocks: no number is wrong and nobody
waits for ever, with each protocol, blocks of all sizes, and a link so slow that others come in between.
"""
import json
import pathlib
import sys
import tempfile

import soft

PROGRAM = sys.argv[1]
OPTIONS = [{}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"}, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1},
           {"HPE_BLOCK_SIZE": "1M"}, {"HPE_SOFT_LINK": "400M", "HPE_SOFT_LATENCY": 300}, {"HPE_PINNED_LIMIT": "1M"}]
problems, runs = [], 0
cases = soft.run([PROGRAM], preload=False)[1].decode().split()
for case in cases:
    for options in OPTIONS:
        runs += 1
        status, out, err = soft.run([PROGRAM, case], **options)
        if status != 0 or out != b"0 wrong\n" or err:
            problems.append(f"{soft.shown([PROGRAM, case], options)}: {status} {out} {err[-500:]}")
for reset in ("", ",cuDevicePrimaryCtxReset:1:1"):
    refused = {"HPE_SOFT_DEVICES": 2, "HPE_SOFT_FAIL": f"cuMemcpyHtoDAsync:*:2{reset}"}
    status, out, err = soft.run([PROGRAM, "two_devices"], **refused)
    if status != 0 or out != b"0 wrong\n" or err.count(b"cannot flush what the CPU wrote") != 2:
        problems.append(f"{soft.shown([PROGRAM, 'two_devices'], refused)}: {status} {out} {err[-500:]}")
if len(cases) < 12:
    problems.append(f"only {cases}")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "report.json"
    soft.run([PROGRAM, "whole_array_alone"], HPE_REPORT=path, HPE_BLOCK_SIZE="64K")
    sent = json.loads(path.read_text())["total"]["transfers_to_device"]
    if not 96 <= sent <= 300:  # the whole array before, too
        problems.append(f"an array of 96 blocks was sent in {sent} transfers")
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)
