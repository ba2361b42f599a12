#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi_reductions.py PROGRAM...

MPI_Allreduce of device memory, by the devices and by MPI, on ranks of all sorts. The programs carry their MPI's name in
front: openmpi_, mpich_ or standard_.
"""
import concurrent.futures
import glob
import json
import os
import sys
import tempfile

import soft
from mpi_ranks import MPIS, ranks

problems, runs = [], 0
programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
ALONE = ("left", "refused", "spawned", "moves_ints", "moves_floats", "moves_greatest")


def check(mpi, parts, what, left=False, **variables):
    global runs
    runs += 1
    status, lines, said = ranks(mpi, parts, **variables)
    # Open MPI calls it an error to leave without MPI_Finalize, and launchers end the others when one has left.
    ended = status == 0 or (left and status != "timeout")
    wanted = 1 if left else sum(part[0] for part in parts)
    if not ended or not wanted <= len(lines) <= sum(part[0] for part in parts) or not all(line.endswith(" 0 wrong") for line in lines):
        settings = " ".join(f"{k}={v}" for k, v in variables.items())
        problems.append(f"{mpi} {what} {settings}: {status}\n{said[-1500:].decode(errors='replace')}")
    return said


def one_mpi(mpi, scratch, first):
    hpe, program = soft.LIBRARY, [programs[f"{mpi}_reductions"]]
    without = ["env", "WITHOUT_DEVICE=1", *program]
    every = soft.run(program, preload=False)[1].decode().split()
    cases = [case for case in every if case not in ALONE]
    some = ["places", "mixed", "written", "beside", "others", "renewed", "communicators"]
    if mpi == "standard":  # MPICH behind another binary interface
        return check(mpi, [(2, hpe, program + (cases if soft.THOROUGH else some))], "some")
    check(mpi, [(2, hpe, program + [case for case in cases if first or soft.THOROUGH or case != "every"])], "all")
    if first:  # ranks wait without a rest, and more of them than there are processors take long
        check(mpi, [(4, hpe, [*program, "places", "communicators"])], "four ranks", HPE_PROTOCOL="lazy", HPE_SOFT_DEVICES=2)
        every = ["every"] if soft.THOROUGH else []
        check(mpi, [(3, hpe, program + every + some)], "three ranks", HPE_BLOCK_SIZE="4K", HPE_PROTOCOL="batch")
    check(mpi, [(1, hpe, program + some)], "one rank")
    check(mpi, [(2, hpe, [*program, "left"])], "left", left=True)
    if ranks(mpi, [(2, "", [*without, "spawned"])])[0] == 0:  # not every MPI can, under this launcher
        check(mpi, [(2, hpe, [*program, "spawned"])], "spawned")
    # Ranks without libhpe, with it but without use of CUDA, and with other settings.
    few = ["places", "mixed", "communicators", "others"]
    for parts, what in soft.in_turn(1, (
            ([(1, hpe, program + few), (1, "", without + few)], "without libhpe"),
            ([(1, "", without + few), (1 + first, hpe, program + few)], "without libhpe, first"))):
        check(mpi, parts, what)
    for parts, what in soft.in_turn(first, (
            ([(1, hpe, program + few), (1, hpe, without + few)], "without CUDA"),
            ([(1 + first, hpe, program + few), (1, hpe, ["env", "HPE_MPI_IPC=off", *program, *few])], "with HPE_MPI_IPC=off"))):
        check(mpi, parts, what)
    # What does not depend on the MPI. Where the device can do less, MPI does it.
    for call in ("cuModuleLoadData:*:2", "cuIpcGetMemHandle:*:2", "cuIpcOpenMemHandle:*:2", "cuStreamCreateWithPriority:*:2")[:4 * first]:
        check(mpi, [(1, hpe, program + few), (1, hpe, ["env", f"HPE_SOFT_FAIL={call}", *program, *few])], call)
    for call in ("cuLaunchKernel:1:2", "cuMemcpyDtoDAsync:1:2"):
        said = check(mpi, [(1, hpe, [*program, "refused"]), (1, hpe, ["env", f"HPE_SOFT_FAIL={call}", *program, "refused"])], call)
        if said.count(b"hpe: a device cannot combine what MPI_Allreduce was given") != 2:
            problems.append(f"{mpi}, {call}: {said[-1000:]}")
    # Two jobs of one user at once.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for job in [pool.submit(check, mpi, [(2, hpe, [*program, *few[2:]])], "two jobs") for _ in range(2)]:
            job.result()
    # The first call is MPI's own; of later ones no byte crosses.
    size, once, always = 2 << 20, 1, 4
    for case, count, switch, times in (("ints", 2, "on", once), ("ints", 3, "on", once), ("floats", 2, "on", once),
                                       ("floats", 3, "on", always), ("greatest", 2, "on", always), ("ints", 2, "off", always))[:6 if first else 3]:
        name = f"{scratch}/{mpi}-{case}-{count}-{switch}"
        check(mpi, [(count, hpe, [*program, f"moves_{case}"])], case, HPE_MPI_IPC=switch, HPE_REPORT=f"{name}-%p.json")
        moved = [json.load(open(path))["total"] for path in glob.glob(f"{name}-*.json")]
        moved = [(total["bytes_to_host"], total["bytes_to_device"]) for total in moved]
        if moved != [(times * size,) * 2] * count:
            problems.append(f"{mpi}, {case}, {count} ranks, HPE_MPI_IPC={switch}: to the host and to the device went {moved}")


if not programs:
    print("no MPI is installed")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    built = [mpi for mpi in MPIS if f"{mpi}_reductions" in programs]
    for mpi in built:
        one_mpi(mpi, scratch, mpi == built[0])
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)
