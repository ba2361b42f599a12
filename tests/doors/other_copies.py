#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: other_copies.py OTHER_COPIES

Copies between objects and CUDA arrays, and copies in batches, the object standing where the call takes host memory. The
driver must not get it as host memory: it would read or write there itself, with its locks held, and a fault of its own
would need it again.
"""
import sys
import tempfile

import compare
import soft

program = sys.argv[1]
for number, case in enumerate(soft.run([program], preload=False)[1].decode().split()):
    for n, protocol in enumerate(("rolling", "lazy", "batch")):
        for block_size in soft.in_turn(number + n, ("4K", "256K")):
            # Copies on the device that take long show who does not wait for them.
            slow = {"HPE_SOFT_DEVICE_LATENCY": "5000"} if case == "done_on_return" else {}
            status, _, err = compare.check([program, case], HPE_PROTOCOL=protocol, HPE_BLOCK_SIZE=block_size, **slow)
            if status != 0:
                compare.problem(f"{case} does not work without libhpe: {err}")
for case, calls in (("line", ("cuMemcpyHtoA", "cuMemcpyAtoH")),
                    ("line_async", ("cuMemcpyHtoAAsync", "cuMemcpyAtoHAsync"))):
    for form in ("copy", "plain"):
        compare.runs += 1
        with tempfile.NamedTemporaryFile("r") as counts:
            soft.run([program, form, case], HPE_SOFT_COUNT=counts.name)
            counted = dict(line.split()[:2] for line in counts if not line.startswith("#"))
        made = [call for call in calls if counted.get(call, "0") != "0"]
        if made != (list(calls) if form == "copy" else []):
            compare.problem(f"{case} {form}: the driver was called as {made} ({sorted(counted.items())})")
compare.finish(56)
