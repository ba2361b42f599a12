#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: device_owned.py OWNED

Memory that libhpe does not share with the CPU works in every CUDA call; a CPU access to it kills as it would without
libhpe, after exactly one line that names the allocation and the reason. Managed and pinned memory stay shared.
"""
import re
import sys

import compare
import soft

owned = sys.argv[1]
REASONS = {"stream_ordered": b"stream-ordered", "pool": b"stream-ordered", "virtual_memory": b"virtual memory"}

for kind in soft.run([owned], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        status, _, err = compare.check([owned, kind, "use"], HPE_PROTOCOL=protocol)
        if status != 0:
            compare.problem(f"{kind} does not work without libhpe: {err}")
    wanted = soft.run([owned, "copy", kind, "touch"], preload=False)
    for form in ("copy", "plain"):
        compare.runs += 1
        status, out, err = soft.run([owned, form, kind, "touch"])
        lines = [line for line in err.splitlines() if line.startswith(b"hpe:")]
        if (status, out) != wanted[:2]:
            compare.problem(f"{kind} touch {form}: {status} {out}, without libhpe {wanted}")
        if kind not in REASONS:
            if lines or status != 0:
                compare.problem(f"{kind} touch {form}: status {status}, {lines}")
        elif status != -11 or len(lines) != 1 or REASONS[kind] not in lines[0] or not re.search(rb"0x[0-9a-f]{6}", lines[0]):
            compare.problem(f"{kind} touch {form}: status {status}, lines {lines}")
compare.finish(40)
