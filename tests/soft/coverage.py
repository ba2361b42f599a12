#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `hpe soft --coverage` lists is so: every entry resolves, every driver entry that it calls not supported answers
CUDA_ERROR_NOT_SUPPORTED in a process that has initialised the driver, and no supported one is on that list.

usage: coverage.py COVERAGE DRIVER RUNTIME
"""
import ctypes
import os
import sys

NOT_SUPPORTED = 801


def main():
    coverage, driver, runtime = sys.argv[1:4]
    entries = {"driver": {}, "runtime": {}}
    for line in open(coverage):
        if not line.startswith(" "):
            kind = line.split(":")[0]
            continue
        name, answer = line.split()
        entries[kind][name] = answer
    problems = []
    if len(entries["driver"]) < 600 or len(entries["runtime"]) < 400:
        problems.append("entries are missing")
    for name in ("cuMemAlloc_v2", "cuLaunchKernel", "cuGraphLaunch"):
        if entries["driver"].get(name) != "supported":
            problems.append(f"{name} is not among the supported")
    libraries = {"driver": ctypes.CDLL(driver), "runtime": ctypes.CDLL(runtime)}
    for kind, names in entries.items():
        problems += [f"{name} does not resolve" for name in names if not hasattr(libraries[kind], name)]
    quiet = os.open(os.devnull, os.O_WRONLY)
    terminal = os.dup(2)
    os.dup2(quiet, 2)
    libraries["driver"].cuInit(0)
    for name, answer in entries["driver"].items():
        # Such an entry looks at no argument.
        if answer == "NOT_SUPPORTED" and (got := getattr(libraries["driver"], name)()) != NOT_SUPPORTED:
            problems.append(f"{name} answers {got}")
    os.dup2(terminal, 2)
    print("\n".join(problems) or f"{sum(map(len, entries.values()))} entries")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
