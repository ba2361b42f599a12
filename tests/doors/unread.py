#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: unread.py UNREAD SOURCE HPE

With HPE_UNREAD=on the report has the bytes that were brought to the host and that nobody looked at, and `hpe report`
names the line; the program does what it does without, whatever it does with that memory.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import compare
import soft
import unread_bytes

program, source, hpe = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())


def unread(path):
    found, wrong = unread_bytes.unread(path)
    for sentence in wrong:
        compare.problem(sentence)
    return found


cases = soft.run([program], preload=False)[1].decode().split()
if not set(unread_bytes.EXPECTED) <= set(cases):
    compare.problem(f"cases {set(unread_bytes.EXPECTED) - set(cases)} are not there")
for case in cases:
    wanted = soft.run([program, "copy", case], preload=False)
    if wanted[0] != 0:
        compare.problem(f"{case} without libhpe: {wanted}")
    compare.check([program, case], forms=("plain",), stderr=True, wanted=wanted)
    for options in ({}, {"HPE_STAGING_THREADS": 2, "HPE_STAGING_BLOCK": "64K"}):
        path = folder / "r.json"
        path.unlink(missing_ok=True)
        compare.check([program, case], forms=("plain",), stderr=True, wanted=wanted, HPE_UNREAD="on", HPE_REPORT=path,
                      **options)
        if not path.exists():
            continue
        got = unread(path)
        if got != unread_bytes.EXPECTED.get(case, 0):
            compare.problem(f"{case} {options}: {got} bytes were not looked at, expected {unread_bytes.EXPECTED.get(case, 0)}")

# Not asked for, or without call stacks: nothing is counted.
for variables in ({}, {"HPE_UNREAD": "off"}, {"HPE_UNREAD": "on", "HPE_STACKS": "off"}):
    compare.check([program, "never"], forms=("plain",), HPE_REPORT=folder / "none.json", **variables)
    if "unread_bytes" in (folder / "none.json").read_text():
        compare.problem(f"{variables}: counted all the same")

# Other ranks read the memory of a process with an MPI: nothing is closed there.
for mpi in ("libmpi.so.40", "libmpich.so.12"):
    if b"cannot be preloaded" in soft.run(["true"], preload=False, LD_PRELOAD=mpi)[2]:
        continue
    compare.runs += 1
    got = soft.run([program, "plain", "never"], HPE_UNREAD="on", HPE_REPORT=folder / "mpi.json",
                   HPE_LOG="info", LD_PRELOAD=f"{soft.LIBRARY}:{mpi}")
    told = b"HPE_UNREAD: copies are not watched: other ranks of an MPI read this process's memory" in got[2]
    if got[0] != 0 or unread(folder / "mpi.json") != 0 or not told:
        compare.problem(f"with {mpi}: {got}")

# The line, and what to do.
soft.run([program, "plain", "overwritten"], HPE_UNREAD="on", HPE_REPORT=folder / "advice.json")
text = subprocess.run([hpe, "report", folder / "advice.json"], capture_output=True, text=True).stdout
line = next(n for n, t in enumerate(pathlib.Path(source).read_text().splitlines(), 1) if t.endswith("// a copy"))
if not re.search(rf"^\d+\. .*unread\.cu:{line}\n   4 x cuMemcpyDtoH_v2, .*\n(   .*\n)*?   brought and never looked at, ", text, re.M):
    compare.problem(f"line {line} is not named: {text}")
compare.finish(3 * len(cases))
