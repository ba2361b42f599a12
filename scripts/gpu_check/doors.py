# SPDX-License-Identifier: MIT
"""Figures of the doors outside CUDA: files, memcpy and memset, calls that concern no object."""
import os
import subprocess
import sys
import tempfile

from compare import compare, environment, printed_numbers, summary
from gpu_check.machine import BUILD, LIBRARY, ROOT, SHARED_RUNTIME

# What bench/doors prints, and how many nanoseconds more a call may take: in a process without objects, and with some.
FOREIGN = ([(f"{name} of {size} B", 2, 3) for size in (1, 64, 4096) for name in ("memcpy", "memset")]
           + [(name, 2, 20) for name in ("read", "write", "send", "recv", "fread", "fwrite")])


def bench_libc(target):
    """Figures: files in the page cache to device memory and back; memcpy and memset on device memory."""
    program = str(BUILD / "bench/files")
    plain, with_hpe = environment(**SHARED_RUNTIME), environment(LIBRARY, **SHARED_RUNTIME)
    figures = {}
    for work in ("read", "write", "fread", "fwrite"):
        ways = ("usual", "host", "pinned") if work in ("read", "write") else ("usual", "host")
        contenders = {way: ([program, work, way, "1024"], plain) for way in ways}
        contenders["libhpe, device pointer"] = ([program, work, "direct", "1024"], with_hpe)
        figures[f"{work} of 1 GiB in the page cache, GB/s"] = compare(contenders, rounds=1)  # five samples each

    def times_of(work, way):
        ways = figures[f"{work} of 1 GiB in the page cache, GB/s"]
        return ways["libhpe, device pointer"]["median"] / ways[way]["median"]

    target("read of 1 GiB, device pointer, GB/s",
           figures["read of 1 GiB in the page cache, GB/s"]["libhpe, device pointer"]["median"], 30, "at least")
    target("write of 1 GiB, device pointer / write() alone", times_of("write", "host"), 0.9, "at least")
    target("fread in pieces of 64 KiB, device pointer / the usual way", times_of("fread", "usual"), 1.5, "at least")
    # fwrite alone is little faster than the usual way: the kernel takes more time for the calls than for the bytes.
    target("fwrite in pieces of 64 KiB, device pointer / fwrite() alone", times_of("fwrite", "host"), 0.9, "at least")
    title = "read of 512 MiB in the page cache on two processors, GB/s"
    two = ["taskset", "-c", "0,1", program, "read"]
    figures[title] = compare({"pinned": ([*two, "pinned", "512"], plain),
                              "libhpe, device pointer": ([*two, "direct", "512"], with_hpe)}, rounds=1)
    target("read on two processors, device pointer / two pinned buffers by hand",
           figures[title]["libhpe, device pointer"]["median"] / figures[title]["pinned"]["median"], 1.5, "at least")
    title = "read of 512 MiB that is not in the page cache, GB/s"
    figures[title] = compare({way: ([program, "cold", way, "512"], plain) for way in ("usual", "host", "pinned")}
                             | {"libhpe, device pointer": ([program, "cold", "direct", "512"], with_hpe)}, rounds=1)
    best = max(f["median"] for way, f in figures[title].items() if way in ("usual", "pinned"))
    target("read that is not in the page cache, device pointer / the fastest by hand",
           figures[title]["libhpe, device pointer"]["median"] / best, 0.95, "at least")
    return figures | bench_memory(target) | bench_arrays(target)


def bench_arrays(target):
    """Figures: a file into an array of CuPy's, where that is installed."""
    if subprocess.run([sys.executable, "-c", "import cupy"], capture_output=True).returncode != 0:
        return {}
    program = [sys.executable, str(ROOT / "bench/array_read.py")]
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(1024):
            file.write(os.urandom(1 << 20))
        file.flush()
        title = "file of 1 GiB into an array of CuPy's, GB/s"
        figures = {title: compare({"fromfile, asarray": ([*program, "usual", file.name, "5"], environment()),
                                   "libhpe, readinto": ([*program, "direct", file.name, "5"], environment(LIBRARY))},
                                  rounds=1)}
    medians = {name: f["median"] for name, f in figures[title].items()}
    target("readinto a CuPy array / fromfile and asarray", medians["libhpe, readinto"] / medians["fromfile, asarray"], 4,
           "at least")
    return figures


def bench_foreign(target):
    """Figures: what libhpe adds to calls of libc that concern no object."""
    program = str(BUILD / "bench/doors")
    figures = {}
    for state, column in (("none", 1), ("objects", 2)):
        runs = [printed_numbers([program, state], environment(LIBRARY, **SHARED_RUNTIME)) for _ in range(7)]
        for row, call in enumerate(FOREIGN):
            title = f"{call[0]} that concerns no object, {'no' if state == 'none' else '20'} objects, ns"
            figures[title] = summary({"libc's own": [numbers[2 * row] for numbers in runs],
                                      "libhpe": [numbers[2 * row + 1] for numbers in runs]})
            target(f"more than without: {title}", figures[title]["libhpe"]["more"], call[column])
    return figures


def bench_memory(target):
    """Figures: what memcpy and memset do on device memory, against the program's own cudaMemcpy and cudaMemset."""
    program = str(BUILD / "bench/bulk")
    plain, with_hpe = environment(**SHARED_RUNTIME), environment(LIBRARY, **SHARED_RUNTIME)
    names = {"in": "memcpy of 256 MiB to the device", "out": "memcpy of 256 MiB from the device",
             "between": "memcpy of 256 MiB on the device", "set": "memset of 1 GiB on the device"}
    figures = {}
    for work, name in names.items():
        size = "1024" if work == "set" else "256"
        figures[f"{name}, GB/s"] = compare({"usual": ([program, work, "usual", size], plain),
                                            "libhpe, device pointer": ([program, work, "direct", size], with_hpe)}, rounds=3)
    medians = {work: {way: f["median"] for way, f in figures[f"{name}, GB/s"].items()} for work, name in names.items()}
    target(f"{names['in']}, GB/s", medians["in"]["libhpe, device pointer"], 40, "at least")
    target(f"{names['between']}, libhpe / cudaMemcpy",
           medians["between"]["libhpe, device pointer"] / medians["between"]["usual"], 0.8, "at least")
    target(f"{names['set']}, GB/s", medians["set"]["libhpe, device pointer"], 1000, "at least")
    return figures
