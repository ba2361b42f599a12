#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: trace.py TRACE SMALL PAGEABLE

HPE_TRACE: what is in the timeline agrees with itself, with the report of the same run and with what the program did;
what the program does is the same with it. Of several processes each writes its own.
"""
import collections
import decimal
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import compare
import soft

trace, small, pageable = sys.argv[1:]
CATEGORIES = {"call", "fault", "wait", "fetch", "flush", "staging", "setup", "copy", "stream", "kernel"}
FIRST_STREAM = 4194305
ns = time.monotonic_ns  # the timeline's clock


def problem(what, text):
    compare.problem(f"{what}: {text}")


class Timeline:
    """A file that is well-formed: else it says so, and is empty."""

    def __init__(self, what, path, begin, end):
        self.what, self.events, self.tracks, self.other = what, [], {}, collections.Counter()
        try:
            whole = json.loads(path.read_text(), parse_float=decimal.Decimal)
        except (OSError, ValueError) as wrong:
            problem(what, f"no timeline: {wrong}")
            return
        if set(whole) != {"displayTimeUnit", "traceEvents", "otherData"}:
            problem(what, f"keys {sorted(whole)}")
        self.other = whole["otherData"]
        pids = {e["pid"] for e in whole["traceEvents"]}
        if len(pids) != 1:
            problem(what, f"processes {pids}")
        self.pid = pids.pop()
        for e in whole["traceEvents"]:
            if (e["ph"], e["name"]) == ("M", "thread_name"):
                self.tracks[e["tid"]] = e["args"]["name"]
            elif e["name"] != "process_name":
                self.events.append(e)
        if sorted({e["ph"] for e in self.events}) != ["X"] or {e["cat"] for e in self.events} - CATEGORIES:
            problem(what, f"kinds of events: { {(e['ph'], e.get('cat')) for e in self.events} }")
        if {e["tid"] for e in self.events} != set(self.tracks):
            problem(what, "tracks without name or events")
        if len(self.events) != self.other["events"] or self.other["events_dropped"] != 0:
            problem(what, f"{len(self.events)} events: {self.other}")
        outside = [e for e in self.events if not begin <= e["ts"] * 1000 <= (e["ts"] + e["dur"]) * 1000 <= end]
        if outside:
            problem(what, f"not in the time of the run: {outside[:3]}")
        self.check_nesting()

    def check_nesting(self):
        open_events = collections.defaultdict(list)
        for e in self.events:  # in the order of the file, which is that of each track
            above = open_events[e["tid"]]
            begin, end = e["ts"], e["ts"] + e["dur"]
            if above and begin < above[-1]["ts"]:
                problem(self.what, f"out of order: {above[-1]}, {e}")
            while above and above[-1]["ts"] + above[-1]["dur"] <= begin:
                above.pop()
            if above and end > above[-1]["ts"] + above[-1]["dur"]:
                problem(self.what, f"overlap: {above[-1]}, {e}")
            if above and e["tid"] >= FIRST_STREAM:
                problem(self.what, f"two at once in a stream: {above[-1]}, {e}")
            e["inside"] = [a["cat"] for a in above]
            above.append(e)

    def of(self, category, name=None):
        return [e for e in self.events if e["cat"] == category and name in (None, e["name"])]

    def bytes(self, *which):
        return sum(e["args"]["bytes"] for e in self.of(*which) if "failed" not in e["args"])


folder = pathlib.Path(tempfile.mkdtemp())
number = 0


def run(command, kernels=0, **variables):
    """The timeline and the report of a run that does what it does without libhpe. There are seldom fewer kernels on it
    than wanted, where the machine is so busy that their events are not to be had: then once more."""
    for _ in range(5):
        t, report = run_once(command, **variables)
        if len(t.of("kernel")) >= kernels:
            break
    else:
        problem(t.what, f"{len(t.of('kernel'))} kernels, {t.other}")
    return t, report


def run_once(command, form="plain", status=0, **variables):
    global number
    number += 1
    compare.runs += 1
    program, *case = command
    forms = () if program == pageable else (form,)
    path, report = folder / f"{number}.json", folder / f"{number}-report.json"
    wanted = soft.run([program, *(("copy",) if forms else ()), *case], preload=False, **variables)
    begin = ns()
    got = soft.run([program, *forms, *case], HPE_TRACE=path, HPE_REPORT=report, **variables)
    end = ns()
    what = f"{pathlib.Path(program).name} {case} {variables}"
    if got[:2] != wanted[:2] or wanted[0] != status:
        problem(what, f"{got}, without libhpe {wanted}")
    if b"hpe:" in got[2]:
        problem(what, f"said {got[2]}")
    return Timeline(what, path, begin, end), json.loads(report.read_text())


def check_with_report(t, report, joined=False):
    """Every byte and fault that the report counts is in the timeline, once and with its object. Of allocations that were
    moved `joined`, in one transfer, the timeline names the first."""
    total = report["total"]
    faults = collections.Counter(e["name"] for e in t.of("fault"))
    if faults != collections.Counter({"read fault": total["read_faults"], "write fault": total["write_faults"]}):
        problem(t.what, f"{faults}, report {total}")
    stacks = report["call_stacks"]
    without = [e for e in t.of("fault") if "+0x" not in e["args"].get("stack", "") and "(" not in e["args"].get("stack", "")]
    if stacks is not None and len(without) > stacks["taken"]["not_taken"]:
        problem(t.what, f"faults without a stack: {without[:3]}")
    for category, direction in (("fetch", "to_host"), ("flush", "to_device")):
        moved = [e for e in t.of(category) if "failed" not in e["args"]]
        transfers = total[f"transfers_{direction}"]
        if t.bytes(category) != total[f"bytes_{direction}"] or len(moved) > transfers or len(moved) < transfers and not joined:
            problem(t.what, f"{t.bytes(category)} bytes by {len(moved)} of {category}, report {total}")
        shares = collections.Counter()
        for e in moved:
            shares[e["args"]["object"]] += e["args"]["bytes"]
        if not joined and shares != collections.Counter({o["id"]: o[f"bytes_{direction}"] for o in report["per_object"]}):
            problem(t.what, f"{category} by object {shares}, report {report['per_object']}")
        in_stream = t.bytes("stream", direction.replace("_", " "))
        if report["staged_copies"] == 0 and in_stream != total[f"bytes_{direction}"]:
            problem(t.what, f"{in_stream} bytes in streams {direction}, report {total}")
    objects = {o["id"]: (int(o["address"], 16), o["bytes"]) for o in report["per_object"]}
    for e in t.of("fault"):
        base, size = objects[e["args"]["object"]]
        if not base <= int(e["args"]["address"], 16) < base + size:
            problem(t.what, f"{e} is not in object {objects[e['args']['object']]}")
    sites = sum(s["bytes_to_host"] for s in report["call_sites"])
    if t.bytes("fault") != sites:
        problem(t.what, f"faults fetched {t.bytes('fault')} bytes, call sites say {sites}")


def check_kernels(t, name, launches, streams=1):
    """Each launch is on a stream's track once, or is counted as one without times; the first has them."""
    shown = t.of("kernel", name)
    if not shown or len(shown) > launches or len(t.of("kernel")) + t.other["launches_without_times"] < launches:
        problem(t.what, f"{len(shown)} of {launches} kernels {name}, {t.other}, all {t.of('kernel')[:5]}")
    issued = sum("Launch" in e["name"] and "HostFunc" not in e["name"] for e in t.of("call"))
    if len(t.of("kernel")) + t.other["launches_without_times"] > issued:
        problem(t.what, f"{len(t.of('kernel'))} kernels of {issued} launches, {t.other}")
    tracks = {e["tid"] for e in shown}
    if any(tid < FIRST_STREAM or not t.tracks[tid].startswith("context ") for tid in tracks) or len(tracks) > streams:
        problem(t.what, f"kernels on {[t.tracks[tid] for tid in tracks]}")
    calls = sorted(e["ts"] for e in t.of("call") if "Launch" in e["name"])
    if shown and min(e["ts"] for e in shown) < calls[0]:
        problem(t.what, "a kernel ran before the first launch")


