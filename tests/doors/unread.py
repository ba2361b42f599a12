#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: unread.py UNREAD SOURCE HPE

With HPE_UNREAD=on the report has the bytes that were brought to the host and that nobody looked at, and `hpe report`
names the line; the program does what it does without, whatever it does with that memory.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import compare
import soft

program, source, hpe = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())
PAGE = 4096


def pages(size, offset=16):
    """Of a copy to so many bytes behind the beginning of a page: malloc's header is there."""
    return (offset + size) // PAGE * PAGE - -(-offset // PAGE) * PAGE


WHOLE = pages(1200000)
# What nobody looked at.
EXPECTED = {
    "never": WHOLE,
    "overwritten": 3 * WHOLE,
    "freed": 4 * WHOLE,
    "partly": WHOLE,
    "first_only": WHOLE,
    "pieces": pages(400000) + pages(400000, 800016),
    "part_again": pages(400000),
    # As aligned_alloc places it; of each the second copy.
    "aligned": pages(1200000, 64) + 2 * pages(1200000, 0),
    "asynchronous": 2 * WHOLE,
    "protect": WHOLE,  # the second copy's
    "nothing": WHOLE,
    "reused": WHOLE,
    "threads_copy": 4 * 10 * 2 * WHOLE,
    "forked": WHOLE,
    "at_exit": WHOLE,  # looked at when the report was written
}


def unread(path):
    section = json.loads(path.read_text())["call_stacks"]
    stacks = [s for s in section["stacks"] if "unread_bytes" in s]
    for stack in stacks:
        if not 0 < stack["unread_seconds"] <= stack["seconds"] or stack["unread_bytes"] > stack["to_host_bytes"]:
            compare.problem(f"a part that is more than the whole: {stack}")
    return sum(s["unread_bytes"] for s in stacks)


cases = soft.run([program], preload=False)[1].decode().split()
if not set(EXPECTED) <= set(cases):
    compare.problem(f"cases {set(EXPECTED) - set(cases)} are not there")
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
        if got != EXPECTED.get(case, 0):
            compare.problem(f"{case} {options}: {got} bytes were not looked at, expected {EXPECTED.get(case, 0)}")

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
                   LD_PRELOAD=f"{soft.LIBRARY}:{mpi}")
    if got[0] != 0 or unread(folder / "mpi.json") != 0:
        compare.problem(f"with {mpi}: {got}")

# The line, and what to do.
soft.run([program, "plain", "overwritten"], HPE_UNREAD="on", HPE_REPORT=folder / "advice.json")
text = subprocess.run([hpe, "report", folder / "advice.json"], capture_output=True, text=True).stdout
line = next(n for n, t in enumerate(pathlib.Path(source).read_text().splitlines(), 1) if t.endswith("// a copy"))
if not re.search(rf"^\d+\. .*unread\.cu:{line}\n   4 x cuMemcpyDtoH_v2, .*\n(   .*\n)*?   brought and never looked at, ", text, re.M):
    compare.problem(f"line {line} is not named: {text}")
compare.finish(3 * len(cases))
