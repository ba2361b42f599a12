#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi_cuda_aware.py UCX_FOLDER NVML PROGRAM...

Messages of device memory on an MPI that moves them by itself, Open MPI over UCX with its CUDA module, and on MPIs that have
this module in the process and do not: MPICH over it, which copies messages to the own process by the CPU, and ob1.
"""
import glob
import json
import os
import sys
import tempfile

import soft
from mpi_ranks import cases_of, commands, ranks

ucx, nvml = (os.path.abspath(path) for path in sys.argv[1:3])
programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[3:]}
SEARCH = f"{ucx}:{os.path.dirname(nvml)}:{soft.SEARCH}"
SETTINGS = {"OMPI_MCA_pml": "ucx", "UCX_MODULE_DIR": f"{ucx}/ucx"}
problems, runs = [], 0


def check(mpi, parts, what, **variables):
    global runs
    runs += 1
    status, lines, said = ranks(mpi, parts, search=SEARCH, every_component=True, **(SETTINGS | variables))
    if status != 0 or len(lines) != sum(part[0] for part in parts) or not all(line.endswith(" 0 wrong") for line in lines):
        problems.append(f"{mpi} {what} {variables}: {status}\n{said[-1500:].decode(errors='replace')}")


def passes(mpi, case, preload, by_host, scratch, **variables):
    """Whether the bytes of messages pass by the host: those of the program's one object."""
    check(mpi, [(2, preload, [programs[f"{mpi}_under_way"], case])], case, HPE_REPORT=f"{scratch}/%p.json", **variables)
    paths = glob.glob(f"{scratch}/*.json")
    used = [[one["bytes"] for one in json.load(open(path))["per_object"] if one["bytes_to_device"] or one["bytes_to_host"]]
            for path in paths]
    if len(used) != 2 or any((3 << 20 in of_rank) != by_host for of_rank in used):
        problems.append(f"{mpi}, {case} {variables}: {used}")
    for path in paths:
        os.remove(path)


def one_mpi(mpi, protocol, scratch):
    types = [programs[f"{mpi}_types"], "12", "40"]
    # UCX keeps addresses of other processes' memory that went with the context.
    cases = [case for case in cases_of(programs[f"{mpi}_direct"], programs[f"{mpi}_direct_forms"])
             if case[0] not in ("reset", "all_reset")]
    part = cases if soft.THOROUGH else cases[::3]
    for command in commands(part):
        check(mpi, [(2, soft.LIBRARY, command)], "all", HPE_PROTOCOL=protocol)
    check(mpi, [(1, soft.LIBRARY, types), (1, "", ["env", "WITHOUT_DEVICE=1", *types])], "not all with libhpe")
    for case in ("ring", "broadcast"):
        passes(mpi, case, soft.LIBRARY, mpi == "mpich", scratch)


def openmpi_alone(scratch):
    under_way, random = programs["openmpi_under_way"], [programs["openmpi_random"], "11", "30"]
    check("openmpi", [(3, soft.LIBRARY, [under_way, "window", "ring", "posted_late", "broadcast", "used_meanwhile"])], "under way", HPE_SOFT_DEVICE_LATENCY=2000)
    # What the program's device is still writing comes before the messages.
    check("openmpi", [(2, soft.LIBRARY, [programs["openmpi_direct"], "unfinished"])], "unfinished", HPE_SOFT_DEVICE_LATENCY=2000)
    # No message waits for UCX's copies of those before it.
    counts = [f"{scratch}/calls-{rank}" for rank in range(2)]
    check("openmpi", [(1, soft.LIBRARY, ["env", f"HPE_SOFT_COUNT={path}", under_way, "window"]) for path in counts], "window",
          HPE_SOFT_DEVICE_LATENCY=2000)
    calls = [line.split()[0] for path in counts for line in open(path)]
    if "cuMemcpyDtoDAsync" not in calls or "cuEventSynchronize" in calls:
        problems.append(f"messages wait: {sorted(calls)}")
    check("openmpi", [(2, soft.LIBRARY, random)], "random", HPE_PROTOCOL="batch")
    # Sent from host memory, of which parts are pinned, into device memory.
    check("openmpi", [(2, soft.LIBRARY, [programs["openmpi_direct"], "beside"])], "beside", HPE_PROTOCOL="batch")
    direct = [programs["openmpi_direct"], "beside", "vectors"]
    check("openmpi", [(1, soft.LIBRARY, ["env", "HPE_SOFT_FAIL=cuMemAlloc:6:2", *direct]), (1, soft.LIBRARY, direct)], "no memory")
    # The module is there, and another part of the MPI moves the messages.
    passes("openmpi", "ring", f"{soft.LIBRARY}:{ucx}/ucx/libuct_cuda.so.0", True, scratch, OMPI_MCA_pml="ob1")


if not os.path.isdir(ucx) or "openmpi_direct" not in programs:
    print("UCX with CUDA, or Open MPI, is not here")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    one_mpi("openmpi", "rolling", scratch)
    openmpi_alone(scratch)
    if "mpich_direct" in programs:
        one_mpi("mpich", "lazy", scratch)
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)
