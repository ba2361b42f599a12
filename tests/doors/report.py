#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: report.py SMALL ARGUMENTS REGIONS

HPE_REPORT as text and as JSON, its call sites, with %p, of a program whose name is not UTF-8, to places that cannot be
written, and the counts of HPE_LOG=debug. And that a launch whose arguments lie in an object traps nowhere but where a
kernel has written them, once: they are brought before the driver reads them, with its locks held.
"""
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

import compare
import soft

small = sys.argv[1]
KEYS = {"bytes_to_host", "transfers_to_host", "bytes_to_device", "transfers_to_device", "read_faults", "write_faults",
        "evictions", "bytes_ahead_used", "bytes_ahead_wasted"}


def run(case, **variables):
    compare.runs += 1
    wanted = soft.run([small, "copy", case], preload=False)
    got = soft.run([small, "plain", case], **variables)
    if got[:2] != wanted[:2]:
        compare.problem(f"{case} {variables}: {got}, without libhpe {wanted}")
    return got[2].decode()


text = run("work", HPE_REPORT="-")
lines = text.splitlines()
if not re.match(r"hpe: report of process \d+: protocol rolling, 2 objects$", lines[0]) or len(lines) < 6:
    compare.problem(f"text report: {text}")
ranked = run("work", HPE_REPORT="-", OMPI_COMM_WORLD_RANK=3).splitlines()[0]
if not re.match(r"hpe: report of process \d+ \(rank 3\): ", ranked):
    compare.problem(f"text report of a rank: {ranked}")
SITE = r"hpe: \d+ faults? brought .* to the host: \S+\+0x[0-9a-f]+( \(.*\))?$"
if any(not line.startswith("hpe: ") for line in lines) or "total" not in lines[4]:
    compare.problem(f"text report: {text}")
AHEAD = r"hpe: fetched ahead: \S+ \w+ used, \S+ \w+ wasted$"
if len(lines) > 9 or not re.match(AHEAD, lines[5]) or any(not re.match(SITE, line) for line in lines[6:]):
    compare.problem(f"call sites in the text report: {text}")

functions = [(int(at, 16), int(size, 16), name) for at, size, name in re.findall(
    r"^(\w+) (\w+) [tTwW] (.*)$", subprocess.run(["nm", "-C", "-S", "--defined-only", small], check=True,
                                              capture_output=True, text=True).stdout, re.M)]


def function_of(site):
    """What the program's own symbol table says."""
    if pathlib.Path(site["module"]).resolve() != pathlib.Path(small).resolve():
        return None
    offset = int(site["offset"], 16)
    return next((name for at, size, name in functions if at <= offset < at + size), None)


