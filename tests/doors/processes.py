#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: processes.py PROCESSES PLUGIN SMALL

Children, ends, limits, closed descriptors and CUDA in constructors: as without libhpe. And that a CUDA program whose
memory the CPU leaves alone has hardly more pages for libhpe: touching them is what a start costs.
"""
import resource
import sys

import compare
import soft

processes, plugin, small = sys.argv[1:]

for case in soft.run([processes], preload=False)[1].decode().split():
    if case == "limit_address_space":
        # Nothing can be shared there; the device works as without libhpe, after one line that says so.
        compare.runs += 1
        wanted = soft.run([processes, "copy", case], preload=False)
        got = soft.run([processes, "copy", case])
        if got[:2] != wanted[:2] or wanted[0] != 0 or got[2].count(b"hpe: no address space") != 1 or got[2].count(b"\n") != 1:
            compare.problem(f"{case}: {got}, without libhpe {wanted}")
        continue
    # How many children touch what is the parent's: each says so in one line.
    if children := {"child_touches": 2, "fork_cuda": 2}.get(case):
        compare.check([processes, case], said_ok=True)
        for form in ("copy", "plain"):
            err = soft.run([processes, form, case])[2]
            if not err.count(b"hpe: ") == err.count(b"a forked child accessed 0x") == children:
                compare.problem(f"{case} {form}: {err}")
        continue
    for protocol in ("rolling", "lazy", "batch"):
        wanted = compare.check([processes, case] + ([plugin] if case == "plugin" else []), ends=None,
                               HPE_PROTOCOL=protocol)
        if wanted[0] in (1, 2, 77, 99):
            compare.problem(f"{case} does not work without libhpe: {wanted}")
# The report of a process that ends by exit is written once, whatever its children do.
compare.runs += 1
err = soft.run([processes, "plain", "forks"], HPE_REPORT="-")[2]
if err.count(b"hpe: report of process") != 1:
    compare.problem(f"forks: {err}")


def pages_touched(preload):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    # Meson has malloc fill what it gives, which touches all of it.
    status, _, _ = soft.run([small, "plain", "device_only"], preload=preload, MALLOC_PERTURB_=0)
    if status != 0:
        compare.problem(f"device_only: {status}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


# 105 as built here; the queue of Dirty blocks alone would be 385.
compare.runs += 1
more = min(pages_touched(True) for _ in range(3)) - min(pages_touched(False) for _ in range(3))
if not 0 < more < 250:
    compare.problem(f"{more} pages more with libhpe")
compare.finish(100)