ADVANCE = "void advance<0>(unsigned int*, unsigned int, unsigned int)"
FILL = "fill(unsigned int*, unsigned int, unsigned int)"

for protocol in ("rolling", "lazy", "batch"):
    for block in ("4K", "256K"):
        t, report = run([small, "work"], kernels=1, HPE_PROTOCOL=protocol, HPE_BLOCK_SIZE=block)
        check_with_report(t, report)
        check_kernels(t, ADVANCE, 8)
        calls = collections.Counter(e["name"] for e in t.of("call"))
        if calls["cuLaunchKernel"] != 8 or calls["cuMemAlloc_v2"] != 2 or calls["cuMemFree_v2"] != 1:
            problem(t.what, f"calls {calls}")
        if sorted(e["args"]["bytes"] for e in t.of("call", "cuMemAlloc_v2")) != [2120000, 2400000]:
            problem(t.what, f"allocations {t.of('call', 'cuMemAlloc_v2')}")
        if t.tracks.get(t.pid) != "door_small" or {e["tid"] for e in t.of("call")} != {t.pid}:
            problem(t.what, f"tracks {t.tracks}")
        # Blocks come with the access that wants them, and go at launches at the latest.
        astray = [e for e in t.of("fetch") if e["tid"] == t.pid and not {"fault", "call"} & set(e["inside"])]
        if astray:
            problem(t.what, f"fetched for nobody: {astray[:3]}")
