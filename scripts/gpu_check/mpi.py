# SPDX-License-Identifier: MIT
"""Figures of MPI: messages of device memory between two ranks, whole and in pieces, sums, a program with halos."""
import statistics

from compare import Failed, compare, run, summary
from gpu_check.machine import BUILD, LIBRARY, MPI_PROGRAMS, UCX, UCX_SETTINGS, ranks

MESSAGES = str(BUILD / MPI_PROGRAMS["messages"])
WAYS = {"device pointers, libhpe": ("direct", LIBRARY, {}),
        "the same, HPE_MPI_IPC=off": ("direct", LIBRARY, {"HPE_MPI_IPC": "off"}),
        "the same, HPE_MPI_IPC=none": ("direct", LIBRARY, {"HPE_MPI_IPC": "none"}),
        "by hand, pageable": ("pageable", None, {}), "by hand, pinned": ("pinned", None, {}),
        "host memory alone": ("host", None, {}), "host memory alone, libhpe": ("host", LIBRARY, {})}


def bench_messages(target, gpus):
    """Figures: contiguous messages between two ranks."""
    figures = {}
    for work, title in (("large", "message of 256 MiB one way, GB/s"), ("window", "64 messages of 1 MiB at a time, GB/s"),
                        ("pingpong", "message of 1 MiB there and back, GB/s"), ("latency", "8 bytes one way, us"),
                        ("exchange", "exchange of 32 KiB between two kernels, us")):
        figures[title] = compare({name: ranks(2, [MESSAGES, work, way, "7"], library, **variables)
                                  for name, (way, library, variables) in WAYS.items()
                                  if (work == "large" or not name.endswith("none")) and (work, way) != ("exchange", "host")},
                                 rounds=7 if work == "latency" else 1)  # one process to the next differs by 10 %
    title = "message of 256 MiB one way, GB/s"
    figures[title]["direct copy between the devices"] = compare({"copy": ranks(1, [MESSAGES, "copy", "host"])}, rounds=1)["copy"]
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
    # quarter, since half of the processes take twice as long for everything as the others.
    title = "a call with 8 bytes of host memory, us"
    figures[title] = compare({name: ranks(1, [MESSAGES, "self", "host", "3"], library)
                              for name, library in (("without libhpe", None), ("libhpe", LIBRARY))}, rounds=15)
    target(f"more than without: {title}", figures[title]["libhpe"]["low"] - figures[title]["without libhpe"]["low"], 0.01)
    return figures


def bench_pieces(target, gpus):
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
        # Messages of 1 MiB differ by a tenth from one pair of processes to the next.
        figures[f"{mib} MiB in pieces of 8 bytes, GB/s"] = of_size = compare(ways, rounds=3 if mib == 1 else 1)
        medians = {name: f["median"] for name, f in of_size.items()}
        for layout in ("vector", "subarray"):
            by_hand = max(m for name, m in medians.items() if name.startswith(layout) and name.endswith("by hand"))
            target(f"{layout} of {mib} MiB in pieces of 8 bytes / the fastest by hand", medians[f"{layout}, libhpe"] / by_hand,
                   20, "at least")
            if gpus > 1:
                target(f"{layout} of {mib} MiB in pieces of 8 bytes / contiguous",
                       medians[f"{layout}, libhpe"] / medians["contiguous, libhpe"], 0.5, "at least")
    return figures


def bench_cuda_aware(target, gpus):
    """Figures: messages on an MPI that moves device memory by itself, without libhpe and with it."""
    if not UCX.is_dir():
        return {}
    figures = {}
    for work, title in (("large", "message of 256 MiB one way, GB/s"), ("window", "64 messages of 1 MiB at a time, GB/s"),
                        ("pingpong", "message of 1 MiB there and back, GB/s")):
        figures[f"UCX with CUDA, {title}"] = of_work = compare(
            {name: ranks(2, [MESSAGES, work, "direct", "7"], library, **UCX_SETTINGS)
             for name, library in (("without libhpe", None), ("libhpe", LIBRARY))}, rounds=3)  # processes differ by 15 %
        target(f"UCX with CUDA, {title}, libhpe / without", of_work["libhpe"]["median"] / of_work["without libhpe"]["median"], 0.8,
               "at least")
    return figures


def bench_programs(target, gpus):
    """Figures: sums of what two ranks have, and a program that exchanges halos."""
    fdtd, figures = str(BUILD / MPI_PROGRAMS["fdtd"]), {}
    title = "sum of 64 Mi floats of two ranks, GB/s"
    figures[title] = compare({name: ranks(2, [MESSAGES, "allreduce", way, "5"], library, **variables)
                              for name, (way, library, variables) in WAYS.items() if way != "host"}, rounds=1)
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
