# SPDX-License-Identifier: MIT
"""Figures of the doors outside CUDA: files, memcpy and memset, calls that concern no object, MPI."""
import os
import statistics
import subprocess
import sys
import tempfile

from compare import Failed, compare, environment, printed_numbers, run, summary
from gpu_check.machine import BUILD, LIBRARY, MPI_PROGRAMS, ROOT, SHARED_RUNTIME, UCX, UCX_SETTINGS, ranks

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


def bench_gaps(target, gpus):
    """Figures: messages of pieces of 8 bytes with gaps, and contiguous ones of the same way there and back."""
    program, figures = str(BUILD / MPI_PROGRAMS["pack"]), {}
    for mib in (1, 16, 64):
        def way(layout, how, library=None):
            return ranks(2, [program, layout, how, str(mib << 20), "8", "5"], library)
        ways = {"contiguous, libhpe": way("contiguous", "direct", LIBRARY)}
        for layout in ("vector", "subarray"):
            ways |= {f"{layout}, libhpe": way(layout, "direct", LIBRARY), f"{layout}, span by hand": way(layout, "span")}
        # By rows a copy takes as long as the pieces are many.
        ways |= {"vector, rows by hand": way("vector", "rows")} if mib == 1 else {}
        figures[f"{mib} MiB in pieces of 8 bytes, GB/s"] = of_size = compare(ways, rounds=1)
        medians = {name: f["median"] for name, f in of_size.items()}
        for layout in ("vector", "subarray"):
            by_hand = max(m for name, m in medians.items() if name.startswith(layout) and name.endswith("by hand"))
            target(f"{layout} of {mib} MiB in pieces of 8 bytes / the fastest by hand", medians[f"{layout}, libhpe"] / by_hand,
                   20, "at least")
            if gpus > 1:
                target(f"{layout} of {mib} MiB in pieces of 8 bytes / contiguous",
                       medians[f"{layout}, libhpe"] / medians["contiguous, libhpe"], 0.5, "at least")
    return figures


def bench_cuda_aware(target):
    """Figures: messages on an MPI that moves device memory by itself, without libhpe and with it."""
    if not UCX.is_dir():
        return {}
    messages, figures = str(BUILD / MPI_PROGRAMS["messages"]), {}
    for work, title in (("large", "message of 256 MiB one way, GB/s"), ("window", "64 messages of 1 MiB at a time, GB/s"),
                        ("pingpong", "message of 1 MiB there and back, GB/s")):
        figures[f"UCX with CUDA, {title}"] = of_work = compare(
            {name: ranks(2, [messages, work, "direct", "7"], library, **UCX_SETTINGS)
             for name, library in (("without libhpe", None), ("libhpe", LIBRARY))}, rounds=3)  # processes differ by 15 %
        target(f"UCX with CUDA, {title}, libhpe / without", of_work["libhpe"]["median"] / of_work["without libhpe"]["median"], 0.8,
               "at least")
    return figures


