#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi_messages.py PROGRAM... [--steps N]

Random messages (mpi_messages.cu) on each MPI, under every protocol, between ranks with libhpe and without. The programs
carry their MPI's name in front: openmpi_, mpich_ or standard_. A million: --steps 8000.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402
from mpi_ranks import ranks  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("programs", nargs="*", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()
# Ranks with a device and without one, who know nothing of libhpe.
RUNS = (
    (2, 0, {}),
    (2, 0, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1}),
    (3, 0, {"HPE_PROTOCOL": "batch"}),
    (1, 1, {"HPE_PROTOCOL": "lazy"}),
    (2, 1, {"HPE_BLOCK_SIZE": "64K"}),
    (2, 1, {"HPE_MPI_IPC": "off", "HPE_PROTOCOL": "lazy"}),
)
if not options.programs:
    print("no MPI is installed")
    sys.exit(77)
problems, messages = [], 0
for path in options.programs:
    mpi, program = path.name.split("_")[0], str(path.resolve())
    # The standard's binary interface is MPICH's here.
    runs = RUNS if mpi != "standard" or soft.THOROUGH else RUNS[2:4]
    for seed, (with_device, without, variables) in enumerate(runs, 1):
        command = [program, str(seed), "0", str(options.steps)]
        parts = [(with_device, soft.LIBRARY, command)]
        if without:
            parts.append((without, "", ["env", "WITHOUT_DEVICE=1", *command]))
        status, lines, said = ranks(mpi, parts, timeout=60 + 5 * options.steps, **variables)
        good = [line for line in lines if line.endswith(" 0 wrong")]
        if status != 0 or len(good) != with_device + without:
            problems.append(f"{mpi}, {with_device} and {without} ranks, {variables}: {status}\n"
                            f"{said[:3000].decode(errors='replace')}")
            continue
        messages += int(good[0].split()[2])
print("\n".join(problems) or f"{messages} messages")
sys.exit(1 if problems else 0)
