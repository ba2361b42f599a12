#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: matrix.py EXPECTED PROGRAM [COPY_TWIN]

Runs a one-pointer program under libhpe with every protocol, block size and rolling size, and wants bit for bit what the
program prints on an H200 (EXPECTED) and, on the same soft device, its explicit-copy twin without libhpe.
"""
import sys

import soft

expected_file, program, *twin = sys.argv[1:]
expected = open(expected_file, "rb").read()

CONFIGURATIONS = [{"HPE_PROTOCOL": p, "HPE_BLOCK_SIZE": b} for p in ("batch", "lazy") for b in ("4K", "64K", "1M", "32M")]
CONFIGURATIONS += [{"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": b, "HPE_ROLLING_SIZE": r}
                   for b in ("4K", "64K", "1M", "32M", "auto") for r in ("1", "2", "auto")]
CONFIGURATIONS += [{"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": "64K", "HPE_TRACE": "/dev/null"}]
if "small_objects" in program and not soft.THOROUGH:  # with faults for each it takes long
    CONFIGURATIONS = CONFIGURATIONS[::3]
DEVICES = ("1", "2", "4") if "multi_device" in program else ("1",)

problems = []


def compare(what, status, out, err):
    if status == 0 and out == expected:
        return
    problems.append(f"{what}\n  status {status}\n  printed {out[-400:]!r}\n  expected {expected[-400:]!r}\n"
                    f"  stderr {err[-1000:].decode(errors='replace')}")


for devices in DEVICES:
    for command in twin:
        compare(f"{command} without libhpe, {devices} devices",
                *soft.run([command], preload=False, HPE_SOFT_DEVICES=devices))
        # It does not need us and must not notice us.
        for protocol in ("off", "rolling"):
            variables = {"HPE_PROTOCOL": protocol, "HPE_SOFT_DEVICES": devices}
            compare(soft.shown([command], variables), *soft.run([command], **variables))
    for configuration in CONFIGURATIONS:
        variables = {**configuration, "HPE_SOFT_DEVICES": devices}
        compare(soft.shown([program], variables), *soft.run([program], **variables))
    if len(problems) > 3:
        break
print("\n".join(problems) or f"{len(CONFIGURATIONS) * len(DEVICES)} configurations")
sys.exit(1 if problems else 0)
