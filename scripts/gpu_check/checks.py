# SPDX-License-Identifier: MIT
"""What is checked on NVIDIA's driver. Each function returns what was right, and sentences about what was wrong."""
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import unread_bytes
from compare import Failed, called, environment, run
from gpu_check.machine import (APPS, BUILD, LIBRARY, MPI_PROGRAMS, PROTOCOLS, ROOT, SHARED_RUNTIME, SIZES, UCX,
                               UCX_SETTINGS, ranks, shown)

NOT_THERE = 77  # the status of a program that lacks a library


def check_programs(names):
    """name -> runs that were right; and what was wrong."""
    right, wrong = {}, []

    def check(program, variables, expected):
        try:
            out = run([str(program)], environment(LIBRARY, **variables), timeout=120)
        except Failed as problem:
            return f"{shown(variables, program)}: {problem}"
        return None if out == expected else f"{shown(variables, program)} printed {out[-200:]!r}, not {expected[-200:]!r}"

    # Several at a time: most of a run is the driver's start-up.
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() * 2 // 3)) as pool:
        for name in names:
            recorded = (ROOT / "tests/apps/expected" / f"{name}.txt").read_text()
            has_static = (APPS / f"{name}_static").exists()
            shared, static = APPS / name, APPS / (f"{name}_static" if has_static else name)
            try:
                twin = run([str(APPS / f"{name}_copy{'_static' if has_static else ''}")], environment(**SHARED_RUNTIME))
            except Failed as problem:
                wrong.append(str(problem))
                continue
            if twin != recorded:
                wrong.append(f"{name}: the explicit-copy twin prints {twin[-200:]!r} here, not {recorded[-200:]!r}")
            runs = [(static, v) for v in PROTOCOLS + SIZES]
            if has_static:
                runs += [(shared, {**v, **SHARED_RUNTIME}) for v in PROTOCOLS]
            problems = list(pool.map(lambda r: check(*r, twin), runs))
            right[name] = problems.count(None)
            wrong += [p for p in problems if p]
    return right, wrong


def check_model():
    """Operations done; and what was wrong."""
    operations, wrong = 0, []
    configurations = [{"HPE_PROTOCOL": "rolling"}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"},
                      {"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": "1"}]
    # Small objects, then large ones, of which a fault opens many blocks at once.
    runs = [(variables, threads, count, []) for variables in configurations for threads, count in ((1, 20000), (8, 5000))]
    runs += [({}, threads, count, ["largest", "4000000"]) for threads, count in ((1, 4000), (8, 1000))]
    for seed, (variables, threads, count, more) in enumerate(runs, 1):
        try:
            run([str(BUILD / "tests/stress/model"), str(seed), str(threads), str(count), *more],
                environment(LIBRARY, **variables, **SHARED_RUNTIME))
            operations += threads * count
        except Failed as problem:
            wrong.append(f"model, {variables}: {problem}")
    return operations, wrong


def check_sweeps():
    """Cases that were right; and what was wrong."""
    commands = []
    for name in ("sweeps", "flushes", "callbacks", "waits"):
        program = str(BUILD / f"tests/doors/door_{name}")
        for case in run([program], environment(**SHARED_RUNTIME)).split():
            # Objects that the CPU has used before, and others.
            commands += [[program, case, *first] for first in ([[], ["first"]] if name == "sweeps" else [[]])]

    def check(command):
        try:
            run(command, environment(LIBRARY, **SHARED_RUNTIME), timeout=60)
        except Failed as problem:
            return f"{pathlib.Path(command[0]).name} {' '.join(command[1:])}: {problem}"
        return None

    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() // 3)) as pool:
        problems = list(pool.map(check, commands))
    return problems.count(None), [p for p in problems if p]