def bench_mpi(target, gpus):
    """Figures: contiguous messages between two ranks, sums of what they have, and a program that exchanges halos."""
    messages, fdtd = str(BUILD / MPI_PROGRAMS["messages"]), str(BUILD / MPI_PROGRAMS["fdtd"])
    figures = {}
    ways = {"device pointers, libhpe": ("direct", LIBRARY, {}),
            "the same, HPE_MPI_IPC=off": ("direct", LIBRARY, {"HPE_MPI_IPC": "off"}),
            "the same, HPE_MPI_IPC=none": ("direct", LIBRARY, {"HPE_MPI_IPC": "none"}),
            "by hand, pageable": ("pageable", None, {}), "by hand, pinned": ("pinned", None, {}),
            "host memory alone": ("host", None, {}), "host memory alone, libhpe": ("host", LIBRARY, {})}
    for work, title in (("large", "message of 256 MiB one way, GB/s"), ("window", "64 messages of 1 MiB at a time, GB/s"),
                        ("pingpong", "message of 1 MiB there and back, GB/s"), ("latency", "8 bytes one way, us"),
                        ("exchange", "exchange of 32 KiB between two kernels, us")):
        figures[title] = compare({name: ranks(2, [messages, work, way, "7"], library, **variables)
                                  for name, (way, library, variables) in ways.items()
                                  if (work == "large" or not name.endswith("none")) and (work, way) != ("exchange", "host")},
                                 rounds=5 if work == "latency" else 1)  # one process to the next differs by 10 %
    title = "message of 256 MiB one way, GB/s"
    figures[title]["direct copy between the devices"] = compare({"copy": ranks(1, [messages, "copy", "host"])}, rounds=1)["copy"]
    medians = {name: f["median"] for name, f in figures[title].items()}
    if gpus > 1:
        target("message of 256 MiB / direct copy between the devices",
               medians["device pointers, libhpe"] / medians["direct copy between the devices"], 0.93, "at least")
        target("message of 256 MiB, IPC off, GB/s", medians["the same, HPE_MPI_IPC=off"], 40, "at least")
    target("message of 256 MiB, device pointers / by hand, pinned",
           medians["device pointers, libhpe"] / medians["by hand, pinned"], 10, "at least")
    if gpus > 1:
        for title, wanted in (("64 messages of 1 MiB at a time, GB/s", 80), ("message of 1 MiB there and back, GB/s", 40)):
            target(title, figures[title]["device pointers, libhpe"]["median"], wanted, "at least")
        latency = {name: f["median"] for name, f in figures["8 bytes one way, us"].items()}
        # A send and a receive. What is received is stored on the host, and sent from there.
        target("more than MPI's own: 8 bytes one way, device pointers, us",
               latency["device pointers, libhpe"] - latency["host memory alone"], 1)
        target("8 bytes one way, device pointers / the fastest by hand", latency["device pointers, libhpe"]
               / min(latency["by hand, pageable"], latency["by hand, pinned"]), 0.7)
    # Of one rank, since the time between two differs by a tenth from one pair of processes to the next; and the faster
    # quarter, since one process may take twice as long for everything as another.
    title = "a call with 8 bytes of host memory, us"
    figures[title] = compare({name: ranks(1, [messages, "self", "host", "7"], library)
                              for name, library in (("without libhpe", None), ("libhpe", LIBRARY))}, rounds=5)
    target(f"more than without: {title}", figures[title]["libhpe"]["low"] - figures[title]["without libhpe"]["low"], 0.01)
    figures |= bench_gaps(target, gpus) | bench_cuda_aware(target)
    title = "sum of 64 Mi floats of two ranks, GB/s"
    figures[title] = compare({name: ranks(2, [messages, "allreduce", way, "5"], library, **variables)
                              for name, (way, library, variables) in ways.items() if way != "host"}, rounds=1)
    medians = {name: f["median"] for name, f in figures[title].items()}
    if gpus > 1:
        target("sum of 64 Mi floats, device pointers / the fastest by hand", medians["device pointers, libhpe"]
               / max(medians["by hand, pageable"], medians["by hand, pinned"]), 8, "at least")
    size = ["512", "256", "512", "200"]  # helpers and bounce buffers are made in the first steps
    steps, checksums = {}, set()
    for name, form, library in (("staged", "staged", None), ("staged, libhpe", "staged", LIBRARY),
                                ("device pointers, libhpe", "direct", LIBRARY)):
        said = [run(*ranks(2, [fdtd, form, *size], library)) for _ in range(5)]
        steps[name] = [float(line.split()[2]) for line in said]
        checksums |= {line.split()[1] for line in said}
    if len(checksums) != 1:
        raise Failed(f"fdtd: checksums {checksums}")
    figures["step of fdtd, halos of 4.3 MB, ms"] = summary(steps)
    if gpus > 1:
        target("step of fdtd as it is, plain / libhpe",
               statistics.median(steps["staged"]) / statistics.median(steps["staged, libhpe"]), 1.3, "at least")
    target("step of fdtd, staged / device pointers", statistics.median(steps["staged"])
           / statistics.median(steps["device pointers, libhpe"]), 1.5, "at least")
    return figures
