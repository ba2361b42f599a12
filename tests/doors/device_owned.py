#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: device_owned.py OWNED

Memory of which libhpe keeps no host copy works in every CUDA call; a CPU access to it reads and writes the device, after
exactly one line that names the allocation and the reason. Memory of pools and mapped memory is shared; managed and
pinned memory stay shared.
"""
import re
import sys

import compare
import soft

owned = sys.argv[1]
# Both tries to have whole pages fail. What the driver places behind such an allocation lies in no pages of its own
# either: only programs that do not need that go on.
FAILS = {"short_of": {"HPE_SOFT_FAIL": "cuMemAlloc:1:2,cuMemAlloc:2:2"},
         "short_of_rows": {"HPE_SOFT_FAIL": "cuMemAllocPitch:1:2,cuMemAlloc:1:2"}}
# The question about the second variable, or about the first one again.
FAILS |= {kind: {"HPE_SOFT_FAIL": "cuPointerGetAttributes:4:1"} for kind in ("beside_unknown", "asked_again")}
# Or about what a pool gave.
FAILS |= {"unknown_pool": {"HPE_SOFT_FAIL": "cuPointerGetAttributes:1:1"}}
# Where the CPU has used objects a program is told that there is no memory; and each form asks its own number of times.
FORMS = {"short_of": ("copy",), "short_of_rows": ("copy",), "asked_again": ("plain",)}
REASONS = {"short_of": b"no device memory was left", "short_of_rows": b"no device memory was left",
           "captured": b"graphs", "handed_over": b"SYNC_MEMOPS", "mapped_for_others": b"mapped elsewhere", "mapped_for_others_first": b"mapped elsewhere",
           "mapped_twice": b"mapped elsewhere",
           "beside_unknown": b"a variable of a module", "unknown_pool": b"did not say what memory"}
SHARED = ("stream_ordered", "pool", "virtual_memory", "variable", "asked_again")  # by libhpe

for kind in soft.run([owned], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        status, _, err = compare.check([owned, kind, "use"], HPE_PROTOCOL=protocol)
        if status != 0:
            compare.problem(f"{kind} does not work without libhpe: {err}")
        wanted = soft.run([owned, "copy", kind, "use"], preload=False)
        # Of a pool's memory that is not shared the program sees the whole pages.
        for form in FORMS.get(kind, ("copy", "plain")) if kind in FAILS and kind != "unknown_pool" else ():
            got = soft.run([owned, form, kind, "use"], HPE_PROTOCOL=protocol, **FAILS[kind])
            if got != wanted:
                compare.problem(f"{kind} {form}, {protocol}, {FAILS[kind]}: {got}, without libhpe {wanted}")
    wanted = soft.run([owned, "copy", kind, "touch"], preload=False)
    for form in FORMS.get(kind, ("copy", "plain")):
        compare.runs += 1
        status, out, err = soft.run([owned, form, kind, "touch"], **FAILS.get(kind, {}))
        lines = [line for line in err.splitlines() if line.startswith(b"hpe:")]
        if kind in SHARED:
            if status != 0 or b"touched 3\n" not in out or lines:
                compare.problem(f"{kind} touch {form}: {status} {out} {lines}")
            continue
        if kind not in REASONS:
            if (status, out) != wanted[:2] or lines:
                compare.problem(f"{kind} touch {form}: {status} {out} {lines}, without libhpe {wanted}")
            continue
        named = len(lines) == 1 and REASONS[kind] in lines[0] and re.search(rb"0x[0-9a-f]{6}", lines[0])
        if status != 0 or b"touched 3\n" not in out or not named:
            compare.problem(f"{kind} touch {form}: status {status}, lines {lines}")
# A program whose CPU uses objects is better told that there is no memory.
got = soft.run([owned, "plain", "short_of_used", "use"], HPE_SOFT_FAIL="cuMemAlloc:2:2,cuMemAlloc:3:2")
if got[0] != 0 or b"second 2\n" not in got[1] or got[2]:
    compare.problem(f"short of memory, and the CPU uses objects: {got}")
compare.finish(40)