def check_pageable():
    """Copies between the program's own memory and the device: cases that were as without libhpe; and what was wrong."""
    # Staged from the first copy on where the number of helpers is given.
    options = ({}, {"HPE_STAGING_THREADS": str(min(14, os.cpu_count()))},
               {"HPE_STAGING_THREADS": "1", "HPE_STAGING_BLOCK": "4K", "HPE_PINNED_LIMIT": "1M"})

    def outcome(command, library, more):
        try:
            return run(command, environment(library, **SHARED_RUNTIME, **more), timeout=60)
        except Failed as problem:  # which may be what the case is about
            return str(problem)

    def check(command):
        wanted = outcome(command, None, {})
        for more in options:
            got = outcome(command, LIBRARY, more)
            if got != wanted or "WRONG" in got:
                return f"{pathlib.Path(command[0]).name} {command[1]} {more}: {got[-200:]!r}, without libhpe {wanted[-200:]!r}"
        return None

    commands = []
    for name in ("pageable", "pageable_rows", "pageable_shared"):
        program = str(BUILD / f"tests/doors/door_{name}")
        # On an H200 the driver's own copies never come back from behind that callback, and between those of two threads
        # hundreds pass a launch by.
        unlike = ("behind_callback", "launches_beside_copies", "errno_beside_copies")
        commands += [[program, case] for case in run([program], environment(**SHARED_RUNTIME)).split()
                     if case not in unlike]
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() // 3)) as pool:
        problems = list(pool.map(check, commands))
    return problems.count(None), [p for p in problems if p]


def check_twins(names):
    """Programs of tests/doors whose copying form, without libhpe, says what the plain one must print."""
    def check(command):
        program, case = command
        how = {"timeout": 60, "ends": -signal.SIGSEGV if case in ended else 0}
        try:
            wanted = run([program, "copy", case], environment(**SHARED_RUNTIME), **how)
            for protocol in PROTOCOLS:
                got = run([program, "plain", case], environment(LIBRARY, **SHARED_RUNTIME, **protocol), **how)
                if got != wanted:
                    return f"{pathlib.Path(program).name} {case} {protocol}: {got[-200:]!r}, not {wanted[-200:]!r}"
        except Failed as problem:
            return f"{case}: {problem}"
        return None

    # NVIDIA's driver promises less of a copy from pageable memory than libhpe does of one from a device pointer, and
    # refuses copies while another thread changes rights to the memory.
    unlike = ("done_on_return", "granted_meanwhile")
    ended = ("from_memory_that_is_missing",)
    commands = []
    for name in names:
        program = str(BUILD / f"tests/doors/door_{name}")
        cases = run([program], environment(**SHARED_RUNTIME)).split()
        commands += [(program, case) for case in cases if case not in unlike]
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() // 3)) as pool:
        problems = list(pool.map(check, commands))
    return problems.count(None), [p for p in problems if p]


def check_arrays():
    """NumPy on the memory of Python's GPU libraries, by their allocators: cases that were right; and what was wrong."""
    program = str(ROOT / "tests/neighbours/programs/arrays.py")

    def outcome(case, library):
        done = subprocess.run([sys.executable, program, case], env=environment(library), capture_output=True, text=True,
                              timeout=120)
        # Results are kept, and what Python says above its last line names places on this machine.
        return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1:]

    def check(case):
        try:
            status, said = outcome(case, LIBRARY)
            if status == NOT_THERE and outcome(case, None)[0] == NOT_THERE:
                return NOT_THERE
        except subprocess.TimeoutExpired:
            return f"{case}: no end after 120 s"
        return None if status == 0 else f"{case}: status {status}: {said}"

    cases = run([sys.executable, program], environment()).split()
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() // 4)) as pool:
        problems = list(pool.map(check, cases))
    return [case for case, problem in zip(cases, problems) if problem is None], [
        p for p in problems if p not in (None, NOT_THERE)]


