#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi_programs.py PROGRAM...

bench/apps/fdtd and examples/halo with some ranks, with every protocol: what one rank says; and that the report calls no
wait needless behind which MPI got device memory. The programs carry their MPI's name in front: openmpi_, mpich_ or
standard_.
"""
import json
import os
import pathlib
import re
import sys
import tempfile

import soft
from mpi_ranks import MPIS, ranks

problems, runs = [], 0
programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
SAID = rb"checksum [0-9a-f]{16}\n|heat of 512 x 240 points: [0-9]+\.[0-9]{3}\n"
PROTOCOLS = ("rolling", "lazy", "batch")


def said(mpi, count, library, command, **variables):
    global runs
    runs += 1
    status, _, text = ranks(mpi, [(count, library, command)], every_component=True, **variables)
    found = re.findall(SAID, text)
    if status != 0 or len(found) != 1 or b"hpe:" in text:
        problems.append(f"{mpi}, {count} ranks, {library} {command} {variables}: {status}\n{text[-2000:].decode(errors='replace')}")
        return None
    return found[0]


def wanted(mpi, what, expected, count, library, command, **variables):
    got = said(mpi, count, library, command, **variables)
    if got != expected:
        problems.append(f"{mpi}, {what}, {count} ranks, {command} {variables}: {got}, not {expected}")


def one_mpi(mpi):
    program = programs[f"{mpi}_fdtd"]
    size = ["32", "38", "24", "6"]
    alone = said(mpi, 1, "", [program, "staged", *size])
    wanted(mpi, "without libhpe", alone, 3, "", [program, "staged", *size])
    for count, protocol in zip((2, 3, 4), PROTOCOLS):
        for form in ("staged", "direct"):
            wanted(mpi, "fdtd", alone, count, soft.LIBRARY, [program, form, *size], HPE_PROTOCOL=protocol)
    wanted(mpi, "two devices", alone, 2, soft.LIBRARY, [program, "direct", *size], HPE_SOFT_DEVICES=2, HPE_BLOCK_SIZE="4K")
    program = programs[f"{mpi}_halo"]
    alone = said(mpi, 1, soft.LIBRARY, [program])
    for count, protocol in zip((4, 2, 3), PROTOCOLS):
        wanted(mpi, "halo", alone, count, soft.LIBRARY, [program], HPE_PROTOCOL=protocol)
    with tempfile.TemporaryDirectory() as folder:
        wanted(mpi, "report", alone, 2, soft.LIBRARY, [program], HPE_REPORT=f"{folder}/%r.json")
        stacks = [json.loads(path.read_text())["call_stacks"] for path in pathlib.Path(folder).iterdir()]
    stacks = [stack for of_rank in stacks if of_rank for stack in of_rank["stacks"]]
    needless = sum(stack.get("waits_not_needed", 0) for stack in stacks)
    waits = sum(stack["count"] for stack in stacks if stack["what"].endswith("Synchronize"))
    if needless or (stacks and not waits):
        problems.append(f"{mpi}: {needless} of {waits} waits count as not needed")


if not programs:
    print("no MPI is installed")
    sys.exit(77)
for mpi in MPIS:
    if f"{mpi}_fdtd" in programs:
        one_mpi(mpi)
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)
