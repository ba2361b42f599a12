# SPDX-License-Identifier: MIT
"""Runs bench/copies.cu against itself: pinned memory, pageable memory with the driver alone and with libhpe, the latter
two also bound to two processors; and, where libhpe may only not be slower, its copies and the driver's own in
turn in one process. For scripts/gpu-check.
"""
import os
import statistics

from compare import environment, printed_numbers

SIZES = {"64 KiB": 64, "256 KiB": 256, "1 MiB": 1 << 10, "16 MiB": 16 << 10, "64 MiB": 64 << 10, "256 MiB": 256 << 10,
         "1 GiB": 1 << 20}  # KiB
ONE_COPY = [f"{size} to the {side}" for side in ("device", "host") for size in SIZES]
ROWS = [f"64 MiB in rows of 4000 B to the {side}" for side in ("device", "host")]
LINES = ONE_COPY + ROWS + ["both directions at once", "eight threads, 4 MiB each"]
# contender -> with libhpe, processors, the largest size in KiB: those that are judged
IN_TURN = {"in turn, without libhpe": (False, None, 256), "in turn": (True, None, 256),
           "in turn, 1 processor": (True, 1, 1 << 20)}
BOUND = {"": None, ", 2 processors": 2}


def bound_to(processors, command):
    if processors is None:
        return command
    return ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:processors])), *command]


def copies(program, library, rounds=3):
    """contender -> line -> GB/s, the median of `rounds` processes."""
    contenders = {"pinned": (["pinned"], None, None)}
    for suffix, processors in BOUND.items():
        contenders["driver" + suffix] = (["pageable"], None, processors)
        contenders["libhpe" + suffix] = (["pageable"], library, processors)
    samples = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders) if number % 2 == 0 else reversed(list(contenders)):
            arguments, preload, processors = contenders[name]
            command = bound_to(processors, [program, *arguments, "0.05"])
            samples[name].append(printed_numbers(command, environment(preload)))
    return {name: {line: round(statistics.median(values), 2) for line, values in zip(LINES, zip(*runs))}
            for name, runs in samples.items()}


def in_turn(program, library, rounds=3):
    """contender -> line -> what libhpe reaches of the driver's own rate, the median of `rounds` processes."""
    result = {}
    for name, (preload, processors, largest) in IN_TURN.items():
        command = bound_to(processors, [program, "against", "0.02", str(largest)])
        runs = []
        for _ in range(rounds if preload else 1):
            runs.append(printed_numbers(command, environment(library if preload else None)))
        lines = [f"{size} to the {side}" for side in ("device", "host") for size in SIZES if SIZES[size] <= largest]
        result[name] = {line: round(statistics.median(values), 4) for line, values in zip(lines, zip(*runs))}
    return result


def judge(rates, turns, target):
    """Calls target(what, measured, limit, "at least") for each of the engine's targets, with what copies() and in_turn()
    gave."""
    def of(name, line):
        return rates[name][line]

    for side in ("device", "host"):
        for size in ("64 MiB", "256 MiB", "1 GiB"):
            line = f"{size} to the {side}"
            target(f"pageable, {line}, GB/s", of("libhpe", line), 45, "at least")
            target(f"pageable / pinned, {line}", of("libhpe", line) / of("pinned", line), 0.85, "at least")
        for size, factor in (("1 MiB", 1.5), ("16 MiB", 2.5)):
            line = f"{size} to the {side}"
            target(f"pageable, libhpe / driver, {line}", of("libhpe", line) / of("driver", line), factor, "at least")
        for size in ("64 KiB", "256 KiB"):
            line = f"{size} to the {side}"
            target(f"pageable, libhpe / driver in turn, {line}", turns["in turn"][line], 0.97, "at least")
        for size in SIZES:
            line = f"{size} to the {side}"
            if size not in ("64 KiB", "256 KiB"):
                target(f"on 2 processors, libhpe / driver, {line}",
                       of("libhpe, 2 processors", line) / of("driver, 2 processors", line), 1.3, "at least")
            target(f"on 1 processor, libhpe / driver in turn, {line}", turns["in turn, 1 processor"][line], 0.97,
                   "at least")
    target("both directions at once, GB/s", of("libhpe", LINES[-2]), 80, "at least")
    target("eight threads, 4 MiB each, GB/s", of("libhpe", LINES[-1]), 30, "at least")
