#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: closings.py PROGRAM

Blocks that a launch takes from the CPU are closed by one mprotect, those between them that are closed already along with
them: each such call interrupts every processor that runs a thread of the program. A block between them that was written
is closed before all, to be sent.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

OPENED, CLOSED, ROUNDS = 15 + 1 + 16, 1 + 2 + 1, 10


def calls(rounds):
    with tempfile.NamedTemporaryFile("r") as file:
        said = soft.run([sys.argv[1], str(rounds)], timeout=60, HPE_BLOCK_SIZE="64K", HPE_READ_AHEAD="off",
                        HPE_TEST_COUNT=file.name, LD_PRELOAD=f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}")
        if said[:2] != (0, b"0 wrong\n"):
            sys.exit(f"{rounds} rounds: {said}")
        return {name: int(n) for name, n in map(str.split, file)}["mprotect"]


each = (calls(1 + ROUNDS) - calls(1)) / ROUNDS
print(f"{each} calls of mprotect a round; {OPENED} open a block, {CLOSED} are enough to close them")
sys.exit(0 if OPENED < each <= OPENED + CLOSED else 1)
