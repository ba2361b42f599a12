#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: resolve.py RESOLVE FIRST_CALLS FAKE_LIBRARY VERSIONED_DRIVER HOOKS

Whatever a program asks dlsym, dlvsym and cuGetProcAddress, it is answered as without libhpe, and what it finds are doors. A library
that writes over the driver's functions finds the driver's.
"""
import subprocess
import sys

import compare
import soft

resolve, first_calls, fake, versioned, hooks = sys.argv[1:]

for case in soft.run([resolve], preload=False)[1].decode().split():
    for log in ("warn", "debug"):  # with debug every function is answered with a wrapper
        wanted = compare.check([resolve, case, fake, versioned, hooks], said_ok=log == "debug", HPE_LOG=log)
        if wanted[0] != 0 or not wanted[1].endswith(b"end\n"):
            compare.problem(f"{case} does not work without libhpe: {wanted}")
# While the first call looks for the driver's functions, another thread's is answered with doors, too.
for spins in range(0, 20_000, 1_000):
    compare.runs += 1
    status, _, said = soft.run([first_calls, str(spins)])
    if status != 0:
        compare.problem(f"first calls, {spins}: {status} {said}")
# In a namespace of its own, where it is no library that anything was linked with, it does nothing.
compare.runs += 1
audited = subprocess.run(["/bin/true"], env={"LD_AUDIT": soft.LIBRARY}, capture_output=True)
if audited.returncode != 0:
    compare.problem(f"loaded by LD_AUDIT: {audited}")
compare.finish(57)
