#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: waits.py WAITS

While a CPU access waits for the device, or a call for room in a stream, and the device for another thread, that thread's
calls return.
"""
import sys

import soft

program = sys.argv[1]
problems, runs = [], 0
SETTINGS = ({}, {"HPE_PROTOCOL": "lazy"}, {"HPE_BLOCK_SIZE": "64K"})
LONG = ("launches_beside_full_launch", "launches_many_beside_full", "reads_beside_lost_context")  # seconds each
for number, case in enumerate(soft.run([program], preload=False)[1].decode().split()):
    for options in soft.in_turn(number, SETTINGS) if case in LONG else SETTINGS:
        runs += 1
        if "_full" in case:
            options = options | {"HPE_SOFT_QUEUE": 64, "HPE_SOFT_LATENCY": 20000}
        status, out, err = soft.run([program, case], HPE_SOFT_DEVICES=2, **options)
        if status != 0 or out != b"0 wrong\n" or b"hpe: " in err:
            problems.append(f"{soft.shown([program, case], options)}: {status} {out} {err[-500:]}")

if runs < 6:
    problems.append(f"only {runs} runs")
print("\n".join(problems[:20]) or f"{runs} runs")
sys.exit(1 if problems else 0)
