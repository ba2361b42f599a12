#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: softgpu.py [ROUNDS]

Millions of thread instructions a second that the soft device executes, on one core and on all, for the kernels of
softgpu.cu; what a launch of an empty kernel takes; and its start-up. Medians of ROUNDS (5) processes each.
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare import environment, run  # noqa: E402

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
PROGRAM = str(BUILD / "bench/softgpu")
SEARCH = f"{BUILD}/toolchain/softgpu/driver:{BUILD}/toolchain/softgpu/runtime"
WORKS = ("vector_add", "matmul", "reduction", "stencil", "nbody", "histogram")
LAUNCHES = {"vector_add": 3, "reduction": 3, "histogram": 4}


def instructions(arguments, threads):
    with tempfile.NamedTemporaryFile("r") as counts:
        run([PROGRAM, *arguments], environment(LD_LIBRARY_PATH=SEARCH, HPE_SOFT_THREADS=threads,
                                               HPE_SOFT_COUNT=counts.name))
        for line in counts:
            if line.startswith("# thread instructions "):
                return int(line.split()[-1])
    sys.exit("the soft device counted nothing")


def seconds(arguments, threads):
    return float(run([PROGRAM, *arguments], environment(LD_LIBRARY_PATH=SEARCH, HPE_SOFT_THREADS=threads)))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    subprocess.run(["ninja", "-C", str(BUILD), "toolchain/softgpu/driver/libcuda.so.1", "bench/softgpu"], check=True,
                   stdout=subprocess.DEVNULL)
    cores = len(os.sched_getaffinity(0))
    print(f"millions of thread instructions a second\n{'':12} {'1 core':>8} {f'{cores} cores':>8}")
    for work in WORKS:
        launches = LAUNCHES.get(work, 2)
        once = (instructions([work, str(launches)], 1)) * launches / (launches + 1)  # without the launch that warms up
        rates = []
        for threads in (1, cores):
            took = statistics.median(seconds([work, str(launches)], threads) for _ in range(rounds))
            rates.append(once / took / 1e6)
        print(f"{work:12} {rates[0]:8.0f} {rates[1]:8.0f}")
    empty = statistics.median(seconds(["empty", "20000"], cores) / 20000 for _ in range(rounds))
    print(f"launch of an empty kernel: {empty * 1e6:.2f} us")
    starts = []
    for _ in range(rounds):
        begin = time.monotonic()
        run([PROGRAM, "empty", "0"], environment(LD_LIBRARY_PATH=SEARCH))
        starts.append(time.monotonic() - begin)
    print(f"start-up, one launch and exit: {statistics.median(starts) * 1e3:.1f} ms")


main()