# The program's own copies: what they copy is in the timeline, and what libhpe does not touch is as before.
t, report = run([small, "device_only"])
copies = [e["args"].get("bytes") for e in t.of("call") if e["name"].startswith("cuMemcpyDtoH")]
if copies != [4] or t.of("fault") or t.of("fetch"):
    problem(t.what, f"copies {copies}, {t.of('fault')}")

# Copies that take a while: those of two threads overlap, in one stream.
t, report = run([trace, "readers"], HPE_BLOCK_SIZE="4K", HPE_SOFT_LATENCY=300)
check_with_report(t, report)
if not any(name.endswith("libhpe to host (2)") for name in t.tracks.values()):
    problem(t.what, f"no copies at once: {t.tracks}")
t, report = run([trace, "threads"], kernels=2)
check_with_report(t, report, joined=True)
if t.other["launches_without_times"] == 0 and len({e["tid"] for e in t.of("kernel", ADVANCE)}) != 2:
    problem(t.what, f"two streams, kernels on {t.tracks}")
check_kernels(t, ADVANCE, 20, streams=2)
launches = collections.Counter(e["tid"] for e in t.of("call", "cuLaunchKernel"))
if sorted(launches.values()) != [10, 10] or t.pid in launches or any(tid not in t.tracks for tid in launches):
    problem(t.what, f"launches by thread {launches}")
t, _ = run([trace, "streams"], kernels=1)
check_kernels(t, FILL, 6, streams=6)
t, _ = run([trace, "captured"], kernels=1)
check_kernels(t, "graph", 4)
if t.of("kernel", FILL):
    problem(t.what, "a captured launch has times")
t, report = run([trace, "reset"], kernels=3)  # more than one context has
check_kernels(t, ADVANCE, 6)
t, _ = run([trace, "overlapping"], kernels=1)
if len(t.of("kernel")) > 2 or t.other["launches_without_times"] < 3 or len(t.of("call", "cuLaunchKernelEx")) != 5:
    problem(t.what, f"kernels {t.of('kernel')}, {t.other}")
t, report = run([trace, "errors"], kernels=1)
check_kernels(t, ADVANCE, 3)
if sorted(e["args"].get("result", 0) for e in t.of("call", "cuLaunchKernel")) != [0] * 3 + [1] * 3:
    problem(t.what, f"launches {t.of('call', 'cuLaunchKernel')}")
t, _ = run([trace, "pending"])
if len(t.of("kernel")) > 20 or len(t.of("call", "cuLaunchKernel")) != 20:
    problem(t.what, f"{len(t.of('kernel'))} kernels")
run([trace, "late"])
run([trace, "ends_in_callback"], status=7)

