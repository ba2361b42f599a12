#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: heap.py PROGRAM [VARIABLE=VALUE...]

Lets each call fail by which libhpe takes memory of the heap: once, and from that call on for ever. Wanted: the program
ends with right numbers, told by errors of its calls at most. Without the memory to begin with (BEGINNING) it runs without
libhpe after a line, and its CPU cannot access device memory.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program, *settings = sys.argv[1:]
COMMON = {"HPE_BLOCK_SIZE": "4K", "HPE_SOFT_DEVICES": 2,
          "LD_PRELOAD": f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}",
          **dict(setting.split("=", 1) for setting in settings)}
RIGHT, FAILED_FOR_GOOD, DIED = 0, 3, -11
# The first call of all is the C++ runtime's, for exceptions where memory is short.
FIRST = 2
BEGINNING = b"no memory is left to begin with: the program runs without libhpe"


def run(**variables):
    return soft.run([program], timeout=60, **{**COMMON, **variables})


with tempfile.NamedTemporaryFile("r") as file:
    status, good, err = run(HPE_TEST_COUNT=file.name)
    assert status == RIGHT, (status, good, err)
    calls = dict(map(str.split, file))["malloc"]
problems = []
for place in range(FIRST, int(calls) + 1):
    for rule in (f"malloc:{place}", f"malloc:{place}+"):
        status, out, err = run(HPE_TEST_FAIL=rule)
        without = status == DIED and BEGINNING in err
        if (status in (RIGHT, FAILED_FOR_GOOD) or without) and b"WRONG" not in out:
            continue
        problems.append(f"{rule}: status {status}\n  {err[-600:].decode(errors='replace')}"
                        f"  {out[-300:].decode(errors='replace')}")
print("\n".join(problems) or f"{calls} calls, each of which failed once, and for ever")
sys.exit(1 if problems else 0)
