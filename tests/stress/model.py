#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: model.py PROGRAM SEEDS OPERATIONS

Runs the model test with every protocol, several block sizes and thread counts. A failing run is shortened before it is
shown: fewer threads, fewer operations, then operations left out one by one.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program, seeds, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
CONFIGURATIONS = [
    {"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": "1"},
    {"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": "8K", "HPE_ROLLING_SIZE": "auto"},
    {"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": "256K", "HPE_ROLLING_SIZE": "2"},
    {"HPE_PROTOCOL": "lazy"},
    {"HPE_PROTOCOL": "batch"},
]


def fails(arguments, variables):
    return soft.run([program, *map(str, arguments)], timeout=120, **variables)[0] != 0


def ranges(kept):
    """[1, 2, 3, 7] as "1-3,7"."""
    out = []
    for i in kept:
        if out and out[-1][1] == i - 1:
            out[-1][1] = i
        else:
            out.append([i, i])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in out)


def shorten(seed, threads, variables):
    """The shortest command that still fails, found by leaving operations out."""
    full = [seed, threads, operations]
    if not fails([seed, 1, operations], variables):
        return full  # it takes several threads
    kept = list(range(operations))
    chunk = len(kept) // 2
    while chunk >= 1:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + chunk:]
            if fewer and fails([seed, 1, operations, "keep", ranges(fewer)], variables):
                kept = fewer
            else:
                at += chunk
        chunk //= 2
    return [seed, 1, operations, "keep", ranges(kept)]


ran = 0
for seed in range(1, seeds + 1):
    for variables in CONFIGURATIONS:
        for threads in (1, 4):
            count = operations // threads
            status, out, err = soft.run([program, str(seed), str(threads), str(count)], timeout=300, **variables)
            ran += operations
            if status != 0:
                print(out.decode(errors="replace")[-2000:], err.decode(errors="replace")[-2000:], f"status {status}")
                shortest = shorten(seed, threads, variables)
                print("repeat with:", soft.shown([os.path.relpath(program), *map(str, shortest)], variables))
                sys.exit(1)
print(f"{ran} operations, {len(CONFIGURATIONS)} configurations")