def check_sites(report):
    sites = report["call_sites"]
    faults = sum(s["faults"] for s in sites) + report["faults_elsewhere"]
    if faults != report["total"]["read_faults"] + report["total"]["write_faults"]:
        compare.problem(f"call sites do not add up: {report}")
    if [s["bytes_to_host"] for s in sites] != sorted((s["bytes_to_host"] for s in sites), reverse=True):
        compare.problem(f"call sites out of order: {report}")
    for site in sites:
        if set(site) != {"address", "module", "offset", "symbol", "faults", "bytes_to_host"}:
            compare.problem(f"keys of {site}")
        if int(site["address"], 16) % 4096 != int(site["offset"], 16) % 4096 or function_of(site) is None:
            compare.problem(f"{site} lies in no function of the program")

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for protocol in ("rolling", "lazy", "batch"):
        if run("work", HPE_REPORT=folder / "report.json", HPE_PROTOCOL=protocol):
            compare.problem("a report in a file is announced on stderr")
        report = json.loads((folder / "report.json").read_text())
        if set(report) != {"version", "rank", "program", "call_stacks", "protocol", "process", "objects", "total", "per_object", "objects_omitted", "call_sites",
                           "staged_copies", "staged_bytes",
                           "faults_elsewhere"}:
            compare.problem(f"keys {sorted(report)}")
        if report["protocol"] != protocol or report["objects"] != 2 or set(report["total"]) != KEYS:
            compare.problem(f"report {report}")
        check_sites(report)
        objects = report["per_object"]
        if [o["id"] for o in objects] != [1, 2] or [o["bytes"] for o in objects] != [2400000, 2120000]:
            compare.problem(f"objects {objects}")
        for key in KEYS:
            if sum(o[key] for o in objects) != report["total"][key]:
                compare.problem(f"{key} does not add up: {report}")
        # Every round the CPU wrote both arrays and a kernel read them, and the other way round.
        for o in objects:
            if o["bytes_to_device"] == 0 or o["bytes_to_host"] == 0 or o["write_faults"] + o["read_faults"] == 0:
                compare.problem(f"{protocol}: nothing moved: {o}")
    # Two of three kernels' results are read whole, the third in one block, which is then written.
    run("sites", HPE_REPORT=folder / "sites.json", HPE_BLOCK_SIZE="64K")
    report = json.loads((folder / "sites.json").read_text())
    check_sites(report)
    share = {}
    for site in report["call_sites"]:
        name = function_of(site).split("(")[0]
        if (site["symbol"] or "").split("(")[0] != (name if name.startswith("sites::") else ""):
            compare.problem(f"{site} is in {name}")
        faults, moved = share.get(name, (0, 0))
        share[name] = (faults + site["faults"], moved + site["bytes_to_host"])
    blocks = -(-400000 // 65536)
    if share != {"sites::read_all": (2 * blocks, 2 * 400000), "sites::read_first": (1, 65536), "write_first": (1, 0)}:
        compare.problem(f"shares of the call sites: {share}")
    # What was fetched ahead for a site is brought by it once it is used.
    def strided(**variables):
        got = soft.run([small, "plain", "strided"], HPE_REPORT=folder / "strided.json", **variables)
        if got[0] != 0 and variables:
            return None  # it could do without none of those that were refused
        if got[:2] != soft.run([small, "copy", "strided"], preload=False)[:2]:
            compare.problem(f"strided {variables}: {got}")
        report = json.loads((folder / "strided.json").read_text())
        check_sites(report)
        total = report["total"]
        brought = sum(site["bytes_to_host"] for site in report["call_sites"])
        if brought != total["bytes_to_host"] - total["bytes_ahead_wasted"]:
            compare.problem(f"strided {variables}: the sites brought {brought} of {total}")
        return total
    all_well = strided()
    if all_well["bytes_ahead_used"] < all_well["bytes_to_host"] / 4:
        compare.problem(f"strided: not fetched ahead: {all_well}")
    # Fetches that the driver refuses, some of which were ahead. Nothing was wasted that did not move.
    sent = all_well["transfers_to_host"]
    survived = [strided(HPE_SOFT_FAIL=f"cuMemcpyDtoHAsync:{n}:1") for n in range(1, sent, max(1, sent // 16))]
    if sum(total is not None for total in survived) < 4:
        compare.problem(f"strided, with fetches that were refused: {survived}")
    # Nothing that the CPU touches: nothing moves.
    run("device_only", HPE_REPORT=folder / "only.json")
    report = json.loads((folder / "only.json").read_text())
    if any(report["total"].values()) or report["objects"] != 1 or report["per_object"] or report["call_sites"]:
        compare.problem(f"device only: {report}")
    # An access behind the last allocation of a region, in its page, counts for that allocation.
    run("past_the_end", HPE_REPORT=folder / "end.json")
    objects = json.loads((folder / "end.json").read_text())["per_object"]
    if [(o["id"], o["bytes"], o["write_faults"]) for o in objects] != [(1, 100, 1)]:
        compare.problem(f"past the end: {objects}")
    # A process id in the name, wherever it is wanted; a forked child, which has no device, writes none.
    run("forked", HPE_REPORT=folder / "of-%p-%p.json")
    found = [path.stem for path in folder.glob("of-*.json")]
    process = json.loads((folder / f"{found[0]}.json").read_text())["process"] if found else None
    if found != [f"of-{process}-{process}"]:
        compare.problem(f"%p: {found}")
    # JSON is UTF-8, which the name of a program need not be.
    odd = folder / os.fsdecode(b'\xc3\xa9 "\xe9"')
    shutil.copy(small, odd)
    soft.run([odd, "plain", "work"], HPE_REPORT=folder / "odd.json")
    try:
        names = {site["module"] for site in json.loads((folder / "odd.json").read_bytes())["call_sites"]}
    except UnicodeDecodeError as wrong:
        names = wrong
    if names != {str(folder / '\u00e9 "\ufffd"')}:
        compare.problem(f"a name that is not UTF-8: {names}")
    run("idle", HPE_REPORT=folder / "idle.json")
    if (folder / "idle.json").exists():
        compare.problem("a program without CUDA wrote a report")
    run("work", HPE_REPORT=folder / "text")
    if not (folder / "text").read_text().startswith("hpe: report"):
        compare.problem("a path without .json is not text")
    # A place that cannot be written: one line, and the program's own status.
    for place in (folder / "none" / "x.json", folder, "/dev/full"):
        said = run("work", HPE_REPORT=place)
        if said.count("\n") != 1 or f"hpe: cannot write the report to {place}: " not in said:
            compare.problem(f"{place}: {said}")

    os.mkfifo(folder / "unread.json")
    said = run("work", HPE_REPORT=folder / "unread.json")
    if said.count("\n") != 1 or f"hpe: cannot write the report to {folder / 'unread.json'}: " not in said:
        compare.problem(f"a pipe that nobody opens: {said}")

    # A file above the limit, and a pipe that nobody reads: no signal ends the program.
    said = run("limited", HPE_REPORT=folder / "long.json")
    if said.count("\n") != 1 or f"hpe: cannot write the report to {folder / 'long.json'}: " not in said:
        compare.problem(f"a file above the limit: {said}")
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen([small, "plain", "work"], stdout=subprocess.PIPE, stderr=writing,
                          env=soft.environment(HPE_REPORT="-", HPE_LOG="debug")) as program:
        out = program.communicate(timeout=60)[0]
    os.close(writing)
    as_always = soft.run([small, "copy", "work"], preload=False)[:2]
    if (program.returncode, out) != as_always:
        compare.problem(f"a report to a pipe that nobody reads: {program.returncode} {out}")
    # One that is read no more in the middle of a write.
    os.mkfifo(folder / "pipe.json")
    reading = os.open(folder / "pipe.json", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen([small, "plain", "work"], stdout=subprocess.PIPE,
                          env=soft.environment(HPE_TRACE=folder / "pipe.json")) as program:
        select.select([reading], [], [], 60)
        taken = len(os.read(reading, 4096))
        # Until more has been written, and waits.
        while program.poll() is None and struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, bytes(4))) != (4096,):
            time.sleep(0.01)
        os.close(reading)
        out = program.communicate(timeout=60)[0]
    if (program.returncode, out) != as_always or taken != 4096:
        compare.problem(f"a timeline to a pipe that is closed early: {program.returncode} {out}, {taken} bytes read")

said = run("work", HPE_LOG="debug")
counts = dict(re.findall(r"hpe: (cu\w+) passed through (\d+) times", said))
if not counts or any(int(n) == 0 for n in counts.values()) or "cuLaunchKernel" in counts:
    compare.problem(f"counts {counts}: {said[-500:]}")
if "cuCtxGetCurrent" not in counts and "cuGetErrorString" not in counts and "cuDeviceGetAttribute" not in counts:
    compare.problem(f"counts {counts}")
if run("work", HPE_LOG="info").count("passed through"):
    compare.problem("counts without debug")
with tempfile.TemporaryDirectory() as name:
    path = pathlib.Path(name) / "arguments.json"
    soft.run([sys.argv[2]], HPE_REPORT=path)
    # Two small ones, which share a block: the second's fault brings both.
    of_arguments = json.loads(path.read_text())["per_object"]
    if [o["id"] for o in of_arguments] != [1, 2] or of_arguments[1]["write_faults"] == 0:
        compare.problem(f"arguments in an object: {of_arguments}")
    # Each allocation is counted for itself, and again where its place is another's.
    soft.run([sys.argv[3], "plain", "counted"], HPE_REPORT=path)
    report = json.loads(path.read_text())
    moved = [tuple(o[k] for k in ("id", "bytes", "bytes_to_host", "bytes_to_device", "read_faults", "write_faults"))
             for o in report["per_object"]]
    wanted = [(1, 1000, 4 * 1000, 2 * 1000), (2, 300, 4 * 300, 2 * 300), (3, 5000, 2 * 5000, 5000), (4, 5000, 2 * 5000, 5000)]
    if [line[:4] for line in moved] != wanted or sum(line[5] for line in moved) != 2 or moved[2][4] + moved[3][4] != 2:
        compare.problem(f"allocations of a region: {moved}")
    for key in KEYS:
        if sum(o[key] for o in report["per_object"]) != report["total"][key]:
            compare.problem(f"total of a region's {key}: {report}")
compare.finish(14)
