#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts what a run of `meson test` gave and prints it as the last line. Exit 1 if anything failed or nothing ran."""
import json
import sys

counts = {"passed": 0, "failed": 0, "skipped": 0}
with open(sys.argv[1]) as log:
    for line in log:
        result = json.loads(line)["result"]
        kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(result, "failed")
        counts[kind] += 1
print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
sys.exit(0 if counts["failed"] == 0 and counts["passed"] > 0 else 1)
