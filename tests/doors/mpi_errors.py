#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi_errors.py PROGRAM...

MPI calls whose device refuses libhpe's copies, and a rank that is killed while it exchanges device memory. The programs
carry their MPI's name in front: openmpi_, mpich_ or standard_.
"""
import os
import re
import sys

import soft
from mpi_ranks import MPIS, ranks

problems, runs = [], 0
programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
REFUSED = b"hpe: cannot fetch [0-9]+ bytes of object 0x[0-9a-f]+ from the device: CUDA_ERROR_"
FAIL = {"HPE_SOFT_FAIL": "cuMemcpyDtoHAsync:*:1,cuMemcpyHtoDAsync:*:1"}


def one_rank(mpi, program, cases, **variables):
    global runs
    runs += 1
    return ranks(mpi, [(1, soft.LIBRARY, [program, *cases])], **variables)


def one_mpi(mpi):
    program, killed = programs[f"{mpi}_failing"], programs[f"{mpi}_killed"]
    cases = soft.run([program], preload=False)[1].decode().split()
    ended = [case for case in cases if case.startswith("trap_")]
    returned = [case for case in cases if case not in ended]
    # The call returns an error.
    status, lines, said = one_rank(mpi, program, returned, **FAIL)
    if status != 0 or len(lines) != len(returned) or len(re.findall(REFUSED, said)) < len(returned):
        problems.append(f"{mpi}, every copy refused: {status}\n{said.decode(errors='replace')}")
    # Nobody wanted the error: MPI ends the program, after a line.
    for case in ("send", "start", "receive", "wait"):
        status, lines, said = one_rank(mpi, program, ["fatal", case], **FAIL)
        if status in (0, "timeout") or lines or not re.search(REFUSED, said):
            problems.append(f"{mpi}, {case} that is fatal: {status} {said.decode(errors='replace')}")
    for case in ended:
        status, lines, said = one_rank(mpi, program, [case], **FAIL)
        if status in (0, "timeout") or lines or not re.search(REFUSED, said):
            problems.append(f"{mpi}, {case}: {status} {said.decode(errors='replace')}")
    # The copies after the first are refused.
    later = ",".join(f"cuMemcpyDtoHAsync:{n}:1" for n in range(2, 100))
    for case in ("start", "start_gaps", "start_all"):
        status, lines, said = one_rank(mpi, program, [case], HPE_SOFT_FAIL=later)
        if status != 0 or len(lines) != 1 or not re.search(REFUSED, said):
            problems.append(f"{mpi}, {case}, copies refused later: {status}\n{said.decode(errors='replace')}")
    # The others end as their MPI lets them end, and at once.
    # Also while they wait for bytes that its device is bringing, or for its device, which reads theirs.
    for where, library, variables in (("host", "", {}), ("device", soft.LIBRARY, {"HPE_SOFT_DEVICE_LATENCY": 300000}),
                                      ("device", soft.LIBRARY, {"HPE_MPI_IPC": "off", "HPE_SOFT_LINK": 200000000})):
        status, lines, said = ranks(mpi, [(3, library, [killed, where])], **variables)
        if status in (0, "timeout") or "rank 2 is killed" not in lines or b"hpe:" in said:
            problems.append(f"{mpi}, a rank killed, {where} memory {variables}: {status} {said[-3000:].decode(errors='replace')}")


if not programs:
    print("no MPI is installed")
    sys.exit(77)
for mpi in MPIS:
    if f"{mpi}_failing" in programs:
        one_mpi(mpi)
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)
