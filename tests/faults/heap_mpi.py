#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: heap_mpi.py FAILING_CALLS PROGRAM...

Lets each call fail once by which libhpe takes memory of the heap in two ranks that pass device memory to each other.
Wanted: right numbers, or errors of MPI's. (heap.py says what BEGINNING is.) Which call a place is differs from run to run, since messages cross.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402
from mpi_ranks import MPIS, ranks  # noqa: E402

failing, *paths = sys.argv[1:]
programs = {os.path.basename(path): os.path.abspath(path) for path in paths}
BEGINNING = b"no memory is left to begin with: the program runs without libhpe"
KILLED = 9  # by mpirun, for the other rank's end
OF_MPI = (15, 16)  # MPI ended the job for an error of libhpe's
EVERY = 1 if soft.THOROUGH else 3


def run(program, **variables):
    return ranks(mpi, [(2, f"{soft.LIBRARY}:{failing}", program)], timeout=60, **variables)


problems, runs = [], 0
for mpi in [mpi for mpi in MPIS if f"{mpi}_under_way" in programs][:None if soft.THOROUGH else 1]:
    for name, *cases in (("under_way", "window", "ring"), ("reductions", "moves_ints")):
        program = [programs[f"{mpi}_{name}"], *cases]
        with tempfile.NamedTemporaryFile("r") as file:
            status, lines, said = run(program, HPE_TEST_COUNT=file.name)
            assert status == 0, (program, status, lines, said)
            calls = int(dict(map(str.split, file))["malloc"])
        for place in range(2, calls + 1, EVERY):
            runs += 1
            status, lines, said = run(program, HPE_TEST_FAIL=f"malloc:{place}")
            right = all(line.endswith(" 0 wrong") for line in lines)
            if right and (status in (0, KILLED, *OF_MPI) or BEGINNING in said):
                continue
            problems.append(f"{mpi} {name} malloc:{place}: {status}\n{said[-700:].decode(errors='replace')}")
print("\n".join(problems) or f"{runs} runs with a failure each")
sys.exit(1 if problems or not runs else 0)
