#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: model.py PROGRAM OPERATIONS [largest=BYTES] [VARIABLE=VALUE...]

Runs the model test with the given options of libhpe and of the soft device, with one thread and with eight; with three
seeds where the tests are to be thorough. A failing run is shortened before it is shown: one thread, then operations left
out.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program, operations = sys.argv[1], int(sys.argv[2])
VARIABLES = dict(setting.split("=", 1) for setting in sys.argv[3:])
LARGEST = ["largest", VARIABLES.pop("largest")] if "largest" in VARIABLES else []


def fails(arguments):
    return soft.run([program, *map(str, arguments), *LARGEST], timeout=120, **VARIABLES)[0] != 0


def ranges(kept):
    """[1, 2, 3, 7] as "1-3,7"."""
    out = []
    for i in kept:
        if out and out[-1][1] == i - 1:
            out[-1][1] = i
        else:
            out.append([i, i])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in out)


def shorten(seed, threads):
    """The shortest command that still fails, found by leaving operations out."""
    full = [seed, threads, operations]
    if not fails([seed, 1, operations]):
        return full  # it takes several threads
    kept = list(range(operations))
    chunk = len(kept) // 2
    while chunk >= 1:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + chunk:]
            if fewer and fails([seed, 1, operations, "keep", ranges(fewer)]):
                kept = fewer
            else:
                at += chunk
        chunk //= 2
    return [seed, 1, operations, "keep", ranges(kept)]


ran = 0
for seed in range(1, 4 if soft.THOROUGH else 2):
    for threads, count in ((1, operations), (8, operations // 16)):
        status, out, err = soft.run([program, str(seed), str(threads), str(count), *LARGEST], timeout=300, **VARIABLES)
        ran += threads * count
        if status != 0:
            print(out.decode(errors="replace")[-2000:], err.decode(errors="replace")[-2000:], f"status {status}")
            print("repeat with:", soft.shown([os.path.relpath(program), *map(str, shorten(seed, threads)), *LARGEST], VARIABLES))
            sys.exit(1)
print(f"{ran} operations")
