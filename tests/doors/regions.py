#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: regions.py REGIONS

Small allocations that share pages: the driver's answers about them, and the chunks that they take of the card, are those
without libhpe; each holds its own bytes, whatever the CPU, kernels and other processes do with its neighbours.
"""
import re
import sys

import compare
import soft

regions = sys.argv[1]
for number, case in enumerate(soft.run([regions], preload=False)[1].decode().split()):
    for protocol in ("rolling", *soft.in_turn(number, ("lazy", "batch"))):
        status, out, err = compare.check([regions, case], said_ok=case == "exported", HPE_PROTOCOL=protocol)
        if status != 0 or re.search(rb"[1-9]\d* wrong", out):
            compare.problem(f"{case} without libhpe: {status} {out} {err}")
    for setting in soft.in_turn(number // 2, ({"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": "1"}, {"HPE_STAGING_THREADS": "0"})):
        compare.check([regions, case], said_ok=case == "exported", **setting)
compare.finish(34)