# Copies through pinned memory: as many bytes as the report says, and all of them are copied by somebody.
helped = 0
for case in ("sizes", "order", "threads"):
    t, report = run([pageable, case], HPE_SOFT_PAGEABLE="500M", HPE_STAGING_THREADS=3, HPE_SOFT_DEVICES=2)
    staged = [e for e in t.of("staging") if not {"fetch", "flush"} & set(e["inside"])]
    if (len(staged), sum(e["args"]["bytes"] for e in staged)) != (report["staged_copies"], report["staged_bytes"]):
        problem(t.what, f"{len(staged)} staged copies, report {report['staged_copies']}")
    if t.bytes("copy") != t.bytes("staging"):
        problem(t.what, f"{t.bytes('copy')} bytes copied of {t.bytes('staging')}")
    helpers = {e["tid"] for e in t.of("copy") if t.tracks[e["tid"]] == "hpe-copier"}
    helped += len(helpers)
    if any(e["cat"] != "copy" for e in t.events if e["tid"] in helpers):
        problem(t.what, "helpers do more than copying")
if helped == 0:
    problem("staging", "no helper copied anything")

# More than it holds: the first are kept, the rest counted and told.
path = folder / "many.json"
wanted = soft.run([trace, "copy", "many"], preload=False)
status, out, err = soft.run([trace, "plain", "many"], HPE_TRACE=path)
compare.runs += 1
lines = path.read_text().split("\n")
other = json.loads("{" + lines[-2])["otherData"]
kept, dropped = other["events"], other["events_dropped"]
queries = sum('"cuStreamQuery"' in line for line in lines)
if (status, out) != wanted[:2] or err != f"hpe: the timeline is full: of {kept + dropped} events it has the first {kept}\n".encode():
    problem("many", f"{status} {out} {err}, {other}")
if dropped == 0 or not 200000 < queries < 700000 <= kept + dropped or sum('"ph": "X"' in line for line in lines) != kept:
    problem("many", f"{queries} queries, {other}")
for line in lines[1:-2:500]:
    json.loads(line.rstrip(","))

# Off, and programs for which it is as good as off.
for command, variables in ((["work"], {}), (["work"], {"HPE_TRACE": ""}), (["idle"], {"HPE_TRACE": folder / "none.json"}),
                           (["work"], {"HPE_TRACE": folder / "none.json", "HPE_PROTOCOL": "off"})):
    before = sorted(folder.iterdir())
    compare.check([small, *command], forms=("copy",), stderr=True, **variables)
    if sorted(folder.iterdir()) != before:
        problem(f"{command} {variables}", "wrote a timeline")
# Each process its own, and none of a child that has no device.
for program, case, files in ((small, "forked", 1), (trace, "fork_first", 2)):
    compare.check([program, case], forms=("plain",), stderr=True, HPE_TRACE=folder / f"{case}-%p.json")
    found = sorted(folder.glob(f"{case}-*.json"))
    if len(found) != files:
        problem(case, f"files {found}")
    for path in found:
        t = Timeline(case, path, 0, ns())
        threads = {n for n, name in t.tracks.items() if n < FIRST_STREAM and not name.startswith("hpe-")}
        if t.pid != int(path.stem.split("-")[1]) or len(t.of("call", "cuInit")) != 1 or threads != {t.pid}:
            problem(case, f"{path}: process {t.pid}, tracks {t.tracks}")
# JSON is UTF-8, which the name of a program need not be.
odd = folder / os.fsdecode(b'\xc3\xa9 "\xe9"')
shutil.copy(small, odd)
soft.run([odd, "plain", "work"], HPE_TRACE=folder / "odd.json")
t = Timeline("a name that is not UTF-8", folder / "odd.json", 0, ns())
if t.tracks and t.tracks.get(t.pid) != '\u00e9 "\ufffd"':
    problem(t.what, f"tracks {t.tracks}")
# A place that cannot be written: one line, and the program's own status.
for place in (folder / "none" / "x.json", folder, "/dev/full"):
    wanted = soft.run([small, "copy", "work"], preload=False)
    status, out, err = soft.run([small, "plain", "work"], HPE_TRACE=place)
    compare.runs += 1
    if (status, out) != wanted[:2] or err.count(b"\n") != 1 or f"hpe: cannot write the timeline to {place}: ".encode() not in err:
        problem(place, f"{status} {out} {err}")
for path in folder.iterdir():
    path.unlink()
folder.rmdir()
compare.finish(30)
