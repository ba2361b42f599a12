#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: system_calls.py EXPECTED PROGRAM [ARGUMENT...]

Lets each system call that libhpe makes for memory and threads fail: once, from some call on for ever, and wherever a
mapping would be split. Wanted: what the program prints without failures (EXPECTED; `-`: as without failures), after a
few lines on stderr at most. A program may die only where memory cannot be shared any more (mremap is refused for ever,
no shadow memory can be made at all, or a host function writes to an array and has no thread or memory to help it), and
then after a line that says so. Where no shadow memory can be made, each access of the CPU is a transfer: that is tried with the
programs that make few.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

expected_file, *program = sys.argv[1:]
FAILING = os.environ["HPE_TEST_FAILING_CALLS"]
COMMON = {"HPE_BLOCK_SIZE": "4K", "HPE_SOFT_DEVICES": 2, "LD_PRELOAD": f"{soft.LIBRARY}:{FAILING}"}
PLACES = 7 if soft.THOROUGH else 3
MAX_LINES = 2
MAX_LAST_LINES = 9  # each of eight threads may die of an access of its own, after a line that all have in common
DIED = -11
NOTHING_SHARED = ("mprotect:1+", "madvise:1+")
MANY_ACCESSES = ("saxpy", "copies", "threads_shared", "realloc_loop", "steps")


def run(**variables):
    return soft.run(program, timeout=60, **{**COMMON, **variables})


def places(n):
    return sorted({1 + i * (n - 1) // (min(n, PLACES) - 1) for i in range(min(n, PLACES))}) if n > 1 else [1]


with tempfile.NamedTemporaryFile("r") as file:
    status, good, err = run(HPE_TEST_COUNT=file.name)
    assert status == 0, (status, good, err)
    counts = {name: int(n) for name, n in map(str.split, file) if name != "malloc"}  # heap.py
assert counts["mprotect"] > 0 and counts["mremap"] > 0, counts
if expected_file != "-":
    assert good == open(expected_file, "rb").read(), good
# The first mprotect of all opens the mapping of which shadows are made; the first madvise keeps it from children; of the
# first three mmaps two find a place for it.
host_functions = any(name in program[0] for name in ("steps", "capture"))
needed = {"mmap": 3, "mremap": 1, "mprotect": 1, "madvise": 1}
cases = []
for name, n in counts.items():
    for place in places(n) if n else []:
        cases.append((f"{name}:{place}", False))
        cases.append((f"{name}:{place}+", name == "mremap" or place <= needed.get(name, 0) or
                      (host_functions and name in ("mmap", "pthread_create"))))
cases += [("mprotect:split", False), ("mprotect:split,munmap:split,madvise:2+", False),
          ("mprotect:3+,mmap:4+", host_functions)]
# With nothing left to change a mapping, the program may also be told by an error of a call.
HOPELESS = "mprotect:3+,mremap:4+"
cases.append((HOPELESS, True))
if any(name in program[0] for name in MANY_ACCESSES):
    cases = [case for case in cases if case[0] not in NOTHING_SHARED]
problems = []
for rule, may_die in cases:
    status, out, err = run(HPE_TEST_FAIL=rule)
    lines = [line for line in err.split(b"\n") if line.startswith(b"hpe:")]
    died = status == DIED and may_die and lines
    if (status == 0 and out == good and len(lines) <= MAX_LINES) or (died and len(lines) <= MAX_LAST_LINES):
        continue
    if rule == HOPELESS and status in (1, 3) and lines and b"WRONG" not in out:
        continue
    problems.append(f"{rule}: status {status}, {len(lines)} lines\n  {err[-600:].decode(errors='replace')}"
                    f"  {out[-300:].decode(errors='replace')}")
print("\n".join(problems) or f"{len(cases)} failures; {counts}")
sys.exit(1 if problems else 0)
