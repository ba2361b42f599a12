#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: pageable.py PAGEABLE ROWS SHARED

Copies between the program's own memory and the device, which libhpe moves through bounce buffers of its own where that is
faster. The driver's own way is slow here (HPE_SOFT_PAGEABLE), so that it is. The same output as without libhpe, at the
extremes of every option; and the driver's call counts say which way the copies went.
"""
import json
import os
import pathlib
import sys
import tempfile

import soft

program, in_rows, shared = sys.argv[1:]
DEVICES = {"HPE_SOFT_DEVICES": 2}
MACHINE = {**DEVICES, "HPE_SOFT_PAGEABLE": "500M"}
PLAIN = [{"HPE_STAGING_THREADS": 3}]
OPTIONS = [
    {"HPE_STAGING_THREADS": 1, "HPE_STAGING_BLOCK": "4K", "HPE_PINNED_LIMIT": "1M"},
    {"HPE_STAGING_THREADS": 64, "HPE_STAGING_BLOCK": "64M"},
    {"HPE_STAGING_THREADS": 2, "HPE_STAGING_BLOCK": "100K", "HPE_PROTOCOL": "lazy"},
    {"HPE_STAGING_THREADS": 0},
    {"HPE_PROTOCOL": "off"},
    {},
]
problems, runs = [], 0
commands = [[of, case, *kind] for kind in ([], ["default"]) for of in (program, in_rows, shared)
            for case in soft.run([of], preload=False)[1].decode().split()]
for number, command in enumerate(commands):
    # The default kind finds its way by the pointers: half of the cases show that.
    if len(command) == 3 and number % 2 == 0 and command[1] not in ("sum", "too_long"):
        continue
    wanted = soft.run(command, preload=False, **DEVICES)
    if (wanted[0] != 0 and command[1:] != ["too_long", "default"]) or b"WRONG" in wanted[1]:
        problems.append(f"{command[1:]} without libhpe: {wanted}")
    # Without helpers most cases are alike: each of these options has a third of them.
    tried = soft.in_turn(number, OPTIONS[:3]) + ([OPTIONS[3 + number // 3 % 3]] if command[0] == program else [])
    # So many bytes once each way.
    for options in [{}] if command[1] == "sum" else tried if len(command) == 2 else PLAIN:
        runs += 1
        got = soft.run(command, **MACHINE, **options)
        if got[:2] != wanted[:2] or b"hpe:" in got[2]:
            problems.append(f"{soft.shown(command, {**MACHINE, **options})}\n  {got}\n  without libhpe {wanted}")


def calls(case, of=program, **options):
    with tempfile.NamedTemporaryFile("r") as counts:
        done = soft.run([of, case], HPE_SOFT_COUNT=counts.name, **MACHINE, **options)
        if done[0] != 0:
            problems.append(f"{case} {options}: {done}")
        return {name: int(n) for name, n in (line.split()[:2] for line in counts if not line.startswith("#"))}


# Pinned, managed and registered memory the driver moves as fast.
for case, options, staged in (("sizes", {"HPE_STAGING_THREADS": 3}, True), ("sizes", {"HPE_STAGING_THREADS": 0}, False),
                              ("known_memory", {"HPE_STAGING_THREADS": 3}, False),
                              ("threads", {"HPE_STAGING_THREADS": 3}, True)):
    counted = calls(case, **options)
    transfers = [counted.get(f"cuMemcpy{way}Async", 0) for way in ("HtoD", "DtoH")]
    program_made = 20 if case == "threads" else 0  # calls of the program's own
    if staged != (min(transfers) > program_made + 4) or (not staged and max(transfers) > program_made):
        problems.append(f"{case} {options}: transfers to the device and back: {transfers}")
    if not staged and counted.get("cuMemHostAlloc", 0) > (1 if case == "known_memory" else 0):
        problems.append(f"{case} {options}: pinned memory was made: {sorted(counted.items())}")
# In rows, too, unless these are longer than a block; volumes whose rows lie at one pitch are rows.
for case, options, staged in (("rows", {"HPE_STAGING_THREADS": 3}, True), ("volumes", {"HPE_STAGING_THREADS": 3}, True),
                              ("rows", {"HPE_STAGING_THREADS": 3, "HPE_STAGING_BLOCK": "4K"}, True),
                              ("rows", {"HPE_STAGING_THREADS": 0}, False),
                              ("wide", {"HPE_STAGING_THREADS": 3}, True),
                              ("wide", {"HPE_STAGING_THREADS": 3, "HPE_STAGING_BLOCK": "4K"}, False)):
    transfers = calls(case, in_rows, **options).get("cuMemcpy2DAsync", 0)
    if transfers != 0 if not staged else transfers <= 20:
        problems.append(f"{case} {options}: {transfers} transfers of rows")
with tempfile.TemporaryDirectory() as folder:
    for threads, staged, *kind in ((3, True), (0, False), (3, True, "default")):
        path = pathlib.Path(folder) / f"{threads}.json"
        soft.run([program, "order", *kind], HPE_REPORT=path, HPE_STAGING_THREADS=threads, **MACHINE)
        report = json.loads(path.read_text())
        if (report["staged_copies"] > 0) != staged or report["staged_bytes"] != report["staged_copies"] * (2 * 2**20 + 100):
            problems.append(f"{threads} helper threads: the report counts {report['staged_copies']} staged copies of "
                            f"{report['staged_bytes']} bytes")
    # Those that fit into one block, too.
    path = pathlib.Path(folder) / "smallest.json"
    soft.run([program, "smallest"], HPE_REPORT=path, HPE_STAGING_THREADS=3, **MACHINE)
    staged = json.loads(path.read_text())["staged_copies"]
    if staged < 8:
        problems.append(f"of 40 copies of 512 KiB {staged} were staged")
    # A process that does not say how many helpers it wants gets none before it has copied 256 MiB, the copy among them
    # that gets there; from then on as many blocks as it has earned.
    alone = len(os.sched_getaffinity(0)) == 1  # where helpers have no processor
    for case, options, staged in (("order", {}, 0), ("sum", {}, 0 if alone else 3), ("sum", {"HPE_STAGING_THREADS": 3}, 6)):
        path, trace = pathlib.Path(folder) / "sum.json", pathlib.Path(folder) / "sum_trace.json"
        soft.run([program, case], HPE_REPORT=path, HPE_TRACE=trace, **MACHINE, **options)
        made = [e["args"].get("bytes", 0) for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "setup"]
        blocks = sum(made)
        right = {0: blocks == 0 and not made, 3: 2**24 <= blocks <= 24 * 2**20, 6: blocks == 2**25}
        if json.loads(path.read_text())["staged_copies"] != staged or not right[staged]:
            problems.append(f"{case} {options}: not {staged} staged copies, or made for them: {made}")
    # What was captured when its stream went is captured no more.
    path = pathlib.Path(folder) / "abandoned.json"
    soft.run([program, "capture_abandoned"], HPE_REPORT=path, HPE_STAGING_THREADS=3, **MACHINE)
    if json.loads(path.read_text())["staged_copies"] == 0:
        problems.append("no copy after an abandoned capture was staged")
    # Both ways are tried also where no copy finds its stream idle.
    path = pathlib.Path(folder) / "busy.json"
    soft.run([program, "busy"], HPE_REPORT=path, HPE_STAGING_THREADS=3, **MACHINE)
    staged = json.loads(path.read_text())["staged_copies"]
    if not 3 <= staged <= 17:
        problems.append(f"of 20 copies behind a kernel {staged} were staged")
if runs < 80:
    problems.append(f"only {runs} runs")
print("\n".join(problems[:20]) or f"{runs} runs")
sys.exit(1 if problems else 0)