def check_unread():
    """Copies that nobody looks at are counted, and the program does what it does without: cases that were right."""
    program = str(BUILD / "tests/doors/door_unread")

    def check(case):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "r.json"
            variables = {"HPE_UNREAD": "on", "HPE_REPORT": report, **SHARED_RUNTIME}
            try:
                wanted = run([program, "copy", case], environment(**SHARED_RUNTIME), timeout=60)
                got = run([program, "plain", case], environment(LIBRARY, **variables), timeout=60)
            except Failed as problem:
                return f"{case}: {problem}"
            if got != wanted:
                return f"door_unread {case}: {got[-200:]!r}, not {wanted[-200:]!r}"
            count, sentences = unread_bytes.unread(report) if report.exists() else (0, [])
        expected = unread_bytes.EXPECTED.get(case, 0)
        return "; ".join(sentences) or (None if count == expected else
                                        f"door_unread {case}: {count} bytes were not looked at, not {expected}")

    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() // 3)) as pool:
        problems = list(pool.map(check, run([program], environment(**SHARED_RUNTIME)).split()))
    return problems.count(None), [p for p in problems if p]


def check_libc():
    """Calls of libc with device pointers: cases that were as with a host buffer; and what was wrong."""
    right, problems = check_twins(("files", "memory", "sockets", "streams"))
    for protocol in PROTOCOLS:
        try:
            run([str(BUILD / "tests/stress/stress_io"), "1", "5000"], environment(None, **SHARED_RUNTIME, **protocol) | {
                "LD_PRELOAD": f"{LIBRARY}:{BUILD / 'tests/stress/libio_faults.so'}"})
            right += 1
        except Failed as problem:
            problems.append(f"stress_io {protocol}: {problem}")
    return right, problems


def check_mpi():
    """Programs whose ranks send device memory: runs without a wrong byte; and what was wrong."""
    direct, forms, under_way, types, reductions = (
        str(BUILD / MPI_PROGRAMS[name]) for name in ("direct", "direct_forms", "under_way", "types", "reductions"))
    sums = [reductions, "every", "places", "mixed", "written", "communicators", "threads", "others", "renewed"]
    cases, forms = ([program, *run([program], environment(**SHARED_RUNTIME)).split()] for program in (direct, forms))
    problems = []
    ways = PROTOCOLS + [{"HPE_MPI_IPC": "off"}, {"HPE_MPI_IPC": "none"}]
    without_reset = [case for case in cases if case not in ("reset", "all_reset")]
    cuda_aware = [(2, program, UCX_SETTINGS) for program in (without_reset, forms, [types, "3", "30"]) if UCX.is_dir()]
    for count, program, variables in ([(2, program, v) for v in ways for program in (cases, forms)] + cuda_aware
                                      + [(3, cases, {}), (3, forms, {}), (2, [under_way, "window", "ring", "posted_late"], {}),
                                         (2, [types, "3", "30"], {}), (2, sums, {}), (4, sums, {})]):
        try:
            said = run(*ranks(count, program, LIBRARY, **variables))
            right = said.count(" 0 wrong") == count
            problems.append(None if right else f"{called(program)} {count} ranks {variables}: {said[-500:]}")
        except Failed as problem:
            problems.append(f"{called(program)} {count} ranks {variables}: {problem}")
    return problems.count(None), [p for p in problems if p]


def check_soft(only):
    """name -> runs that were right; and what was wrong. One after the other: some look at how much memory is free."""
    right, wrong = {}, []
    for line in (BUILD / "tests/soft/on_gpu").read_text().splitlines():
        name, expected = line.split("\t")
        if only is not None and name not in only:
            continue
        if expected.endswith(".expected"):
            expected = (ROOT / "tests/soft" / expected).read_text().rstrip("\n")
        right[name] = 0
        for library in (None, LIBRARY):
            called = f"{name} {'with' if library else 'without'} libhpe"
            try:
                out = run([str(BUILD / "tests/soft" / name)], environment(library, **SHARED_RUNTIME), timeout=120)
            except Failed as problem:
                wrong.append(f"{called}: {problem}")
                continue
            if out == expected + "\n":
                right[name] += 1
            else:
                wrong.append(f"{called} printed {out[-200:]!r}, not {expected[-200:]!r}")
    return right, wrong
