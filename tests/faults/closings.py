#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: closings.py PROGRAM

Blocks that a launch takes from the CPU are closed by one mprotect, those between them that are closed already along with
them: each such call interrupts every processor that runs a thread of the program.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

PLACES, ROUNDS = 15 + 16, 10


def calls(rounds):
    with tempfile.NamedTemporaryFile("r") as file:
        said = soft.run([sys.argv[1], str(rounds)], timeout=60, HPE_BLOCK_SIZE="64K", HPE_READ_AHEAD="off",
                        HPE_TEST_COUNT=file.name, LD_PRELOAD=f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}")
        if said[:2] != (0, b"0 wrong\n"):
            sys.exit(f"{rounds} rounds: {said}")
        return {name: int(n) for name, n in map(str.split, file)}["mprotect"]


each = (calls(1 + ROUNDS) - calls(1)) / ROUNDS
print(f"{each} calls of mprotect a round, of which {PLACES} open a block")
sys.exit(0 if PLACES < each <= PLACES + 2 else 1)
